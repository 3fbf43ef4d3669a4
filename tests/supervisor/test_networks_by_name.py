"""Networks by name: domains of one find each other by address and name, those of others do not."""
import os
import signal

import pytest
from conftest import eventually, have_image
from leftovers import services

SERVE = "hostname > /tmp/index.html; exec httpd -f -p 80 -h /tmp"


@pytest.fixture
def made(supervisor, busybox):
    """Makes domains that end with the test."""
    ids = []

    def make(name, network, command="exec sleep 1000", d=supervisor, image=busybox):
        # Names that the service does not know are refused at once, whatever name server this host has.
        network = {"kind": "nat", "dns": "127.0.0.1:1", **network}
        body = {"image": image, "name": name, "command": ["sh", "-c", command], "network": network}
        domain = d.post("/v1/domains", body, start=True).ok()["domain"]
        ids.append((d, domain["id"]))
        return domain

    yield make
    for d, i in ids:
        d.delete(f"/v1/domains/{i}", force=True)


def fetch(supervisor, name, host):
    """What a domain gets from a server, or nothing."""
    p = supervisor.cli("exec", name, "wget", "-q", "-O", "-", f"http://{host}/")
    return p.stdout.decode().strip() if p.returncode == 0 else None


def test_domains_of_a_network_find_each_other_and_no_others(supervisor, made):
    back = made("byname-server", {"name": "byname-back"}, SERVE)
    front = made("byname-other", {"name": "byname-front"}, SERVE)
    made("byname-client", {"name": "byname-back"})
    made("byname-front", {"name": "byname-front"})
    made("byname-plain", {})
    for client, server, network, address in (
        ("byname-client", "byname-server", "byname-back", back["network"]["ip4"]),
        ("byname-front", "byname-other", "byname-front", front["network"]["ip4"]),
    ):
        for host in (server, f"{server}.{network}", server.upper(), address):
            eventually(lambda: fetch(supervisor, client, host) == server, f"{host} from {client}")
    # Neither by name nor by address, in either direction.
    for client, server, network, domain in (
        ("byname-client", "byname-other", "byname-front", front),
        ("byname-front", "byname-server", "byname-back", back),
        ("byname-plain", "byname-server", "byname-back", back),
    ):
        for host in (server, f"{server}.{network}", domain["network"]["ip4"], f"[{domain['network']['ip6']}]"):
            assert fetch(supervisor, client, host) is None, (client, host)


PING = """
import socket, sys
for to in sys.argv[1:]:
    v6 = ":" in to
    s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM, 58 if v6 else 1)
    s.settimeout(60)
    s.sendto(bytes([128 if v6 else 8, 0, 0, 0, 0, 0, 0, 1]) + b"hello", (to, 0))
    m, peer = s.recvfrom(100)
    assert m[0] == (129 if v6 else 0) and m[8:] == b"hello" and peer[0] == to, (m, peer)
"""


def test_domains_of_a_network_echo_and_no_others(supervisor, made):
    if not have_image("debian"):
        pytest.skip("no image debian: make test-images")
    own = made("byname-echo", {"name": "byname-echoes"})["network"]
    made("byname-asks-echo", {"name": "byname-echoes"}, image="debian")
    made("byname-asks-other", {}, image="debian")

    def ping(name, *to):
        return supervisor.cli("exec", name, "python3", "-c", PING, *to)

    both = (own["ip4"], own["ip6"])
    p = ping("byname-asks-echo", *both)
    assert p.returncode == 0, p.stderr
    for to in both:
        p = ping("byname-asks-other", to)
        assert p.returncode == 1 and b"No route to host" in p.stderr, p.stderr


def test_names_follow_domains(supervisor, made):
    server = made("byname-first", {"name": "byname-follow"}, SERVE)
    made("byname-asks", {"name": "byname-follow"})
    eventually(lambda: fetch(supervisor, "byname-asks", "byname-first") == "byname-first", "not found")
    supervisor.post(f"/v1/domains/{server['id']}/rename", {"name": "byname-second"}).ok()
    assert fetch(supervisor, "byname-asks", "byname-second") == "byname-first"
    assert fetch(supervisor, "byname-asks", "byname-first") is None
    # Another run of it has another address.
    supervisor.post(f"/v1/domains/{server['id']}/restart", {"timeout_seconds": 0}).ok()
    eventually(lambda: fetch(supervisor, "byname-asks", "byname-second") == "byname-first", "not found again")
    supervisor.delete(f"/v1/domains/{server['id']}", force=True).ok()
    assert fetch(supervisor, "byname-asks", "byname-second") is None


def test_the_command_and_clones(supervisor, made, busybox):
    p = supervisor.cli("run", "-d", "--name", "byname-cli", "--network", "byname-cmd", busybox, "sh", "-c", SERVE)
    assert p.returncode == 0, p.stderr
    try:
        made("byname-cli-asks", {"name": "byname-cmd"})
        eventually(lambda: fetch(supervisor, "byname-cli-asks", "byname-cli.byname-cmd") == "byname-cli", "not found")
        supervisor.post("/v1/domains/byname-cli/freeze", {"frozen": "byname-frozen"}).ok()
        body = {"name": "byname-clone", "network": {"kind": "nat", "name": "byname-cmd"}}
        [result] = supervisor.post("/v1/frozen/byname-frozen/clone", body).ok()["results"]
        try:
            eventually(lambda: fetch(supervisor, "byname-cli-asks", "byname-clone") == "byname-cli", "no clone")
        finally:
            supervisor.delete(f"/v1/domains/{result['domain']['id']}", force=True)
            eventually(lambda: supervisor.delete("/v1/frozen/byname-frozen").status < 300, "the image stays")
    finally:
        supervisor.delete("/v1/domains/byname-cli", force=True)


def test_names_outlive_a_service_domain(new_doppeld, made):
    d = new_doppeld().start()
    made("byname-lives", {}, SERVE, d=d)
    made("byname-looks", {}, d=d)
    eventually(lambda: fetch(d, "byname-looks", "byname-lives.default") == "byname-lives", "not found")
    [service] = services(d)
    os.kill(service, signal.SIGKILL)
    eventually(lambda: fetch(d, "byname-looks", "byname-lives") == "byname-lives", "not found after a death")
