"""Networks of the supervisor's domains: addresses, published ports, clones, and deaths of supervisor and service."""
import base64
import http.client
import os
import re
import signal
import socket
import time

import pytest
from conftest import have_image, output_of
from leftovers import services

SERVE = "mkdir -p /tmp/www; hostname > /tmp/www/index.html; exec httpd -f -p 80 -h /tmp/www"
PORT = {"port": 80, "host_address": "127.0.0.1"}


def nat(*ports, **more):
    return {"kind": "nat", "ports": list(ports), **more}


@pytest.fixture
def made(supervisor, busybox):
    """Makes domains of a supervisor, the session's by default; they are removed at the end."""
    names = []

    def make(name, network, command=("sh", "-c", SERVE), d=supervisor, **more):
        names.append((d, name))
        body = {"image": busybox, "name": name, "command": list(command), "network": network, **more}
        return d.post("/v1/domains", body, start=True).ok()["domain"]

    yield make
    for d, name in names:
        d.delete(f"/v1/domains/{name}", force=True)


def eventually(check, what):
    deadline = time.monotonic() + 60
    while True:
        try:
            found = check()
        except (OSError, http.client.HTTPException) as e:
            found = None
            what = f"{what} ({e})"
        if found:
            return found
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def page(domain):
    """What a domain's published server says, when it does."""
    [mapping] = domain["network"]["ports"]

    def get():
        c = http.client.HTTPConnection(mapping["host_address"], mapping["host_port"], timeout=60)
        try:
            c.request("GET", "/")
            answer = c.getresponse()
            return answer.status == 200 and answer.read().decode().strip()
        finally:
            c.close()

    return eventually(get, f"no answer at {mapping}")


def said(d, path):
    """What a domain has printed on standard output."""
    lines = d.get(f"{path}/logs").lines
    return b"".join(base64.b64decode(line["data"]) for line in lines if line["type"] == "stdout")


def test_a_published_port_of_the_supervisors_choice(supervisor, made):
    domain = made("net-any", nat(PORT))
    mapping = domain["network"]["ports"][0]
    assert mapping["port"] == 80 and mapping["protocol"] == "tcp" and mapping["host_port"] > 0
    assert page(domain) == "net-any"
    assert domain["network"]["ip4"].startswith("10.88.") and ":" in domain["network"]["ip6"]
    ps = supervisor.cli("ps", "--filter", "name=net-any").stdout.decode()
    assert f"127.0.0.1:{mapping['host_port']}->80/tcp" in ps, ps


def test_a_port_that_is_taken(supervisor, made, busybox):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        mapping = {**PORT, "host_port": taken.getsockname()[1]}
        body = {"image": busybox, "name": "net-taken", "command": ["true"], "network": nat(mapping)}
        why = supervisor.post("/v1/domains", body, start=True).problem(409, "port_in_use")
        assert str(mapping["host_port"]) in why
        # Nothing is left of it, and the port is for somebody else when it is free.
        supervisor.get("/v1/domains/net-taken").problem(404, "domain_not_found")
    assert page(made("net-taken", nat(mapping))) == "net-taken"
    # And so it is when the domain has ended.
    supervisor.post("/v1/domains/net-taken/kill", {}).ok()
    supervisor.post("/v1/domains/net-taken/wait", {})
    socket.create_server(("127.0.0.1", mapping["host_port"])).close()


def test_a_port_is_free_again_when_its_domain_has_ended(supervisor, made):
    with socket.create_server(("127.0.0.1", 0)) as free:
        mapping = {**PORT, "host_port": free.getsockname()[1]}
    for i in range(5):
        assert page(made(f"net-again-{i}", nat(mapping))) == f"net-again-{i}"
        supervisor.delete(f"/v1/domains/net-again-{i}", force=True).ok()


def test_a_restarted_domain_has_its_ports_again(supervisor, made):
    with socket.create_server(("127.0.0.1", 0)) as free:
        mapping = {**PORT, "host_port": free.getsockname()[1]}
    domain = made("net-restart", nat(mapping))
    for _ in range(5):
        assert page(domain) == "net-restart"
        supervisor.post("/v1/domains/net-restart/restart", {"timeout_seconds": 0}).ok()
    assert page(domain) == "net-restart"


def test_what_does_not_go_together_is_refused(supervisor, busybox):
    def why(network):
        return supervisor.post("/v1/domains", {"image": busybox, "network": network}).problem(400, "invalid_request")

    assert "nat" in why({"ports": [PORT]})
    assert "exa mple.org" in why(nat(allow=["exa mple.org"]))
    assert "host_port" in why(nat({**PORT, "host_port": 0}))


def test_domains_reach_each_other_by_address(supervisor, made):
    server = made("net-server", nat(PORT))
    page(server)
    client = made("net-client", nat(), ("wget", "-q", "-O", "-", f"http://{server['network']['ip4']}/"))
    assert supervisor.post(f"/v1/domains/{client['id']}/wait", {}).ok()["exit"]["exit_code"] == 0
    assert said(supervisor, "/v1/domains/net-client") == b"net-server\n"


def test_the_host_is_out_of_reach_unless_allowed(supervisor, made):
    server = made("net-host", nat(PORT))
    page(server)
    port = server["network"]["ports"][0]["host_port"]
    fetch = ("wget", "-q", "-O", "-", f"http://10.88.0.1:{port}/")
    for name, network, good in [("net-no", nat(), False), ("net-yes", nat(allow=[f"10.88.0.1:{port}"]), True)]:
        made(name, network, fetch)
        code = supervisor.post(f"/v1/domains/{name}/wait", {}).ok()["exit"]["exit_code"]
        assert (code == 0) == good, name


def test_traffic_is_counted_and_kept(new_doppeld, made):
    d = new_doppeld().start()
    server = made("net-counted", nat(PORT), d=d)
    path = f"/v1/domains/{server['id']}"
    network = lambda: d.get(f"{path}/stats").ok()["network"]
    assert page(server) == "net-counted"
    eventually(lambda: network()["sent"]["bytes"] >= len("net-counted\n"), "nothing was sent")
    before = network()
    assert before["received"]["flows"] >= 1 and before["received"]["bytes"] > len("GET /")
    assert before["sent"]["packets"] >= 1 and before["sent"]["flows"] == 0
    # What a rule refuses is counted; so is what is on its way while the service domain dies.
    p = d.cli("exec", server["id"], "nc", "-w", "5", "169.254.169.254", "80")
    assert p.returncode != 0
    eventually(lambda: network()["sent"]["drops"] >= 1, "nothing was refused")
    [service] = services(d)
    os.kill(service, signal.SIGKILL)
    assert page(server) == "net-counted"
    eventually(lambda: network()["received"]["flows"] > before["received"]["flows"], "the successor does not count")
    used = network()
    # A service domain that hangs answers nothing, and nobody waits for it; another takes its place.
    [service] = eventually(lambda: services(d), "no service")
    os.kill(service, signal.SIGSTOP)
    assert network() == used
    text = d.get("/metrics").body.decode()
    for way in ("sent", "received"):
        for figure, value in used[way].items():
            row = rf'^doppel_domain_network_{way}_{figure}_total{{id="{server["id"]}",.*}} (\d+)$'
            shown = re.search(row, text, re.M)
            assert int(shown[1]) >= value, (way, figure)
    d.post(f"{path}/kill", {}).ok()
    d.post(f"{path}/wait", {}).ok()
    kept = d.get(path).ok()["usage"]["network"]
    assert all(kept[way][figure] >= value for way in used for figure, value in used[way].items()), (kept, used)
    d.post(f"{path}/start", {}).ok()
    again = d.get(path).ok()
    assert page(again) == "net-counted"
    eventually(lambda: network()["received"]["flows"] > kept["received"]["flows"], "its next run is not added")


def test_supervisor_and_service_may_die(new_doppeld, made):
    d = new_doppeld().start()
    server = made("net-lives", nat(PORT), d=d)
    assert page(server) == "net-lives"
    d.kill()
    assert page(server) == "net-lives", "without a supervisor"
    d.start()
    again = d.get("/v1/domains/net-lives").ok()
    assert again["state"] == "running" and again["network"] == server["network"]
    for _ in range(3):
        [service] = eventually(lambda: services(d), "no service")
        os.kill(service, signal.SIGKILL)
        assert page(server) == "net-lives"
        eventually(lambda: services(d) not in ([], [service]), "no other service")


@pytest.mark.parametrize("before", [nat(PORT), {}], ids=["from a network", "from none"])
def test_clones_have_networks_of_their_own(supervisor, made, before):
    origin = made("net-origin", before)
    if before:
        page(origin)
    else:
        listens = ["sh", "-c", "grep -q ':0050 .* 0A ' /proc/net/tcp /proc/net/tcp6"]
        eventually(lambda: supervisor.cli("exec", "net-origin", *listens).returncode == 0, "it does not listen")
    supervisor.post("/v1/domains/net-origin/freeze", {"frozen": "net-frozen"}).ok()
    clones = []
    try:
        results = supervisor.post("/v1/frozen/net-frozen/clone", {"count": 3, "network": nat(PORT)}).ok()["results"]
        clones = [r["domain"] for r in results]
        networks = [c["network"] for c in clones] + ([origin["network"]] if before else [])
        assert len({n["ip4"] for n in networks}) == len(networks)
        assert len({n["ports"][0]["host_port"] for n in networks}) == len(networks)
        assert [page(c) for c in clones] == ["net-origin"] * 3
        if before:
            assert page(origin) == "net-origin"
    finally:
        for clone in clones:
            supervisor.delete(f"/v1/domains/{clone['id']}", force=True)
        eventually(lambda: supervisor.delete("/v1/frozen/net-frozen").status < 300, "the image stays")


@pytest.mark.parametrize("kind", ("para", "paene"))
def test_further_names(supervisor, made, kind):
    serve = "mkdir -p /tmp/www; cp /etc/hosts /tmp/www/index.html; exec httpd -f -p 80 -h /tmp/www"
    hosts = ["db:10.0.0.7", "host.docker.internal:host-gateway"]
    domain = made("net-hosts", nat(PORT), ("sh", "-c", serve), kind=kind, extra_hosts=hosts)
    found = page(domain)
    ip4 = domain["network"]["ip4"]
    assert found.endswith(f"{ip4}\tnet-hosts\n10.0.0.7\tdb\n10.88.0.1\thost.docker.internal"), found
    refused = supervisor.post("/v1/domains", {"image": "busybox", "extra_hosts": ["db"]})
    assert "extra_hosts" in refused.problem(400, "invalid_request")


def test_clones_keep_further_names(supervisor, made):
    made("net-named", nat(), ("sleep", "1000"), extra_hosts=["db:10.0.0.7"])
    supervisor.post("/v1/domains/net-named/freeze", {"frozen": "net-named"}).ok()
    [result] = supervisor.post("/v1/frozen/net-named/clone", {"network": nat()}).ok()["results"]
    clone = result["domain"]
    try:
        exec_id = supervisor.post(f"/v1/domains/{clone['id']}/exec", {"command": ["cat", "/etc/hosts"]}).ok()["id"]
        found = output_of(supervisor.get(f"/v1/execs/{exec_id}/output").lines)[0].decode()
        assert found.endswith(f"{clone['network']['ip4']}\t{clone['name']}\n10.0.0.7\tdb\n"), found
    finally:
        supervisor.delete(f"/v1/domains/{clone['id']}", force=True)


def test_connections_stay_with_the_original(supervisor, made):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        talk = f"nc 10.88.0.1 {port}; echo over; exec sleep 1000"
        made("net-talks", nat(allow=[f"10.88.0.1:{port}"]), ("sh", "-c", talk))
        server.settimeout(60)
        with server.accept()[0] as connection:
            supervisor.post("/v1/domains/net-talks/freeze", {"frozen": "net-talking"}).ok()
            for network in (nat(allow=[f"10.88.0.1:{port}"]), {}):
                [result] = supervisor.post("/v1/frozen/net-talking/clone", {"network": network}).ok()["results"]
                clone = f"/v1/domains/{result['domain']['id']}"
                try:
                    eventually(lambda: said(supervisor, clone) == b"over\n", "the clone's connection is not over")
                finally:
                    supervisor.delete(clone, force=True)
            connection.sendall(b"still here\n")
            eventually(
                lambda: said(supervisor, "/v1/domains/net-talks") == b"still here\n", "the original hears nothing"
            )
    eventually(lambda: supervisor.delete("/v1/frozen/net-talking").status < 300, "the image stays")


def test_the_command(supervisor, busybox):
    p = supervisor.cli("run", "-d", "--name", "net-command", "-p", "127.0.0.1::80", busybox, "sh", "-c", SERVE)
    assert p.returncode == 0, p.stderr
    try:
        assert page(supervisor.get("/v1/domains/net-command").ok()) == "net-command"
    finally:
        supervisor.delete("/v1/domains/net-command", force=True)


UPPER = """
import socket, threading, time
def serve(c):
    while data := c.recv(1000):
        c.sendall(data.upper())
    c.close()
def take():
    s = socket.create_server(("", 80))
    while True:
        threading.Thread(target=serve, args=(s.accept()[0],)).start()
threading.Thread(target=take).start()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(("", 53))
while True:
    data, peer = u.recvfrom(1000)
    u.sendto(data.upper(), peer)
"""


@pytest.fixture
def sleeper(new_doppeld, request):
    """A supervisor of its own with a server in a domain; its ports for TCP and UDP."""
    d = new_doppeld().start()
    if not have_image("debian"):
        pytest.skip("no image debian: make test-images")
    ports = nat(PORT, {**PORT, "port": 53, "protocol": "udp"})
    body = {"image": "debian", "name": "sleeper", "command": ["python3", "-c", UPPER], "network": ports}
    tcp, udp = (m["host_port"] for m in d.post("/v1/domains?start=true", body).ok()["domain"]["network"]["ports"])
    return d, tcp, udp


def upper(s, word):
    """A server's answer to a word on an open connection."""
    s.sendall(word)
    return s.recv(1000)


def is_over(s):
    """Whether a connection has ended, in whatever way."""
    try:
        return s.recv(1) == b""
    except ConnectionError:
        return True


def connected(port):
    """A connection to the server, once it answers."""

    def attempt():
        s = socket.create_connection(("127.0.0.1", port), timeout=60)
        return s if upper(s, b"first") == b"FIRST" else None

    return eventually(attempt, "no answer")


def state(d):
    return d.get("/v1/domains/sleeper").ok()["state"]


def is_awake(d):
    """Its program may answer before its supervisor has written down that it runs."""
    return eventually(lambda: state(d) == "running", "it does not wake")


def hibernate(d):
    is_awake(d)
    d.post("/v1/domains/sleeper/hibernate", {}, timeout=120).ok()
    assert state(d) == "hibernated"


def test_a_hibernated_domain_keeps_its_connections_and_wakes_for_them(sleeper):
    d, tcp, _udp = sleeper
    quiet, loud = connected(tcp), connected(tcp)
    with quiet, loud:
        for i in range(3):
            hibernate(d)
            # Nobody is called by time alone, nor by a supervisor that begins anew.
            if i == 1:
                d.kill()
                d.start()
                assert state(d) == "hibernated"
            assert upper(loud, b"hello %d" % i) == b"HELLO %d" % i
            assert is_awake(d)
        assert upper(quiet, b"still there") == b"STILL THERE"
        hibernate(d)
        d.post("/v1/domains/sleeper/wake", {}, timeout=60).ok()
        assert upper(quiet, b"by hand") == b"BY HAND"
        # Megabytes that came while it slept.
        hibernate(d)
        data = b"abcdefgh" * 20_000
        loud.sendall(data)
        got = b""
        while len(got) < len(data):
            got += loud.recv(len(data))
        assert got == data.upper()


def test_a_hibernated_domain_wakes_for_callers(sleeper):
    d, tcp, udp = sleeper
    connected(tcp).close()
    hibernate(d)
    with connected(tcp) as s:
        assert is_awake(d) and upper(s, b"new") == b"NEW"
    hibernate(d)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as u:
        u.settimeout(60)
        u.connect(("127.0.0.1", udp))
        assert upper(u, b"datagram") == b"DATAGRAM"


def test_a_hibernated_domain_whose_service_dies(sleeper):
    """Its connections are lost; it wakes to listen again."""
    d, tcp, _udp = sleeper
    with connected(tcp) as s:
        hibernate(d)
        [service] = services(d)
        os.kill(service, signal.SIGKILL)
        assert is_over(s)
        connected(tcp).close()
        assert is_awake(d)


def test_a_hibernated_domain_that_is_removed(sleeper):
    d, tcp, _udp = sleeper
    with connected(tcp) as s:
        hibernate(d)
        d.delete("/v1/domains/sleeper").ok()
        assert is_over(s)
    eventually(lambda: socket.create_server(("127.0.0.1", tcp)).close() or True, "its port is taken")


def test_names_that_domains_share(supervisor, made):
    """--network-alias: all who have the name are told; who leaves is told of no more."""
    network = nat(name="shared-names", aliases=["store"])
    both = [made(f"net-store{i}", network, ("sleep", "1000"))["network"]["ip4"] for i in (1, 2)]
    asker = made("net-asker", nat(name="shared-names"), ("sleep", "1000"))["id"]

    def told():
        look = supervisor.post(f"/v1/domains/{asker}/exec", {"command": ["nslookup", "store"]}).ok()["id"]
        found = output_of(supervisor.get(f"/v1/execs/{look}/output").lines)[0].decode()
        return set(re.findall(r"Address: +(10\.88\.\d+\.\d+)$", found, re.M))

    assert told() == set(both)
    supervisor.delete("/v1/domains/net-store1", force=True)
    assert told() == {both[1]}
    wrong = supervisor.post("/v1/domains", {"image": "busybox", "network": nat(aliases=["a b"])})
    assert "network.aliases" in wrong.problem(400, "invalid_request")
