"""Networks as objects: made, listed and removed; several of them a domain; domains that come to them and leave them."""
import http.server
import json
import os
import signal
import threading

import pytest
from conftest import eventually, ok, refused
from leftovers import services

SERVE = "hostname > /tmp/index.html; exec httpd -f -p 80 -h /tmp"
KINDS = ("para", "paene")


@pytest.fixture
def own(new_doppeld):
    return new_doppeld().start()


@pytest.fixture
def made(supervisor):
    """Makes domains by the command, and removes them and networks of the session's supervisor at the end."""
    names = []

    def make(name, *args, command=SERVE, d=supervisor, image="busybox", verb=("run", "-d")):
        if d is supervisor:
            names.append(name)
        # Names that the service does not know are refused at once, whatever name server this host has.
        ok(d.cli(*verb, "--name", name, "--dns", "127.0.0.1:1", *args, image, "sh", "-c", command))
        return d.get(f"/v1/domains/{name}").ok()

    yield make
    for name in names:
        supervisor.delete(f"/v1/domains/{name}", force=True)
    ok(supervisor.cli("network", "prune", "-f"))


def on(*networks):
    return [word for name in networks for word in ("--network", name)]


def fetch(d, name, host):
    """What a domain gets from a server, or nothing."""
    p = d.cli("exec", name, "wget", "-q", "-O", "-", f"http://{host}/")
    return p.stdout.decode().strip() if p.returncode == 0 else None


def reaches(d, name, host, answer=None):
    eventually(lambda: fetch(d, name, host) == (answer or host), f"{name} does not reach {host}")


def networks_of(d, name):
    """As asked for, and as it is."""
    domain = d.get(f"/v1/domains/{name}").ok()
    asked = [n["name"] for n in domain["config"]["network"]["networks"]]
    return asked, domain["network"] and domain["network"]["networks"]


def test_networks_are_made_listed_and_removed(supervisor, made):
    cli = supervisor.cli
    assert ok(cli("network", "create", "--label", "tier=back", "--label", "x", "Obj-Back")) == "obj-back\n"
    assert ok(cli("network", "create", "--internal", "--driver", "bridge", "obj-inner")) == "obj-inner\n"
    refused(cli("network", "create", "obj-back"), 'a network named "obj-back" exists')
    user = made("obj-user", *on("obj-used"))["id"]
    listed = {n["name"]: n for n in supervisor.get("/v1/networks").ok()}
    assert {"default", "obj-back", "obj-inner", "obj-used"} <= set(listed)
    shown = {name: (n["internal"], n["transient"], n["used_by"]) for name, n in listed.items() if "obj-" in name}
    assert shown == {
        "obj-back": (False, False, []), "obj-inner": (True, False, []), "obj-used": (False, True, [user])
    }
    assert ok(cli("network", "ls", "-q", "--filter", "name=obj-")) == "obj-back\nobj-inner\nobj-used\n"
    assert ok(cli("network", "ls", "-q", "--filter", "label=tier=back")) == "obj-back\n"
    line = "{{.Name}} {{.Driver}} {{.Internal}} {{.Labels}} {{.Domains}}"
    assert ok(cli("network", "ls", "--filter", "name=obj-back", "--format", line)) == (
        "obj-back bridge false tier=back,x= 0\n"
    )
    assert "NETWORK NAME" in ok(cli("network", "ls"))
    [found] = json.loads(ok(cli("network", "inspect", "obj-inner")))
    assert found["internal"] and found["created_at"].endswith("Z")
    # One that a domain has made stays from when it is made by itself, else it goes with its last domain.
    refused(cli("network", "rm", "obj-used"), user)
    supervisor.delete("/v1/networks/obj-used").problem(409, "in_use")
    refused(cli("network", "create", "--internal", "obj-used"), "before it becomes internal")
    supervisor.delete("/v1/domains/obj-user", force=True).ok()
    supervisor.get("/v1/networks/obj-used").problem(404, "network_not_found")
    refused(cli("network", "rm", "obj-used"), 'no network "obj-used"')
    ok(cli("network", "rm", "-f", "obj-used"))
    for name in ("default", "nat"):
        refused(cli("network", "rm", name), "cannot be removed")
    assert ok(cli("network", "prune", "-f", "--filter", "label=tier")) == "obj-back\n"
    assert ok(cli("network", "rm", "obj-inner")) == "obj-inner\n"
    assert ok(cli("network", "ls", "-q", "--filter", "name=obj-")) == ""


@pytest.mark.parametrize(
    "args, why",
    [
        (("--driver", "overlay"), "--driver overlay: there is bridge alone"),
        (("--opt", "a=b"), "--opt:"),
        (("--subnet", "10.1.0.0"), "is no subnet; one looks like 172.20.0.0/16"),
        (("--subnet", "10.0.0.0/8"), "overlaps with 10.88.0.0/16"),
        (("--subnet", "127.9.0.0/16"), "which is for loopback"),
        (("--subnet", "239.0.0.0/16"), "which is for multicast"),
        (("--subnet", "10.99.0.0/31"), "from 8 to 30"),
        (("--subnet", "10.99.0.0/24", "--subnet", "10.99.1.0/24"), "one of IPv4 and one of IPv6"),
        (("--gateway", "10.1.0.1"), "--gateway 10.1.0.1: no --subnet has this address"),
        (("--subnet", "10.99.0.0/24", "--gateway", "10.99.0.255"), "no address of a host"),
        (("--ip-range", "10.1.0.0/24"), "--ip-range 10.1.0.0/24: no --subnet"),
        (("--subnet", "10.99.0.0/24", "--ip-range", "10.99.0.0/16"), "is not inside of 10.99.0.0/24"),
    ],
)
def test_what_a_network_cannot_be_is_refused_with_a_reason(supervisor, args, why):
    refused(supervisor.cli("network", "create", *args, "obj-no"), why)
    supervisor.get("/v1/networks/obj-no").problem(404, "network_not_found")


def test_wrong_requests_are_refused(supervisor, busybox):
    for name in ("host", "none", "container:x", "a b", "x" * 64, ""):
        supervisor.post("/v1/networks", {"name": name}).problem(400, "invalid_request")
    body = {"image": busybox, "network": {"kind": "nat"}}

    def why(**network):
        wanted = {**body, "network": {"kind": "nat", **network}}
        return supervisor.post("/v1/domains", wanted).problem(400, "invalid_request")

    many = [{"name": f"obj-n{i}"} for i in range(65)]
    assert "network.networks" in why(networks=many)
    assert "in place of `name`" in why(name="a", networks=many[:1])
    assert "twice" in why(networks=[{"name": "obj"}, {"name": "OBJ"}])
    assert "128" in why(networks=many[:64], aliases=["a", "b", "c"])
    assert "network.networks[0].name" in why(networks=[{"name": "host"}])
    refused(supervisor.cli("run", *on("none", "obj-a"), busybox, "true"), "no other network")
    supervisor.post("/v1/networks/obj-a/connect", {"domain": "obj-nobody"}).problem(404, "domain_not_found")


@pytest.mark.parametrize("kind", KINDS)
def test_the_one_in_the_middle_reaches_both(supervisor, made, kind):
    left = made("obj-left", *on("obj-front"))
    right = made("obj-right", *on("obj-rear"), "--network-alias", "obj-store")
    middle = made("obj-middle", *on("name=obj-front,alias=obj-web", "obj-rear"), "--kind", kind)
    assert networks_of(supervisor, "obj-middle") == (["obj-front", "obj-rear"],) * 2
    for host, answer in [
        ("obj-left", None), ("obj-right.obj-rear", "obj-right"), ("obj-store", "obj-right"),
        (left["network"]["ip4"], "obj-left"), (right["network"]["ip4"], "obj-right"),
    ]:
        reaches(supervisor, "obj-middle", host, answer)
    for name, host in [("obj-left", "obj-web"), ("obj-right", "obj-middle.obj-rear")]:
        reaches(supervisor, name, host, "obj-middle")
    reaches(supervisor, "obj-right", middle["network"]["ip4"], "obj-middle")
    # The ends do not reach each other, and a name holds in its network alone.
    for name, host in [
        ("obj-left", "obj-right"), ("obj-left", "obj-right.obj-rear"), ("obj-left", right["network"]["ip4"]),
        ("obj-right", left["network"]["ip4"]), ("obj-right", "obj-web"),
    ]:
        assert fetch(supervisor, name, host) is None, (name, host)


def over(d, name):
    return b"over" in d.cli("logs", name).stdout


@pytest.mark.parametrize("kind", KINDS)
def test_domains_come_and_leave_while_they_run(supervisor, made, kind):
    cli = supervisor.cli
    made("obj-server", *on("obj-one"), "--kind", kind)
    made("obj-client", *on("obj-other"))
    assert fetch(supervisor, "obj-client", "obj-server") is None
    ok(cli("network", "connect", "--alias", "obj-also", "obj-one", "obj-client"))
    reaches(supervisor, "obj-client", "obj-server")
    refused(cli("network", "connect", "obj-one", "obj-client"), "already")
    assert networks_of(supervisor, "obj-client") == (["obj-other", "obj-one"],) * 2
    reaches(supervisor, "obj-server", "obj-also", "obj-client")
    # A connection that lasts ends with the network, on both sides.
    listens = "sleep 1000 | (nc -l -p 90; echo over)"
    made("obj-lasts", *on("obj-one"), "--kind", kind, command=listens)
    listening = ("sh", "-c", "cat /proc/net/tcp /proc/net/tcp6 | grep -q ':005A .* 0A '")
    eventually(lambda: cli("exec", "obj-lasts", *listening).returncode == 0, "it does not listen")
    made("obj-talks", *on("obj-one"), command="(echo hello; sleep 1000) | (nc obj-lasts 90; echo over)")
    eventually(lambda: b"hello" in cli("logs", "obj-lasts").stdout, "they do not talk")
    assert not over(supervisor, "obj-lasts") and not over(supervisor, "obj-talks")
    ok(cli("network", "disconnect", "obj-one", "obj-lasts"))
    for name in ("obj-lasts", "obj-talks"):
        eventually(lambda: over(supervisor, name), f"the connection of {name} lives")
    ok(cli("network", "disconnect", "obj-one", "obj-client"))
    assert fetch(supervisor, "obj-client", "obj-server") is None
    refused(cli("network", "disconnect", "obj-one", "obj-client"), "is not on network")
    ok(cli("network", "disconnect", "-f", "obj-one", "obj-client"))
    # On none it reaches nobody, and it comes back.
    ok(cli("network", "disconnect", "obj-one", "obj-server"))
    assert networks_of(supervisor, "obj-server") == ([], [])
    for name in ("obj-server", "obj-client"):
        ok(cli("network", "connect", "obj-new", name))
    reaches(supervisor, "obj-client", "obj-server")


def test_domains_that_do_not_run_come_to_networks(supervisor, made):
    made("obj-there", *on("obj-two"))
    made("obj-later", *on("obj-first"), verb=("create",))
    ok(supervisor.cli("network", "connect", "obj-two", "obj-later"))
    ok(supervisor.cli("network", "disconnect", "obj-first", "obj-later"))
    ok(supervisor.cli("start", "obj-later"))
    assert networks_of(supervisor, "obj-later") == (["obj-two"],) * 2
    reaches(supervisor, "obj-later", "obj-there")
    # One without a network can be given one before it runs.
    body = {"image": "busybox", "name": "obj-bare", "command": ["sleep", "1000"]}
    supervisor.post("/v1/domains", body).ok()
    try:
        supervisor.post("/v1/domains/obj-bare/start").ok()
        refused(supervisor.cli("network", "connect", "obj-two", "obj-bare"), "runs without a network")
        supervisor.post("/v1/domains/obj-bare/stop", {"timeout_seconds": 0}).ok()
        ok(supervisor.cli("network", "connect", "obj-two", "obj-bare"))
        supervisor.post("/v1/domains/obj-bare/start").ok()
        reaches(supervisor, "obj-bare", "obj-there")
    finally:
        supervisor.delete("/v1/domains/obj-bare", force=True)


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"host\n")

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_leaves_an_internal_network(supervisor, made, kind):
    cli = supervisor.cli
    ok(cli("network", "create", "--internal", "obj-closed"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as site:
        threading.Thread(target=site.serve_forever).start()
        try:
            outside = f"10.88.0.1:{site.server_port}"
            made("obj-inside", *on("obj-closed"), "--kind", kind, "--allow", outside)
            made("obj-beside", *on("obj-closed", "obj-open"), "--allow", outside, "-p", "127.0.0.1::80")
            reaches(supervisor, "obj-inside", "obj-beside")
            reaches(supervisor, "obj-beside", "obj-inside")
            reaches(supervisor, "obj-beside", outside, "host")
            assert fetch(supervisor, "obj-inside", outside) is None
            ok(cli("network", "connect", "obj-open", "obj-inside"))
            reaches(supervisor, "obj-inside", outside, "host")
            ok(cli("network", "disconnect", "obj-open", "obj-inside"))
            assert fetch(supervisor, "obj-inside", outside) is None
            reaches(supervisor, "obj-inside", "obj-beside")
        finally:
            site.shutdown()
    p = cli("run", "-d", *on("obj-closed"), "-p", "80", "busybox", "true")
    refused(p, "all internal")


def test_networks_are_kept(own, made):
    """Over the supervisor's death, that of the network service, and that of the keeper."""
    ok(own.cli("network", "create", "--internal", "--label", "a=b", "kept"))
    made("kept-a", *on("one"), d=own)
    moves = made("kept-b", *on("two"), d=own)["id"]
    made("kept-c", *on("two"), d=own)
    ok(own.cli("network", "connect", "--alias", "also", "one", "kept-b"))
    before = own.get("/v1/networks").ok()

    def whole():
        for name, host, answer in [
            ("kept-a", "also", "kept-b"), ("kept-b", "kept-a", None), ("kept-c", "kept-b", None)
        ]:
            reaches(own, name, host, answer)
        assert fetch(own, "kept-a", "kept-c") is None
        assert networks_of(own, "kept-b") == (["two", "one"],) * 2

    own.kill()
    own.start()
    assert own.get("/v1/networks").ok() == before
    whole()
    [service] = services(own)
    os.kill(service, signal.SIGKILL)
    eventually(lambda: services(own) not in ([], [service]), "it is not replaced")
    whole()
    keeper = own.keeper_of(moves)
    os.kill(keeper, signal.SIGKILL)
    eventually(lambda: own.keeper_of(moves) not in (None, keeper), "nobody takes them over")
    whole()
    ok(own.cli("network", "disconnect", "one", "kept-b"))
    assert fetch(own, "kept-a", "kept-b") is None
    # One that sleeps comes to a network too.
    own.post("/v1/domains/kept-b/hibernate", {}, timeout=120).ok()
    ok(own.cli("network", "connect", "one", "kept-b"))
    own.post("/v1/domains/kept-b/wake", {}, timeout=60).ok()
    reaches(own, "kept-a", "kept-b")


def test_networks_that_cannot_be_together(new_doppeld, made):
    """Of two network services, and of two keepers."""
    sharded = new_doppeld(config="network_shards = 2\n").start()
    for name in ("red", "blue"):
        made(f"is-{name}", *on(name), d=sharded)
    p = sharded.cli("run", "-d", *on("red", "blue"), "busybox", "true")
    refused(p, "network_shards = 1")
    refused(sharded.cli("network", "connect", "blue", "is-red"), "network_shards = 1")
    assert sharded.get("/v1/domains/is-red").ok()["network"]["networks"] == ["red"]
    # A new network goes where the domain's others are.
    made("is-both", *on("red", "new"), d=sharded)
    made("is-new", *on("new"), d=sharded)
    reaches(sharded, "is-new", "is-both")
    small = new_doppeld(config="keeper_domains = 1\n").start()
    for name in ("red", "blue"):
        made(f"is-{name}", *on(name), d=small)
    p = small.cli("run", "-d", *on("red", "blue"), "busybox", "true")
    refused(p, "different keepers")
    refused(small.cli("network", "connect", "blue", "is-red"), "another keeper")
    ok(small.cli("stop", "-t", "0", "is-red"))
    ok(small.cli("network", "connect", "blue", "is-red"))
    ok(small.cli("start", "is-red"))
    reaches(small, "is-red", "is-blue")
