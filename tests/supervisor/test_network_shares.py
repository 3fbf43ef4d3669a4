"""Ports that are published at once, where they are, and shares of a network service that two domains keep busy."""
import socket
import threading
import time

from conftest import eventually, ok, refused
from test_network_objects import SERVE, made  # noqa: F401 (`made` is a fixture)
from test_networks import page

SEND = "dd if=/dev/zero bs=256k count=100000 2>/dev/null | nc 10.88.0.1 %d"
FLOOD = f"for i in 1 2 3 4; do (while true; do {SEND}; done) & done; wait"


def test_ports_are_published_and_shown(supervisor, made):
    cli = supervisor.cli
    domain = made("pub-some", "-P", "--expose", "80", "--expose", "53/udp", "-p", "127.0.0.1::81")
    ports = {(m["port"], m["protocol"]): (m["host_address"], m["host_port"]) for m in domain["network"]["ports"]}
    assert set(ports) == {(80, "tcp"), (53, "udp"), (81, "tcp")}
    shown = ok(cli("port", "pub-some")).splitlines()
    assert sorted(shown) == sorted(f"{n}/{p} -> {a}:{h}" for (n, p), (a, h) in ports.items())
    assert ok(cli("port", "pub-some", "80")) == f"0.0.0.0:{ports[80, 'tcp'][1]}\n"
    assert ok(cli("port", "pub-some", "81/tcp")) == f"127.0.0.1:{ports[81, 'tcp'][1]}\n"
    [web] = [m for m in domain["network"]["ports"] if m["port"] == 80]
    assert page({"network": {"ports": [{**web, "host_address": "127.0.0.1"}]}}) == "pub-some"
    refused(cli("port", "pub-some", "53"), "port 53/tcp of domain pub-some is not published")
    # Without -P nothing is, and a port of the host is -p's.
    assert made("pub-none", "--network", "nat", "--expose", "80")["network"]["ports"] == []
    refused(cli("run", "--expose", "8080:80", "busybox", "true"), "-p publishes one")


def test_weights_of_two_domains_that_keep_a_service_busy(supervisor, made):
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    ended = threading.Event()

    def sink(c):
        room = bytearray(1 << 20)
        while not ended.is_set() and c.recv_into(room):
            pass
        c.close()

    def take():
        while not ended.is_set():
            try:
                threading.Thread(target=sink, args=(server.accept()[0],), daemon=True).start()
            except OSError:
                return

    threading.Thread(target=take, daemon=True).start()
    port = server.getsockname()[1]
    try:
        for name, weight in [("share-heavy", "1000"), ("share-light", "50")]:
            args = ("--network", "share-net", "--allow", f"10.88.0.1:{port}", "--network-weight", weight)
            made(name, *args, command=FLOOD % port)

        def moved(seconds=1.5):
            def sent():
                both = [supervisor.get(f"/v1/domains/share-{n}/stats").ok() for n in ("heavy", "light")]
                return [stats["network"]["sent"]["bytes"] for stats in both]

            time.sleep(0.3)
            before = sent()
            time.sleep(seconds)
            return [b - a for a, b in zip(before, sent(), strict=True)]

        eventually(lambda: (lambda heavy, light: heavy > 1.2 * light)(*moved()), "the heavy one has more")
        ok(supervisor.cli("update", "--network-weight", "50", "share-heavy"))
        ok(supervisor.cli("update", "--network-weight", "1000", "--network-guarantee", "1g", "share-light"))
        network = supervisor.get("/v1/domains/share-light").ok()["config"]["network"]
        assert (network["weight"], network["guarantee"], network["rules"][0]["action"]) == (1000, 1 << 30, "allow")
        eventually(lambda: (lambda heavy, light: light > 1.2 * heavy)(*moved()), "the other one has more")
    finally:
        ended.set()
        server.close()
    refused(supervisor.cli("run", "--network-weight", "0", "busybox", "true"), "1..=10000")
