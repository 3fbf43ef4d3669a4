"""UDP to and from outside a domain: what programs see of sockets, published ports, and a service that dies."""
import os
import signal
import socket
import threading

import pytest
from conftest import descendants
from processes import words

SERVER = r"""
import socket
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(("", 53))
print("ready", flush=True)
while True:
    data, peer = u.recvfrom(70000)
    u.sendto(b"echo " + data, peer)
"""


def datagram_socket():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 0))
    return s, s.getsockname()[1]


def free_port():
    s, port = datagram_socket()
    s.close()
    return port


@pytest.fixture(scope="module")
def echo():
    """The port of a server of the host that answers in capitals; after `twice` it answers two times."""
    s, port = datagram_socket()

    def serve():
        while True:
            data, peer = s.recvfrom(70000)
            if data == b"end":
                return
            for _ in range(2 if data == b"twice" else 1):
                s.sendto(data.upper(), peer)

    t = threading.Thread(target=serve)
    t.start()
    yield port
    s.sendto(b"end", ("127.0.0.1", port))
    t.join()
    s.close()


CLIENT = r"""
import errno, os, select, socket, struct, sys, time
port, closed = int(sys.argv[1]), int(sys.argv[2])
host = ("10.88.0.1", port)
def udp():
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.settimeout(60)
    return u
def refused(f, number):
    try:
        f()
    except OSError as e:
        assert e.errno == number, (e, number)
    else:
        raise AssertionError("no error")

u = udp()
u.sendto(b"hello", host)
assert u.getsockname()[0] == "0.0.0.0" and u.getsockname()[1] != 0
assert u.recvfrom(100) == (b"HELLO", host)
refused(u.getpeername, errno.ENOTCONN)

# Peeking, cutting off, not waiting.
u.sendto(b"abcdef", host)
assert u.recvfrom(3, socket.MSG_PEEK) == (b"ABC", host)
data, _, flags, peer = u.recvmsg(4)
assert (data, flags & socket.MSG_TRUNC != 0, peer) == (b"ABCD", True, host)
u.setblocking(False)
refused(lambda: u.recv(10), errno.EAGAIN)
refused(lambda: u.recv(10, socket.MSG_DONTWAIT), errno.EAGAIN)
u.setblocking(True)
u.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 20000))
refused(lambda: u.recv(10), errno.EAGAIN)

# An empty one is one too.
e = udp()
e.sendto(b"", host)
assert e.recvfrom(10) == (b"", host)

# Connected: names, large ones, several parts.
c = udp()
c.connect(host)
assert c.getpeername() == host and c.getsockname()[0] == socket.gethostbyname(socket.gethostname())
c.send(b"x" * 65507)
assert c.recv(70000) == b"X" * 65507
refused(lambda: c.send(b"x" * 65508), errno.EMSGSIZE)
c.sendmsg([b"one ", b"two"])
first, second = bytearray(4), bytearray(10)
n, *_ = c.recvmsg_into([first, second])
assert (n, first, second[:3]) == (7, b"ONE ", b"TWO")

# Waiting with poll, and with edges.
p = select.poll()
p.register(c, select.POLLIN | select.POLLOUT)
assert p.poll(0) == [(c.fileno(), select.POLLOUT)]
ep = select.epoll()
ep.register(c, select.EPOLLIN | select.EPOLLET)
for _ in range(3):
    c.send(b"twice")
    got = 0
    while got < 2:
        assert ep.poll(60) == [(c.fileno(), select.EPOLLIN)]
        c.setblocking(False)
        try:
            while c.recv(10):
                got += 1
        except BlockingIOError:
            pass
        c.setblocking(True)

# A fork shares the socket.
if os.fork() == 0:
    c.send(b"child")
    os._exit(0)
os.wait()
c.settimeout(60)
assert c.recv(10) == b"CHILD"

# Nobody there: told to who is connected, at the next call.
d = udp()
d.connect(("10.88.0.1", closed))
d.send(b"anybody?")
refused(lambda: d.recv(10), errno.ECONNREFUSED)
d.connect(host)
d.send(b"again")
assert d.recv(10) == b"AGAIN"

# Not allowed.
refused(lambda: d.connect(("192.168.1.1", 53)), errno.EACCES)
u.sendto(b"dropped", ("192.168.1.1", 53))
l = udp()
l.bind(("127.0.0.1", 0))
refused(lambda: l.sendto(b"x", host), errno.EINVAL)
print("fine")
"""


def test_what_programs_see(domain, echo):
    closed = free_port()
    opts = ("--network", "nat", "--allow", f"10.88.0.1:{echo}", "--allow", f"10.88.0.1:{closed}")
    out = domain.run("python3", "-c", CLIENT, str(echo), str(closed), opts=opts, timeout=120).ok()
    assert out == "fine\n"


def test_without_a_network_there_is_none(domain):
    code = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))"
    r = domain.run("python3", "-c", code)
    assert r.code == 1 and "Network is unreachable" in r.err


@pytest.fixture
def published(domain):
    """A server in a domain, and the host's port that leads to it."""
    port = free_port()
    p = domain.start("python3", "-c", SERVER, opts=("--network", "nat", "-p", f"127.0.0.1:{port}:53/udp"))
    assert p.stdout.readline() == b"ready\n"
    yield p, port
    p.kill()
    p.wait()


def ask(port, data, tries=1):
    """The answer to a datagram, which is sent again when none comes: some get lost while a service is replaced."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("127.0.0.1", port))
        s.settimeout(60 / tries)
        for _ in range(tries):
            s.send(data)
            try:
                return s.recv(70000)
            except TimeoutError:
                continue
    raise TimeoutError("no answer")


def test_a_published_port(published):
    _, port = published
    assert ask(port, b"hello") == b"echo hello"
    assert ask(port, b"x" * 60_000) == b"echo " + b"x" * 60_000


def test_a_service_that_dies_is_replaced(published):
    p, port = published
    for i in range(5):
        assert ask(port, b"%d" % i, tries=60) == b"echo %d" % i
        service = [d for d in descendants(p.pid) if b"network-service" in words(d)]
        os.kill(service[0], signal.SIGKILL)
    assert ask(port, b"last", tries=60) == b"echo last"
    assert p.poll() is None
