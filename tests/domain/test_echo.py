"""ICMP echo of domains, by programs without privilege: the loopback, the virtual router, and rules (services/net has
the rest)."""

import json

# Asks each address for two echoes by one socket; writes down who answered, or why not.
PING = r"""
import json, socket, struct, sys
def ping(to):
    v6 = ":" in to
    s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM, 58 if v6 else 1)
    s.settimeout(60)
    try:
        for seq in (1, 2):
            s.sendto(struct.pack(">BBHHH", 128 if v6 else 8, 0, 0, 0, seq) + b"hello", (to, 0))
            m, peer = s.recvfrom(100)
            kind, code, _, id, got = struct.unpack(">BBHHH", m[:8])
            assert (kind, code, got, m[8:]) == (129 if v6 else 0, 0, seq, b"hello"), m
            assert id == s.getsockname()[1] and peer[:2] == (to, 0), (id, peer)
        return "answers"
    except OSError as e:
        return type(e).__name__ if e.errno is None else socket.errno.errorcode[e.errno]
print(json.dumps([ping(to) for to in sys.argv[1:] or [socket.gethostbyname(socket.gethostname())]]))
"""
ROUTER = ["10.88.0.1", "10.88.0.2", "fd88:d0bb:e1::1", "fd88:d0bb:e1::2"]


def ping(domain, *to, opts=("--network", "nat")):
    return json.loads(domain.run("python3", "-c", PING, *to, opts=opts).ok())


def test_without_a_network_there_is_the_loopback(domain):
    assert ping(domain, "127.0.0.1", "127.1.2.3", "::1", "10.88.0.1", opts=()) == ["answers"] * 3 + ["ENETUNREACH"]
    assert domain.run("cat", "/proc/sys/net/ipv4/ping_group_range").ok().split() == ["0", "2147483647"]


def test_the_router_and_the_own_address_answer(domain):
    assert ping(domain, *ROUTER) == ["answers"] * 4
    assert ping(domain) == ["answers"]


def test_rules(domain):
    # By no rule, private addresses outside; and one that nobody has.
    assert ping(domain, "192.168.250.250", "169.254.169.254", "10.88.255.254") == ["EACCES", "EACCES", "EHOSTUNREACH"]
    deny = ("--network", "nat", "--deny", "10.88.0.1/icmp", "--deny", "any/udp")
    assert ping(domain, "10.88.0.1", "10.88.0.2", opts=deny) == ["EACCES", "answers"]
