"""Interfaces, addresses and routes of a domain with a network, as programs show them."""
import json
import re
import uuid

import pytest
from conftest import DOPPEL, call
from images import need_image

PYTHON = """
import fcntl, socket, struct
s = socket.socket()
def ask(name, what, at, form):
    return struct.unpack_from(form, fcntl.ioctl(s, what, struct.pack("40s", name.encode())), at)
for _, name in socket.if_nameindex():
    flags, = ask(name, 0x8913, 16, "H")
    ip, = ask(name, 0x8915, 20, "4s")
    mask, = ask(name, 0x891b, 20, "4s")
    mac, = ask(name, 0x8927, 18, "6s")
    print(name, hex(flags), socket.inet_ntoa(ip), socket.inet_ntoa(mask), mac.hex(":"), ask(name, 0x8921, 16, "i")[0])
"""
NODE = "console.log(JSON.stringify(require('os').networkInterfaces()))"


class Networked:
    """A domain with a network, in which programs are started."""

    def __init__(self, image):
        self.name = "interfaces-" + uuid.uuid4().hex[:10]
        self.image = image

    def run(self, *argv):
        return call([DOPPEL, "run", "--rm", "--network", "nat", self.image, "--", *argv], b"", 60).ok()


def own(text):
    """A domain's IPv4 and IPv6 address in a text, and its hardware address."""
    ip4 = re.search(r"\b10\.88\.(\d+)\.(\d+)\b", text)
    a, b = int(ip4[1]), int(ip4[2])
    return ip4[0], f"fd88:d0bb:e1::{(a << 8 | b):x}", f"02:42:0a:58:{a:02x}:{b:02x}"


@pytest.mark.parametrize("image", ["servers", "busybox"])
def test_ip(doppel, image):
    if image == "servers":
        need_image(image)
    ip = ["ip"] if image == "servers" else ["busybox", "ip"]
    domain = Networked(image)
    out = domain.run("sh", "-c", "; ".join(" ".join([*ip, *what.split()]) for what in (
        "addr show eth0", "route", "-6 route", "route get 192.0.2.1", "link show lo", "rule", "neigh")))
    ip4, ip6, mac = own(re.search(r"inet (\S+)/16", out)[1])
    for line in (f"link/ether {mac} brd ff:ff:ff:ff:ff:ff", f"inet {ip4}/16 brd 10.88.255.255 scope global eth0",
                 f"inet6 {ip6}/48 scope global", "default via 10.88.0.1 dev eth0", "10.88.0.0/16 dev eth0",
                 "fd88:d0bb:e1::/48 dev eth0", "default via fd88:d0bb:e1::1 dev eth0",
                 "192.0.2.1 via 10.88.0.1 dev eth0", f"src {ip4}", "<LOOPBACK,UP,LOWER_UP> mtu 65536",
                 "<BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500", "from all lookup main"):
        assert line in out, f"{line!r} is not in\n{out}"


def test_busybox_ifconfig_and_route(doppel):
    out = Networked("busybox").run("sh", "-c", "ifconfig; route -n")
    _ip4, ip6, mac = own(re.search(r"addr:(10\S+)", out)[1])
    assert f"HWaddr {mac.upper()}" in out and f"inet6 addr: {ip6}/48 Scope:Global" in out, out
    assert re.search(r"^0\.0\.0\.0 +10\.88\.0\.1 +0\.0\.0\.0 +UG .* eth0$", out, re.M), out


def test_python(domain):
    lo, eth0 = domain.run("python3", "-c", PYTHON, opts=("--network", "nat")).ok().splitlines()
    assert lo == "lo 0x49 127.0.0.1 255.0.0.0 00:00:00:00:00:00 65536"
    ip4, _, mac = own(eth0)
    assert eth0 == f"eth0 0x1043 {ip4} 255.255.0.0 {mac} 1500"


def test_go(domain, need):
    need("goload")
    lo, eth0 = domain.run("/t/goload", "interfaces", opts=("--network", "nat")).ok().splitlines()
    assert lo == "1 lo 65536  up|loopback|running [127.0.0.1/8 ::1/128]"
    ip4, ip6, mac = own(eth0)
    assert eth0 == f"2 eth0 1500 {mac} up|broadcast|multicast|running [{ip4}/16 {ip6}/48]"


def test_node(domain):
    need_image("runtimes")
    found = json.loads(domain.run("node", "-e", NODE, image="runtimes", opts=("--network", "nat")).ok())
    assert [a["cidr"] for a in found["lo"]] == ["127.0.0.1/8", "::1/128"]
    v4, v6 = found["eth0"]
    ip4, ip6, mac = own(v4["address"])
    assert (v4["cidr"], v4["mac"], v4["internal"]) == (f"{ip4}/16", mac, False)
    assert (v6["cidr"], v6["scopeid"]) == (f"{ip6}/48", 0)


def test_ss_and_netstat(domain):
    need_image("servers")
    code = "import socket as s; l = s.create_server(('', 7000)); c = s.create_connection(('127.0.0.1', 7000)); input()"
    show = "ss -tanH; busybox netstat -tan"
    script = (
        f'python3 -c "{code}" < /tmp/hold & exec 3> /tmp/hold; until ss -tanH | grep -q ESTAB; do sleep 0.05; '
        f'done; {show}; echo >&3'
    )
    out = domain.run("sh", "-c", f"mkfifo /tmp/hold; {script}", image="servers", opts=("--network", "nat")).ok()
    assert re.search(r"LISTEN +\d+ +\d+ +0\.0\.0\.0:7000 +0\.0\.0\.0:\*", out), out
    assert re.search(r"ESTAB +0 +0 +127\.0\.0\.1:\d+ +127\.0\.0\.1:7000", out), out
    assert re.search(r"tcp +\d+ +0 0\.0\.0\.0:7000 +0\.0\.0\.0:\* +LISTEN", out), out


def test_without_a_network_there_is_only_lo(domain):
    code = "import os, socket; print(socket.if_nameindex(), os.listdir('/sys/class/net'))"
    assert domain.run("python3", "-c", code).ok() == "[(1, 'lo')] ['lo']\n"
