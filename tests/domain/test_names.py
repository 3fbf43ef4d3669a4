"""Names: what a name server of the host says reaches glibc, musl and Go in a domain; a domain knows its own."""
import socket
import socketserver
import struct
import threading

import pytest

ADDRESSES = {"service.test": ["192.0.2.7"], "many.test": [f"198.51.100.{i}" for i in range(1, 101)]}


def answer(query, most):
    """The answer to a question for the address of one of our names; one that is too long says that it is."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += 1 + query[at]
    question = query[12 : at + 5]
    kind = struct.unpack(">H", query[at + 1 : at + 3])[0]
    found = ADDRESSES.get(".".join(labels).lower())
    records = [b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton(a) for a in found or () if kind == 1]
    flags = 0x8180 if found else 0x8183
    if 12 + len(question) + 16 * len(records) > most:
        flags, records = flags | 0x200, []
    return query[:2] + struct.pack(">HHHHH", flags, 1, len(records), 0, 0) + question + b"".join(records)


class Datagrams(socketserver.BaseRequestHandler):
    def handle(self):
        self.request[1].sendto(answer(self.request[0], 512), self.client_address)


class Stream(socketserver.StreamRequestHandler):
    def handle(self):
        while length := self.rfile.read(2):
            reply = answer(self.rfile.read(struct.unpack(">H", length)[0]), 65535)
            self.wfile.write(struct.pack(">H", len(reply)) + reply)


class Tcp(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@pytest.fixture(scope="module")
def dns():
    """A name server of the host: what `--dns` is to be given."""
    while True:
        udp = socketserver.ThreadingUDPServer(("127.0.0.1", 0), Datagrams)
        try:
            tcp = Tcp(udp.server_address, Stream)
            break
        except OSError:  # Another has this port.
            udp.server_close()
    for s in (udp, tcp):
        threading.Thread(target=s.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{udp.server_address[1]}"
    for s in (udp, tcp):
        s.shutdown()
        s.server_close()


def opts(dns, *more):
    return ("--network", "nat", "--dns", dns, *more)


PYTHON = """
import socket
print(socket.gethostbyname("service.test"))
print(len(socket.gethostbyname_ex("many.test")[2]))
try:
    print(socket.gethostbyname("nowhere.test"))
except socket.gaierror as e:
    print(e.errno == socket.EAI_NONAME)
"""


def test_glibc(domain, dns):
    assert domain.run("python3", "-c", PYTHON, opts=opts(dns)).ok().split() == ["192.0.2.7", "100", "True"]


def test_musl(domain, dns, need):
    need("muslnames")
    out = domain.run("/t/muslnames", "service.test", "nowhere.test", opts=opts(dns)).ok().splitlines()
    assert out == ["192.0.2.7", "nowhere.test: Name does not resolve"]


def test_go(domain, dns, need):
    need("goload")
    out = domain.run("/t/goload", "lookup", "service.test", "many.test", "nowhere.test", opts=opts(dns)).ok()
    assert out.splitlines() == ["1 192.0.2.7", "100 198.51.100.1", "not found: true"]


def test_busybox(domain, dns):
    out = domain.run("busybox", "nslookup", "service.test", image="busybox", opts=opts(dns)).out
    assert "10.88.0.2" in out and "192.0.2.7" in out, out


def test_its_own_name(domain, dns):
    code = "import socket; print(socket.gethostbyname(socket.gethostname()), socket.gethostbyname('localhost'))"
    own = domain.run("python3", "-c", code, opts=opts(dns, "--hostname", "alpha")).ok().split()
    assert own[0].startswith("10.88.") and own[1] == "127.0.0.1"
    hosts = domain.run("cat", "/etc/hosts", opts=opts(dns, "--hostname", "alpha")).ok()
    assert f"{own[0]}\talpha\n" in hosts


def test_without_a_network_files_are_the_images(domain):
    assert "nameserver" not in domain.run("cat", "/etc/resolv.conf").ok()
