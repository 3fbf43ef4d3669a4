"""Networks with subnets: addresses out of them, fixed ones, and what becomes of those while domains come and go."""
import json
import os
import signal

import pytest
from conftest import eventually, ok, refused
from leftovers import services
from test_network_objects import KINDS, SERVE, fetch, made, on, reaches  # noqa: F401 (`made` is a fixture)

SUBNETS = {"sub-back": "10.217.4.0/24", "sub-front": "10.218.0.0/16"}


def networks(d):
    for name, subnet in SUBNETS.items():
        ok(d.cli("network", "create", "--subnet", subnet, name))
    ok(d.cli("network", "create", "--subnet", "10.219.0.0/24", "--subnet", "fd00:219::/64", "--gateway", "10.219.0.9",
             "--ip-range", "10.219.0.8/29", "sub-both"))


@pytest.fixture
def here(supervisor, made):
    networks(supervisor)
    return made


def inside(d, name, command):
    return ok(d.cli("exec", name, "sh", "-c", command))


def addresses(d, name):
    return d.get(f"/v1/domains/{name}").ok()["addresses"]


@pytest.mark.parametrize("kind", KINDS)
def test_domains_have_addresses_out_of_the_subnets_of_their_networks(supervisor, here, kind):
    first = here("sub-first", *on("sub-back"), "--kind", kind)
    assert first["network"]["ip4"] == "10.217.4.2" and first["addresses"] == {"sub-back": ["10.217.4.2"]}
    fixed = here("sub-fixed", *on("name=sub-front,ip=10.218.7.7", "sub-back"), "--kind", kind)
    assert fixed["addresses"] == {"sub-front": ["10.218.7.7"], "sub-back": ["10.217.4.3"]}
    assert fixed["network"]["ip4"] == "10.218.7.7"
    # Inside, by the kernel's ways to ask and in /etc/hosts.
    shown = inside(supervisor, "sub-fixed", "ip -4 addr show eth0; ip route; cat /etc/hosts")
    for text in ("inet 10.218.7.7/16", "inet 10.217.4.3/24", "10.218.7.7\tsub-fixed", "10.217.4.3\tsub-fixed"):
        assert text in shown, shown
    # By address and by name, each in the network that both have.
    reaches(supervisor, "sub-first", "10.217.4.3", "sub-fixed")
    reaches(supervisor, "sub-first", "sub-fixed")
    reaches(supervisor, "sub-fixed", "10.217.4.2", "sub-first")
    assert "10.217.4.3" in inside(supervisor, "sub-first", "nslookup sub-fixed 10.88.0.2; true")
    assert fetch(supervisor, "sub-first", "10.217.4.9") is None, "nobody is there"
    both = here("sub-six", *on("sub-both"), "--ip6", "fd00:219::77", "--kind", kind)
    assert both["addresses"] == {"sub-both": ["10.219.0.8", "fd00:219::77"]}
    assert both["network"]["ip6"] == "fd00:219::77"
    assert "fd00:219::77/64" in inside(supervisor, "sub-six", "ip -6 addr show eth0")
    [found] = json.loads(ok(supervisor.cli("network", "inspect", "sub-both")))
    assert found["subnets"] == [
        {"subnet": "10.219.0.0/24", "ip_range": "10.219.0.8/29", "gateway": "10.219.0.9"},
        {"subnet": "fd00:219::/64", "gateway": "fd00:219::1"},
    ]
    assert found["addresses"] == {both["id"]: ["10.219.0.8", "fd00:219::77"]}
    assert "10.217.4.0/24" in ok(supervisor.cli("network", "ls", "--filter", "name=sub-back"))


def test_addresses_are_kept_until_the_domain_goes(supervisor, here):
    cli = supervisor.cli
    here("sub-a", *on("sub-back"))
    here("sub-b", *on("sub-back"))
    ok(cli("stop", "-t", "0", "sub-a"))
    # Another one has the next, and one that asks for it is told who has it.
    here("sub-c", *on("sub-back"))
    assert addresses(supervisor, "sub-c") == {"sub-back": ["10.217.4.4"]}
    refused(cli("run", "--network", "sub-back", "--ip", "10.217.4.2", "busybox", "true"), "in use by domain")
    ok(cli("start", "sub-a"))
    assert supervisor.get("/v1/domains/sub-a").ok()["network"]["ip4"] == "10.217.4.2"
    reaches(supervisor, "sub-b", "10.217.4.2", "sub-a")
    supervisor.delete("/v1/domains/sub-a", force=True).ok()
    here("sub-d", *on("sub-back"))
    assert addresses(supervisor, "sub-d") == {"sub-back": ["10.217.4.2"]}, "the lowest that is free"
    # To come to a network and to leave it, while it runs.
    ok(cli("network", "connect", "--ip", "10.218.0.99", "sub-front", "sub-d"))
    here("sub-e", *on("sub-front"))
    reaches(supervisor, "sub-e", "10.218.0.99", "sub-d")
    reaches(supervisor, "sub-e", "sub-d")
    eventually(lambda: "inet 10.218.0.99/16" in inside(supervisor, "sub-d", "ip addr"), "it is not told")
    refused(cli("network", "connect", "--ip", "10.218.0.99", "sub-front", "sub-c"), "in use by domain")
    ok(cli("network", "disconnect", "sub-back", "sub-d"))
    assert addresses(supervisor, "sub-d") == {"sub-front": ["10.218.0.99"]}
    assert "10.217.4.2" not in inside(supervisor, "sub-d", "ip addr")
    assert fetch(supervisor, "sub-b", "10.217.4.2") is None
    reaches(supervisor, "sub-e", "10.218.0.99", "sub-d")


def test_what_is_refused(supervisor, here):
    cli = supervisor.cli
    for ip, why in [
        ("10.217.4.1", "is the gateway"), ("10.217.4.0", "network's own address"), ("10.217.4.255", "address of all"),
        ("10.217.5.9", "whose subnet is 10.217.4.0/24"),
    ]:
        refused(cli("run", "--network", "sub-back", "--ip", ip, "busybox", "true"), why)
    refused(cli("run", "--ip", "10.217.4.9", "busybox", "true"), "network create --subnet")
    refused(cli("run", "--network", "sub-back", "--ip6", "fd00::9", "busybox", "true"), "a subnet of IPv6")
    over = cli("network", "create", "--subnet", "10.217.0.0/16", "sub-over")
    refused(over, 'overlaps with that of network "sub-back"')
    here("sub-plain", *on("sub-transient"))
    refused(cli("network", "create", "--subnet", "10.220.0.0/16", "sub-transient"), "before it has a subnet")
    # The host's own networks.
    routes = [line.split() for line in open("/proc/net/route").read().splitlines()[1:]]
    own = [r for r in routes if r[7] not in ("00000000", "FFFFFFFF") and not int(r[3], 16) & 2]
    for route in own[:1]:
        to = ".".join(str(b) for b in int(route[1], 16).to_bytes(4, "little"))
        bits = int(route[7], 16).bit_count()
        refused(cli("network", "create", "--subnet", f"{to}/{bits}", "sub-host"), "overlaps with")


def test_they_outlive_service_keeper_and_supervisor(new_doppeld, busybox):
    d = new_doppeld().start()
    networks(d)
    for name, args in [("sub-srv", ("--ip", "10.217.4.50")), ("sub-cli", ())]:
        args = ("--name", name, "--dns", "127.0.0.1:1", *on("sub-back"), *args)
        ok(d.cli("run", "-d", *args, busybox, "sh", "-c", SERVE))
    reaches(d, "sub-cli", "10.217.4.50", "sub-srv")

    for pid in services(d) + d.keepers():
        os.kill(pid, signal.SIGKILL)
        reaches(d, "sub-cli", "sub-srv")
        reaches(d, "sub-cli", "10.217.4.50", "sub-srv")
    d.kill()
    d.start()
    reaches(d, "sub-cli", "10.217.4.50", "sub-srv")
    assert addresses(d, "sub-srv") == {"sub-back": ["10.217.4.50"]}
    refused(d.cli("run", "--network", "sub-back", "--ip", "10.217.4.50", busybox, "true"), "in use by domain")
    # Hibernated, it is called at the address that it has, and wakes with that.
    ok(d.cli("hibernate", "sub-srv"))
    reaches(d, "sub-cli", "10.217.4.50", "sub-srv")
    assert "inet 10.217.4.50/24" in inside(d, "sub-srv", "ip addr")
