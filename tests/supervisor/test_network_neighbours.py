"""What domains may do to the service they share, as much of it as they may: it goes on, and a neighbour loses no
connection."""

import socket
import threading

import pytest
from conftest import have_image
from leftovers import services
from test_network_shards import ECHO
from test_networks import PORT, connected, eventually, nat, said, upper

MANY = """
import resource, socket, sys, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
"""
DEAF = (
    MANY
    + """
s = socket.create_server(("", 80), backlog=4096)
print("ready", flush=True)
kept = []
while True:
    kept.append(s.accept()[0])
"""
)
FILL = (
    MANY
    + """
kept = []
for _ in range(int(sys.argv[2])):
    c = socket.create_connection((sys.argv[1], 80))
    c.setblocking(False)
    kept.append(c)
    try:
        while True:
            c.send(bytes(1 << 16))
    except BlockingIOError:
        pass
print("full", flush=True)
time.sleep(1000)
"""
)
ABANDON = (
    MANY
    + """
kept = []
for _ in range(int(sys.argv[2])):
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.sendto(b"x", ("10.88.0.1", int(sys.argv[1])))
    kept.append(u)
"""
)


@pytest.fixture
def shared(new_doppeld):
    """A supervisor with one network service, and a connection to a domain that echoes in capitals."""
    if not have_image("debian"):
        pytest.skip("no image debian: make test-images")
    d = new_doppeld().start()
    port = make(d, "victim", ECHO, network=nat(PORT, name="victims"))["network"]["ports"][0]["host_port"]
    with connected(port) as s:
        assert upper(s, b"before") == b"BEFORE"
        yield d, s


def make(d, name, code, *args, network):
    body = {"image": "debian", "name": name, "command": ["python3", "-c", code, *args], "network": network}
    return d.post("/v1/domains?start=true", body).ok()["domain"]


def asked_all_the_time(s, attack):
    """What an attack is done beside: a neighbour that asks, and is answered each time."""
    over, answers = threading.Event(), []

    def ask():
        while not over.is_set():
            answers.append(upper(s, b"still"))

    t = threading.Thread(target=ask)
    t.start()
    try:
        attack()
    finally:
        over.set()
        t.join()
    assert set(answers) == {b"STILL"}


def test_connections_that_nobody_reads_are_removed_with_their_domains(shared):
    d, s = shared
    before = services(d)

    def attack():
        deaf = make(d, "deaf", DEAF, network=nat(name="attackers"))
        eventually(lambda: said(d, "/v1/domains/deaf") == b"ready\n", "it does not listen")
        make(d, "fill", FILL, deaf["network"]["ip4"], "2000", network=nat(name="attackers"))
        eventually(lambda: said(d, "/v1/domains/fill") == b"full\n", "not all are full")
        for name in ("fill", "deaf"):
            d.delete(f"/v1/domains/{name}", force=True).ok()

    asked_all_the_time(s, attack)
    assert services(d) == before, "the service was killed"


def test_thousands_of_sockets_are_opened_and_abandoned(shared):
    d, s = shared
    before = services(d)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
        ear.bind(("127.0.0.1", 0))
        port = ear.getsockname()[1]

        def attack():
            make(
                d, "abandon", ABANDON, str(port), "8000", network=nat(allow=[f"10.88.0.1:{port}/udp"], name="attackers")
            )
            assert d.post("/v1/domains/abandon/wait", {}).ok()["exit"]["exit_code"] == 0
            d.delete("/v1/domains/abandon").ok()

        asked_all_the_time(s, attack)
    assert services(d) == before, "the service was killed"
