"""Ports published at addresses of IPv6."""
import json
import socket

import pytest
from conftest import free_port

SERVER = """
import json, socket, sys, threading
family = socket.AF_INET6 if sys.argv[1] == "6" else socket.AF_INET
tcp, udp = socket.socket(family), socket.socket(family, socket.SOCK_DGRAM)
for s in (tcp, udp):
    s.bind(("", 7000))
tcp.listen()
print("ready", flush=True)
def datagrams():
    while True:
        data, peer = udp.recvfrom(100)
        udp.sendto(json.dumps([data.decode(), peer[0]]).encode(), peer)
threading.Thread(target=datagrams, daemon=True).start()
while True:
    c, peer = tcp.accept()
    c.sendall(json.dumps([c.recv(100).decode(), peer[0]]).encode())
    c.close()
"""


@pytest.fixture
def loopback6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this host has no ::1")


def ask(kind, family, to):
    with socket.socket(family, kind) as s:
        s.settimeout(60)
        s.connect(to)
        s.sendall(b"hello")
        return json.loads(s.recv(1000))


@pytest.mark.parametrize("family", ["4", "6"])
def test_ports_at_addresses_of_ipv6(domain, loopback6, family):
    """At ::1 and all of IPv6's, beside the same port of IPv4's; whether the server knows IPv6 or not."""
    port, both = free_port(), free_port()
    ports = [f"[::1]:{port}:7000", f"[::]:{both}:7000", f"0.0.0.0:{both}:7000", f"[::1]:{port}:7000/udp"]
    opts = [word for p in ports for word in ("-p", p)]
    p = domain.start("python3", "-c", SERVER, family, opts=("--network", "nat", *opts))
    assert p.stdout.readline() == b"ready\n"
    of_host = {"4": "10.88.0.1", "6": "::1"}[family]
    for at in (port, both):
        assert ask(socket.SOCK_STREAM, socket.AF_INET6, ("::1", at)) == ["hello", of_host]
    seen = {"4": "127.0.0.1", "6": "::ffff:127.0.0.1"}[family]
    assert ask(socket.SOCK_STREAM, socket.AF_INET, ("127.0.0.1", both)) == ["hello", seen]
    if family == "6":
        assert ask(socket.SOCK_DGRAM, socket.AF_INET6, ("::1", port)) == ["hello", "fd88:d0bb:e1::1"]
    p.kill()
    p.wait()
