"""Addresses of the host itself that look public: domains reach them by a rule that names them only, as its loopback.

The host is a network namespace of the test's own, with public addresses on a device of its own, and another one is a
machine beside it, which has what the host does not. The services of both listen at all of their addresses.
"""

import json
import os
import subprocess
import time

import pytest
from conftest import DOPPEL

FIRST = ["93.184.216.14", "2606:2800:21f::1"]
# Between both machines: the host's and the other one's; and what the other one has whether the host has it or not.
LINK = ["93.184.215.1/24", "2606:2800:220::1/64"], ["93.184.215.2/24", "2606:2800:220::2/64"]
BOTH = ["93.184.215.15", "2606:2800:220::15"]
PORT = 9999

# Listens at all addresses of its machine for TCP, and at each that it is told for UDP, so that answers come from there.
SERVER = r"""
import selectors, socket, sys
port, all = int(sys.argv[1]), selectors.DefaultSelector()
for at in ["::", *sys.argv[2:]]:
    s = socket.socket(socket.AF_INET6 if ":" in at else socket.AF_INET, socket.SOCK_STREAM if at == "::" else socket.SOCK_DGRAM)
    if at == "::":
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.bind((at, port))
    if at == "::":
        s.listen()
    all.register(s, selectors.EVENT_READ, at)
print("ready", flush=True)
while True:
    for key, _ in all.select():
        if key.data == "::":
            key.fileobj.accept()[0].close()
        else:
            key.fileobj.sendto(b"here", key.fileobj.recvfrom(100)[1])
"""  # noqa: E501

# What becomes of TCP, UDP and an echo to each address of a line; a line of answers for each.
CLIENT = r"""
import json, socket, struct, sys
def reach(kind, to, port):
    family = socket.AF_INET6 if ":" in to else socket.AF_INET
    protocol = {"tcp": 0, "udp": 0, "echo": 58 if ":" in to else 1}[kind]
    s = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM, protocol)
    s.settimeout(60)
    try:
        s.connect((to, port))
        if kind == "tcp":
            return "reached"
        s.send(b"hello" if kind == "udp" else struct.pack(">BBHHH", 128 if ":" in to else 8, 0, 0, 0, 1))
        s.recv(100)
        return "reached"
    except OSError as e:
        return type(e).__name__ if e.errno is None else socket.errno.errorcode[e.errno]
for line in sys.stdin:
    port, kinds, *to = line.split()
    print(json.dumps([[reach(k, t, int(port)) for k in kinds.split(",")] for t in to]), flush=True)
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=60)


def have(tool):
    return subprocess.run(["which", tool], capture_output=True).returncode == 0


class Machine:
    """A network namespace with a server."""

    def __init__(self, name):
        self.name, self.started = name, []
        ip("netns", "add", name)

    def ip(self, *words):
        ip("-n", self.name, *words)

    def start(self, *argv):
        p = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{self.name}", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.started.append(p)
        return p

    def address(self, verb, device, *addresses):
        for a in addresses:
            at_once = ["nodad"] if ":" in a and verb == "add" else []
            self.ip("address", verb, a, "dev", device, *at_once)

    def serve(self, addresses):
        assert self.start("python3", "-c", SERVER, str(PORT), *addresses).stdout.readline() == "ready\n"

    def close(self):
        for p in self.started:
            p.kill()
            p.wait(60)
        ip("netns", "delete", self.name)


@pytest.fixture
def host():
    """A host with public addresses, beside another machine."""
    if os.geteuid() != 0 or not have("ip") or not have("nsenter"):
        pytest.skip("a network namespace needs root and iproute2")
    machines = []
    try:
        for n in range(2):
            machines.append(Machine(f"doppel-test-{os.getpid()}-{n}"))
        ours, theirs = machines
        assert ours.start("sysctl", "-qw", "net.ipv4.ping_group_range=0 2147483647").wait(60) == 0
        ours.ip("link", "add", "side", "type", "veth", "peer", "name", "side", "netns", theirs.name)
        for m, addresses in zip(machines, LINK):
            m.ip("link", "set", "lo", "up")
            m.ip("link", "set", "side", "up")
            m.address("add", "side", *addresses)
        theirs.address("add", "side", *BOTH)
        ours.address("add", "lo", *FIRST)
        for m, addresses in zip(machines, (FIRST, BOTH)):
            m.serve(addresses)
        yield ours
    finally:
        for m in machines:
            m.close()


class Domain:
    def __init__(self, host, *opts, image="debian"):
        argv = [DOPPEL, "run", "--standalone", "-i", "--network", "nat", *opts, image, "--", "python3", "-uc", CLIENT]
        self.process = host.start(*argv)

    def reach(self, *to, kinds="tcp,udp,echo"):
        print(PORT, kinds, *to, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_public_addresses_of_the_host_are_reached_by_a_rule_only(host, kind):
    opts = ("--kind", kind)
    # A paene domain's own kernel asks a router, which says no in its own way, and loses datagrams.
    kinds = "tcp,udp,echo" if kind == "para" else "tcp,echo"
    plain = Domain(host, *opts).reach(*FIRST, kinds=kinds)
    # A rule without an address opens nothing.
    allows_any = Domain(host, *opts, "--allow", "any").reach(*FIRST, kinds=kinds)
    assert (
        plain
        == allows_any
        == [["EACCES" if kind == "para" else "EHOSTUNREACH"] * len(plain[0]), ["EACCES"] * len(plain[1])]
    )
    assert Domain(host, *opts, *(x for a in FIRST for x in ("--allow", a))).reach(*FIRST) == [["reached"] * 3] * 2


def test_addresses_come_and_go_while_a_domain_runs(host):
    domain = Domain(host)
    refused, reached = [["EACCES"] * 3] * 2, [["reached"] * 3] * 2

    def becomes(expected):
        deadline = time.monotonic() + 60
        while domain.reach(*BOTH) != expected:
            assert time.monotonic() < deadline

    assert domain.reach(*FIRST) == refused and domain.reach(*BOTH) == reached
    for _ in range(3):
        host.address("add", "lo", *BOTH)
        becomes(refused)
        host.address("del", "lo", *(f"{a}/{128 if ':' in a else 32}" for a in BOTH))
        becomes(reached)
    assert domain.reach(*FIRST) == refused
