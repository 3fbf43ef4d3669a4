"""Options that programs set of sockets to outside: the host's sockets have them as a native program's own would.

A program that sets them runs natively first. What its sockets have then, read through copies of its descriptors, is
what those of the network service must have when it runs in a domain.
"""
import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import time

import pytest
from conftest import descendants, free_port
from processes import words

TCP, IP, SOCKET = socket.IPPROTO_TCP, socket.IPPROTO_IP, socket.SOL_SOCKET
MAXSEG, KEEPIDLE, KEEPINTVL, KEEPCNT, SYNCNT, LINGER2, DEFER_ACCEPT, WINDOW_CLAMP = 2, 4, 5, 6, 7, 8, 9, 10
TCP_INFO, CONGESTION, USER_TIMEOUT, FASTOPEN, NOTSENT_LOWAT = 11, 13, 18, 23, 25
NODELAY, PRIORITY, MTU_DISCOVER, IP_MTU, RECVERR = 1, 12, 10, 14, 11
# struct tcp_info: where it has the largest segment, bytes acknowledged and bytes received.
SND_MSS, BYTES_ACKED, BYTES_RECEIVED = 16, 120, 128

SET = {
    "nodelay": (TCP, NODELAY, 1),
    "maxseg": (TCP, MAXSEG, 1000),
    "keepidle": (TCP, KEEPIDLE, 33),
    "keepintvl": (TCP, KEEPINTVL, 11),
    "keepcnt": (TCP, KEEPCNT, 5),
    "syncnt": (TCP, SYNCNT, 3),
    "linger2": (TCP, LINGER2, 20),
    "window_clamp": (TCP, WINDOW_CLAMP, 40_000),
    "user_timeout": (TCP, USER_TIMEOUT, 5000),
    "notsent_lowat": (TCP, NOTSENT_LOWAT, 12_345),
    "keepalive": (SOCKET, socket.SO_KEEPALIVE, 1),
    "sndbuf": (SOCKET, socket.SO_SNDBUF, 40_000),
    "rcvbuf": (SOCKET, socket.SO_RCVBUF, 50_000),
    "tos": (IP, socket.IP_TOS, 0x10),
    "priority": (SOCKET, PRIORITY, 4),
    "ttl": (IP, socket.IP_TTL, 33),
    "mtu_discover": (IP, MTU_DISCOVER, 3),
}
OF_LISTENERS = {"defer_accept": (TCP, DEFER_ACCEPT, 7), "fastopen": (TCP, FASTOPEN, 5)}

LIBC = ctypes.CDLL(None, use_errno=True)
PIDFD_GETFD = 438


def sockets_of(pid):
    """Copies of a process' sockets."""
    process = os.pidfd_open(pid)
    try:
        for number in os.listdir(f"/proc/{pid}/fd"):
            try:
                if not os.readlink(f"/proc/{pid}/fd/{number}").startswith("socket:"):
                    continue
            except OSError:
                continue
            copy = LIBC.syscall(PIDFD_GETFD, process, int(number), 0)
            if copy >= 0:
                yield socket.socket(fileno=copy)
    finally:
        os.close(process)


def addresses(s):
    try:
        return s.getsockname(), s.getpeername()
    except OSError:
        return s.getsockname(), None


def found(pid, own, peer=None, kind=socket.SOCK_STREAM):
    """The process' socket with this address, and peer."""
    for s in sockets_of(pid):
        if s.family == socket.AF_INET and s.type == kind and addresses(s) == (own, peer):
            return s
        s.close()
    return None


def soon(check):
    """What a check gives that holds at last."""
    end = time.monotonic() + 30
    while not (got := check()):
        assert time.monotonic() < end, "it never holds"
        time.sleep(0.01)
    return got


def values(s, names):
    got = {name: s.getsockopt(*(SET | OF_LISTENERS)[name][:2]) for name in names}
    return got | {"congestion": s.getsockopt(TCP, CONGESTION, 16).rstrip(b"\0").decode()}


def service_of(p):
    """The network service of a command; the next one if it was killed."""
    find = lambda: [d for d in descendants(p.pid) if b"network-service" in words(d)]
    [service] = soon(find)
    return service


def start(domain, code, *args, opts=()):
    """The program natively, and in a domain; with each whose sockets are the host's."""
    argv = ["-c", code, *map(str, args)]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    if domain is None:
        p = subprocess.Popen(["python3", *argv], **streams)
        return p, lambda: p.pid
    p = domain.start("python3", *argv, opts=("--network", "nat", *opts))
    return p, lambda: service_of(p)


def end(p):
    p.stdin.close()
    p.stdout.close()
    p.kill()
    p.wait()


CLIENT = """
import json, socket, sys
late, port = sys.argv[1] == "late", int(sys.argv[3])
s = socket.socket()
def set_all():
    for level, name, value in json.loads(sys.argv[4]):
        s.setsockopt(level, name, value)
    s.setsockopt(socket.IPPROTO_TCP, 13, b"reno")
if not late:
    set_all()
s.connect((sys.argv[2], port))
if late:
    set_all()
s.sendall(b"x" * 100_000)
print("set", flush=True)
sys.stdin.readline()
print(s.getsockopt(socket.IPPROTO_TCP, 11, 256).hex(), s.getsockopt(socket.IPPROTO_TCP, 2),
      s.getsockopt(socket.IPPROTO_IP, 14), flush=True)
sys.stdin.readline()
"""
# Too late once there is a connection: not taken, or of no use.
EARLY = {"maxseg"}


def connection(domain, when):
    """What the host's socket of a client has, and what the client says of it."""
    names = [n for n in SET if when == "early" or n not in EARLY]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        where = "127.0.0.1" if domain is None else "10.88.0.1"
        p, whose = start(
            domain,
            CLIENT,
            when,
            where,
            port,
            json.dumps([SET[n] for n in names]),
            opts=("--allow", f"10.88.0.1:{port}"),
        )
        peer, client = server.accept()
        with peer:
            assert p.stdout.readline() == b"set\n"
            left = 100_000
            while left:
                left -= len(peer.recv(65536))
            peer.sendall(b"answer")
            with found(whose(), client, peer.getsockname()) as s:
                got = soon(lambda: (v := values(s, names))["congestion"] == "reno" and v)
                info = lambda: s.getsockopt(TCP, TCP_INFO, 256)
                soon(lambda: struct.unpack_from("Q", info(), BYTES_ACKED)[0] >= 100_000)
                soon(lambda: struct.unpack_from("Q", info(), BYTES_RECEIVED)[0] == 6)
                p.stdin.write(b"\n")
                p.stdin.flush()
                said, mss, mtu = p.stdout.readline().split()
                assert int(mss) == s.getsockopt(TCP, MAXSEG) == struct.unpack_from("I", info(), SND_MSS)[0]
                assert int(mtu) == s.getsockopt(IP, IP_MTU)
                said, host = bytes.fromhex(said.decode()), info()
                assert len(said) == len(host), "all of struct tcp_info"
                for at, kind in [(SND_MSS, "I"), (BYTES_ACKED, "Q"), (BYTES_RECEIVED, "Q")]:
                    assert struct.unpack_from(kind, said, at) == struct.unpack_from(kind, host, at)
        end(p)
        return got


@pytest.mark.parametrize("when", ["early", "late"])
def test_options_of_connections_reach_the_host(domain, when):
    """Set before connect, or after it."""
    natively = connection(None, when)
    assert natively["congestion"] == "reno" and natively["keepidle"] == 33 and natively["rcvbuf"] == 100_000
    assert connection(domain, when) == natively


SERVER = """
import json, socket, sys
def listener(options):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for level, name, value in options:
        s.setsockopt(level, name, value)
    if options:
        s.setsockopt(socket.IPPROTO_TCP, 13, b"reno")
    s.bind((sys.argv[1], int(sys.argv[2])))
    s.listen()
    return s
s = listener(json.loads(sys.argv[3]))
print("listens", flush=True)
while True:
    c, _ = s.accept()
    print("accepted", flush=True)
    if c.recv(1) == b"a":
        s.close()
        s = listener([])
        print("anew", flush=True)
"""
# The host's listening socket has what matters before a connection is accepted.
BEFORE = ["maxseg", "rcvbuf", *OF_LISTENERS]


def listening(domain):
    """What the listening socket and a connection have, first and after the listener was made anew without options."""
    port = free_port()
    where = "127.0.0.1" if domain is None else "0.0.0.0"
    options = json.dumps([*SET.values(), *OF_LISTENERS.values()])
    p, whose = start(domain, SERVER, where, port, options, opts=("-p", f"127.0.0.1:{port}:{port}"))
    assert p.stdout.readline() == b"listens\n"
    here = ("127.0.0.1", port)

    def wanted(**what):
        s = found(whose(), here)
        if s is None:
            return None
        with s:
            got = values(s, BEFORE)
        return got if got["defer_accept"] == what["defer"] else None

    first = soon(lambda: wanted(defer=7))
    with socket.create_connection(here) as c:
        c.sendall(b"x")
        assert p.stdout.readline() == b"accepted\n"
        with found(whose(), here, c.getsockname()) as s:
            of_connection = values(s, SET)
        if domain is not None:
            # Another service is told of all.
            os.kill(whose(), signal.SIGKILL)
            assert soon(lambda: wanted(defer=7)) == first
    with socket.create_connection(here) as c:
        c.sendall(b"a")
        while p.stdout.readline() != b"anew\n":
            pass
        second = soon(lambda: wanted(defer=0))
    end(p)
    drop = ("rcvbuf", "congestion")
    return [{k: v for k, v in d.items() if k not in drop or d is of_connection} for d in (first, of_connection, second)]


def test_options_of_listeners_reach_the_host(domain):
    natively = listening(None)
    assert natively[0]["fastopen"] == 5 and natively[1]["keepidle"] == 33 and natively[1]["congestion"] == "reno"
    assert listening(domain) == natively


def test_the_hosts_algorithms_are_offered(domain):
    out = domain.run("cat", "/proc/sys/net/ipv4/tcp_allowed_congestion_control", opts=("--network", "nat")).ok()
    host = open("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read()
    default = open("/proc/sys/net/ipv4/tcp_congestion_control").read().strip()
    assert set(out.split()) == {*host.split(), default} and out.split()[0] == default
    code = "import socket; socket.socket().setsockopt(socket.IPPROTO_TCP, 13, b'nosuch')"
    assert "FileNotFoundError" in domain.run("python3", "-c", code, opts=("--network", "nat")).err


DATAGRAMS = """
import select, socket, sys
to = (sys.argv[1], int(sys.argv[2]))
for connected in (False, True):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IP, 11, 1)
    if connected:
        s.connect(to)
    s.sendto(b"hello", to) if not connected else s.send(b"hello")
    p = select.poll()
    p.register(s, 0)
    assert p.poll(20_000) and p.poll()[0][1] & select.POLLERR
    text, control, flags, of = s.recvmsg(100, 200, socket.MSG_ERRQUEUE)
    [(level, kind, data)] = control
    print(text, level, kind, data[:16].hex(), flags, of == to, socket.inet_ntoa(data[20:24]) == to[0])
    print(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), p.poll(0))
    try:
        s.recvmsg(100, 200, socket.MSG_ERRQUEUE)
    except BlockingIOError:
        print("no other")
    print(s.getsockopt(socket.IPPROTO_IP, 14) if connected else "-")
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 30_000)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
    s.setsockopt(socket.IPPROTO_IP, 10, 3)
    if connected:
        live = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.connect((sys.argv[1], int(sys.argv[3])))
        s.send(b"here")
print("done", flush=True)
sys.stdin.readline()
"""


def datagrams(domain):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, socket.socket(
        socket.AF_INET, socket.SOCK_DGRAM
    ) as gone:
        for s in (server, gone):
            s.bind(("127.0.0.1", 0))
        nobody = gone.getsockname()[1]
        gone.close()
        where = "127.0.0.1" if domain is None else "10.88.0.1"
        p, whose = start(domain, DATAGRAMS, where, nobody, server.getsockname()[1], opts=("--allow", "10.88.0.1"))
        lines = []
        while (line := p.stdout.readline()) != b"done\n":
            assert line, lines
            lines.append(line)
        text, client = server.recvfrom(100)
        assert text == b"here"
        with found(whose(), client, server.getsockname(), socket.SOCK_DGRAM) as s:
            kept = [
                s.getsockopt(SOCKET, socket.SO_RCVBUF),
                s.getsockopt(SOCKET, socket.SO_SNDBUF),
                s.getsockopt(IP, MTU_DISCOVER),
                s.getsockopt(IP, RECVERR),
            ]
        end(p)
        return lines, kept


def test_errors_and_options_of_datagrams(domain):
    """ICMP errors come by MSG_ERRQUEUE, whether the socket has a peer or not."""
    natively = datagrams(None)
    assert natively[1] == [60_000, 40_000, 3, 1]
    assert datagrams(domain) == natively
