"""The network of paene domains: what para domains have, by the same service and rules (docs/services.md)."""
import hashlib
import os
import signal
import socket
import threading
import time

import pytest
from conftest import HERE, beside, eventually, run, text
from processes import words

domain = beside(HERE.parent / "domain/conftest.py")
free_port = domain.free_port
SERVER = r"""
import socket, socketserver, threading
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(b"%s %s" % (self.client_address[0].encode(), line))
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, request_queue_size = True, 100
def datagrams():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("", 7001))
    while True:
        data, to = s.recvfrom(65535)
        s.sendto(data[::-1], to)
threading.Thread(target=datagrams, daemon=True).start()
with Server(("", 7000), Echo) as s:
    print("ready", flush=True)
    s.serve_forever()
"""


def below(p, word):
    """Processes of a command that have this argument."""
    return [pid for pid in domain.descendants(p.pid) if word.encode() in words(pid)]


@pytest.fixture
def published(started, image):
    """Servers in a domain, and the host's ports that lead to them."""
    tcp, udp = free_port(), free_port()
    opts = ("--network", "nat", "-p", f"127.0.0.1:{tcp}:7000", "-p", f"127.0.0.1:{udp}:7001/udp")
    p = started("python3", "-c", SERVER, image=image("debian"), opts=opts)
    assert p.stdout.readline() == b"ready\n"
    return p, tcp, udp


def ask(port, line=b"hello\n"):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        s.sendall(line)
        return s.makefile("rb").readline()


def python(code, image, *opts):
    return text(run("python3", "-c", code, image=image("debian"), opts=("--network", "nat", *opts)))


def test_its_device_and_files(image):
    out = python(
        """
import os, socket
print(sorted(os.listdir("/sys/class/net")))
print(open("/etc/resolv.conf").read().strip())
name = socket.gethostname()
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("192.0.2.1", 9))
print(socket.gethostbyname(name) == s.getsockname()[0], s.getsockname()[0].startswith("10.88."))
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.connect(("2001:db8::1", 9))
print(s.getsockname()[0].startswith("fd88:d0bb:e1:"))
""",
        image,
    )
    assert out.splitlines() == ["['eth0', 'lo']", "nameserver 10.88.0.2", "True True", "True"]


def test_downloads_and_uploads(image, site):
    port, body = site
    code = f"""
import hashlib, urllib.request
url = "http://10.88.0.1:{port}/"
got = urllib.request.urlopen(url).read()
print(hashlib.sha256(got).hexdigest())
print(hashlib.sha256(urllib.request.urlopen(url, data=got).read()).hexdigest())
"""
    out = python(code, image, "--allow", f"10.88.0.1:{port}")
    assert out.split() == [hashlib.sha256(body).hexdigest(), hashlib.sha256(body[::-1]).hexdigest()]


def test_what_no_rule_allows_is_refused(image, site):
    port, _ = site
    code = f"""
import errno, socket
for to in (("10.88.0.1", {port}), ("169.254.169.254", 80), ("192.168.1.1", 80), ("fd88:d0bb:e1::1", {port})):
    try:
        socket.create_connection(to, timeout=50)
    except OSError as e:
        print(errno.errorcode[e.errno])
"""
    # IPv4 has no word of a router's for it that programs would see as EACCES.
    assert python(code, image).split() == ["EHOSTUNREACH"] * 3 + ["EACCES"]
    # A port at which nobody listens, which a rule allows.
    code = f"import socket; socket.create_connection(('10.88.0.1', {free_port()}), timeout=50)"
    p = run("python3", "-c", code, image=image("debian"), opts=("--network", "nat", "--allow", "10.88.0.1"))
    assert b"ConnectionRefusedError" in p.stderr, p.stderr


def test_nothing_is_sent_as_somebody_else(started, image):
    """Packets that a program makes itself, which it may (CAP_NET_RAW), go nowhere with another source."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(("127.0.0.1", 0))
    listener.settimeout(60)
    port = listener.getsockname()[1]
    code = f"""
import socket, struct
own = socket.gethostbyname(socket.gethostname())
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
def send(source, text):
    udp = struct.pack("!HHHH", 4000, {port}, 8 + len(text), 0) + text
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, socket.inet_aton(source), socket.inet_aton("10.88.0.1"))
    raw.sendto(ip + udp, ("10.88.0.1", 0))
send("10.88.0.99", b"forged")
send("192.0.2.7", b"forged")
send(own, b"honest")
input()
"""  # noqa: E501
    with listener:
        opts = ("-i", "--network", "nat", "--allow", f"10.88.0.1:{port}/udp")
        started("python3", "-c", code, image=image("debian"), opts=opts)
        assert listener.recv(100) == b"honest"


def test_published_ports(published):
    _, tcp, udp = published
    # The host's loopback is not the domain's.
    assert ask(tcp) == b"10.88.0.1 hello\n"
    line = b"x" * 500_000 + b"\n"
    assert ask(tcp, line) == b"10.88.0.1 " + line
    answers = []
    threads = [threading.Thread(target=lambda i=i: answers.append(ask(tcp, b"%d\n" % i))) for i in range(50)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(answers) == sorted(b"10.88.0.1 %d\n" % i for i in range(50))
    with socket.socket(type=socket.SOCK_DGRAM) as s:
        s.settimeout(60)
        for size in (0, 1, 1500, 65507):
            data = os.urandom(size)
            s.sendto(data, ("127.0.0.1", udp))
            assert s.recvfrom(65535) == (data[::-1], ("127.0.0.1", udp))


def test_a_service_that_dies_is_replaced(published):
    p, tcp, udp = published
    with socket.create_connection(("127.0.0.1", tcp), timeout=60) as old:
        old.sendall(b"before\n")
        assert old.recv(100) == b"10.88.0.1 before\n"
        [service] = below(p, "network-service")
        os.kill(service, signal.SIGKILL)
        try:
            assert old.recv(100) == b"", "the connection has ended"
        except ConnectionResetError:
            pass

    def answers():
        try:
            return ask(tcp) == b"10.88.0.1 hello\n"
        except ConnectionError:
            return False

    eventually(answers, "nobody answers")
    with socket.socket(type=socket.SOCK_DGRAM) as s:
        s.settimeout(1)

        def echoed():
            s.sendto(b"abc", ("127.0.0.1", udp))
            try:
                return s.recv(100) == b"cba"
            except TimeoutError:
                return False

        eventually(echoed, "no datagram comes back")
    assert p.poll() is None


SERVE = "hostname > /tmp/index.html; exec httpd -f -p 80 -h /tmp"


@pytest.fixture
def made(doppeld):
    """Makes domains on a network, which end with the test."""
    ids = []

    def make(name, kind, command="exec sleep 1000", network="paene-net", image="busybox", **more):
        # Names that the service does not know are refused at once, whatever name server this host has.
        wanted = {"kind": "nat", "dns": "127.0.0.1:1", "name": network, **more}
        body = {"image": image, "kind": kind, "name": name, "command": ["sh", "-c", command], "network": wanted}
        domain = doppeld.post("/v1/domains", body, start=True).ok()["domain"]
        ids.append(domain["id"])
        return domain

    yield make
    for i in ids:
        doppeld.delete(f"/v1/domains/{i}", force=True)


def fetch(d, name, host):
    p = d.cli("exec", name, "wget", "-q", "-O", "-", f"http://{host}/")
    return p.stdout.decode().strip() if p.returncode == 0 else None


def test_domains_of_both_kinds_find_each_other(doppeld, made):
    kinds = {"para": made("net-para", "para", SERVE), "paene": made("net-paene", "paene", SERVE)}
    made("net-paene-asks", "paene")
    made("net-elsewhere", "paene", network="paene-other")
    for asks in ("net-para", "net-paene-asks"):
        for kind, domain in kinds.items():
            name = domain["name"]
            if name == asks:
                continue
            for host in (name, f"{name}.paene-net", domain["network"]["ip4"], f"[{domain['network']['ip6']}]"):
                eventually(lambda: fetch(doppeld, asks, host) == name, f"{kind} at {host} from {asks}")
    for domain in kinds.values():
        for host in (domain["name"], domain["network"]["ip4"]):
            assert fetch(doppeld, "net-elsewhere", host) is None, host


def test_counters_and_rules_that_change(doppeld, made):
    server = made("net-server", "para", SERVE)
    made("net-counted", "paene")
    ip = server["network"]["ip4"]
    eventually(lambda: fetch(doppeld, "net-counted", ip) == "net-server", "no answer")
    counts = doppeld.get("/v1/domains/net-counted/stats").ok()["network"]
    assert counts["sent"]["flows"] >= 1 and counts["sent"]["bytes"] > 10 and counts["received"]["bytes"] > 10, counts
    text(doppeld.cli("update", "--deny", "any", "net-counted"))
    assert fetch(doppeld, "net-counted", ip) is None
    text(doppeld.cli("update", "--no-rules", "net-counted"))
    assert fetch(doppeld, "net-counted", ip) == "net-server"


def test_who_moves_the_packets_can_do_nothing_else(published):
    """The helper: its user owns nothing, it has no capabilities, a filter, and few descriptors."""
    p, tcp, _ = published
    assert ask(tcp) == b"10.88.0.1 hello\n"
    [helper] = below(p, "network")
    for task in os.listdir(f"/proc/{helper}/task"):
        status = dict(line.split(":\t", 1) for line in open(f"/proc/{helper}/task/{task}/status").read().splitlines())
        assert all(0x2000_0000 <= int(uid) < 0x6000_0000 for uid in status["Uid"].split())
        assert (status["CapEff"], status["CapPrm"], status["CapBnd"] != "", status["Groups"].strip()) == (
            "0" * 16,
            "0" * 16,
            True,
            "",
        )
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2"), task
    links = sorted(os.readlink(f"/proc/{helper}/fd/{fd}") for fd in os.listdir(f"/proc/{helper}/fd"))
    kinds = {link.split(":")[0].split(" ")[0] for link in links}
    assert kinds <= {"/dev/null", "/dev/net/tun", "anon_inode", "socket", "/memfd"}, links


LATE = """
import socket, sys
print("up", flush=True)
sys.stdin.readline()
s = socket.create_server(("", 7000))
print("listens", flush=True)
with s.accept()[0] as c:
    got = b""
    while data := c.recv(1000):
        got += data
    c.sendall(got[::-1])
"""


@pytest.mark.parametrize("ends_first", [False, True])
def test_who_calls_a_published_port_waits_until_somebody_listens(started, image, ends_first):
    """As in the backlog of the host: what he says before, even to the end, arrives."""
    port = free_port()
    opts = ("-i", "--network", "nat", "-p", f"127.0.0.1:{port}:7000")
    p = started("python3", "-c", LATE, image=image("debian"), opts=opts)
    assert p.stdout.readline() == b"up\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        s.sendall(b"early")
        if ends_first:
            s.shutdown(socket.SHUT_WR)
        s.settimeout(0.5)
        with pytest.raises(TimeoutError):
            s.recv(1)
        p.stdin.write(b"\n")
        p.stdin.flush()
        assert p.stdout.readline() == b"listens\n"
        s.settimeout(60)
        if not ends_first:
            s.shutdown(socket.SHUT_WR)
        assert s.makefile("rb").read() == b"ylrae"


def test_waiting_callers_are_bounded_and_do_no_harm(started, image):
    port, other = free_port(), free_port()
    opts = ("-i", "--network", "nat", "-p", f"127.0.0.1:{port}:7000", "-p", f"127.0.0.1:{other}:7001")
    code = (
        "import socket, threading\ns = socket.create_server(('', 7001))\nprint('ready', flush=True)\nwhile True:\n  "
        "  with s.accept()[0] as c: c.sendall(b'here')"
    )
    p = started("python3", "-c", code, image=image("debian"), opts=opts)
    assert p.stdout.readline() == b"ready\n"
    all, at_once = [], 0
    for _ in range(200):
        try:
            all.append(socket.create_connection(("127.0.0.1", port), timeout=60))
            all[-1].settimeout(0.01)
        except ConnectionResetError:
            at_once += 1
    with socket.create_connection(("127.0.0.1", other), timeout=60) as s:
        assert s.recv(100) == b"here"

    def ended(s):
        try:
            return s.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionResetError:
            return True

    eventually(lambda: at_once + sum(map(ended, all)) >= 200 - 128, "those beyond the bound are reset")
    assert at_once + sum(map(ended, all)) <= 200 - 128 + 20
    for s in all:
        s.close()


def test_another_domain_is_refused_where_nobody_listens(doppeld, made):
    ip = made("net-mute", "paene")["network"]["ip4"]
    made("net-asks-para", "para")
    made("net-asks-paene", "paene")
    for name in ("net-asks-para", "net-asks-paene"):
        p = doppeld.cli("exec", name, "wget", "-O", "-", f"http://{ip}/")
        assert p.returncode != 0 and b"Connection refused" in p.stderr, (name, p.stderr)


def test_echoes(doppeld, made, image):
    """By sockets that need no privilege, as in para domains, and by raw ones; refusals where they are told."""
    ping = beside(HERE.parent / "domain/test_echo.py")
    ask = lambda *to, opts=(): python(ping.PING.replace("sys.argv[1:]", repr(to)), image, *opts)
    assert (
        ask(*ping.ROUTER, "127.0.0.1", "::1") == '["answers", "answers", "answers", "answers", "answers", "answers"]\n'
    )
    assert ask() == '["answers"]\n'
    assert (
        text(
            run(
                "python3", "-c", ping.PING.replace("sys.argv[1:]", "['127.0.0.1']"), image="debian", opts=["-u", "1000"]
            )
        )
        == '["answers"]\n'
    )
    raw = """
import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
s.settimeout(60)
body = struct.pack(">BBHHH", 8, 0, 0, 4711, 1) + b"x" * 1000
words = sum(struct.unpack(">504H", body))
while words >> 16:
    words = (words & 0xffff) + (words >> 16)
s.sendto(body[:2] + struct.pack(">H", ~words & 0xffff) + body[4:], ("10.88.0.1", 0))
m = s.recv(2000)
print(m[20], struct.unpack(">H", m[24:26])[0], m[28:] == b"x" * 1000)
"""
    assert python(raw, image) == "0 4711 True\n"
    refused = """
import errno, socket, struct
for to in ("192.168.250.250", "10.88.255.254", "10.88.0.1"):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
    s.settimeout(60)
    s.connect((to, 0))
    s.setsockopt(socket.IPPROTO_IP, 11, 1)  # IP_RECVERR, as ping has it
    s.send(struct.pack(">BBHHH", 8, 0, 0, 0, 1) + b"hello")
    try:
        print(len(s.recv(100)))
    except OSError as e:
        print(errno.errorcode[e.errno])
"""
    assert python(refused, image, "--deny", "10.88.0.1/icmp").split() == ["EHOSTUNREACH"] * 3
    other = made("net-echoes", "para")["network"]
    asks = made("net-asks-echo", "paene", image="debian")
    code = ping.PING.replace("sys.argv[1:]", repr([other["ip4"], other["ip6"]]))
    assert text(doppeld.cli("exec", asks["name"], "python3", "-c", code)) == '["answers", "answers"]\n'


ALL_OF_IT = """
import socket
s = socket.create_server(("", 7000))
print("listens", flush=True)
while True:
    with s.accept()[0] as c:
        while c.recv(1000):
            pass
        c.sendall(b"a" * 3_000_000)
"""


@pytest.mark.parametrize("ends_first", [True, False])
def test_what_was_sent_before_the_end_arrives(started, image, ends_first):
    """Also if who called has ended its side, and reads later than the program ends its own."""
    port = free_port()
    opts = ("--network", "nat", "-p", f"127.0.0.1:{port}:7000")
    server = ALL_OF_IT if ends_first else ALL_OF_IT.replace("while c.recv(1000)", "if c.recv(1000)")
    p = started("python3", "-c", server, image=image("debian"), opts=opts)
    assert p.stdout.readline() == b"listens\n"
    for _ in range(20):
        with socket.socket() as s:
            # Most of it must wait in the domain.
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.settimeout(60)
            s.connect(("127.0.0.1", port))
            s.sendall(b"question")
            if ends_first:
                s.shutdown(socket.SHUT_WR)
            time.sleep(0.1)
            assert len(s.makefile("rb").read()) == 3_000_000
