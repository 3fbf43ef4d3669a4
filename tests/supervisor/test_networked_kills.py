"""Keepers are killed; connections of their domains go on: no byte is lost, none is reset, and whoever calls is
answered.

DOPPEL_KEEPER_KILLS says how often.
"""

import os
import random
import shutil
import signal
import socket
import threading
import time

import pytest
from conftest import eventually, have_image
from leftovers import services
from test_keeper_kills import KILLS, the_keeper
from test_networks import PORT, UPPER, connected, hibernate, is_awake, is_over, nat, said, sleeper, state, upper  # noqa: F401 (`sleeper` is a fixture)

# Asks the host, another domain by its name, on old connections and new ones, and by datagrams; tells of each round.
OUT = """
import socket, time
def ask(s, word):
    s.sendall(word)
    got = b""
    while len(got) < len(word):
        got += s.recv(len(word) - len(got)) or exit("it is over")
    assert got == word.upper(), got
host, peer = socket.create_connection(("10.88.0.1", %d)), socket.create_connection(("srv", 80))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.settimeout(60)
n = 0
while True:
    word = b"line %%d\\n" %% n * 1000
    ask(host, word)
    ask(peer, word)
    with socket.create_connection(("srv", 80)) as s:
        ask(s, b"new %%d" %% n)
    u.sendto(b"gram %%d" %% n, (socket.gethostbyname("srv"), 53))
    assert u.recv(1000) == b"GRAM %%d" %% n
    print("out", n, flush=True)
    n += 1
    time.sleep(0.005)
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def kill_keeper(d, name="srv"):
    """Kills the keeper, and awaits another one that answers for its domains."""
    old = the_keeper(d)
    os.kill(old, signal.SIGKILL)
    eventually(lambda: d.get(f"/v1/domains/{name}/stats").status == 200 and old not in d.keepers(), "another keeper")


def serve_upper(server):
    """Answers on all connections of a listening socket, in threads."""

    def answer(c):
        try:
            while data := c.recv(65536):
                c.sendall(data.upper())
        except OSError:
            pass  # its domain has ended

    def take():
        while True:
            try:
                c = server.accept()[0]
            except OSError:
                return
            threading.Thread(target=answer, args=(c,), daemon=True).start()

    threading.Thread(target=take, daemon=True).start()


class Load:
    """Does something again and again in a thread, until told to end; what goes wrong is told then."""

    def __init__(self, once, make=lambda: None):
        self.over, self.rounds, self.wrong = False, 0, None

        def run():
            try:
                made = make()
                while not self.over:
                    once(made, self.rounds)
                    self.rounds += 1
                    time.sleep(0.002)
            except Exception as e:  # told by `end`
                self.wrong = e

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def end(self):
        self.over = True
        self.thread.join()
        if self.wrong:
            raise self.wrong
        assert self.rounds > 0


def ask(s, word):
    s.sendall(word)
    got = b""
    while len(got) < len(word):
        more = s.recv(len(word) - len(got))
        assert more, "it is over"
        got += more
    assert got == word.upper()


def loads(tcp, udp):
    """Those of a server at these ports: a stream, requests on one connection, new connections, datagrams."""
    connect = lambda: socket.create_connection(("127.0.0.1", tcp), timeout=60)

    def grams():
        u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        u.settimeout(60)
        u.connect(("127.0.0.1", udp))
        return u

    def one(_, n):
        with connect() as s:
            ask(s, b"new %d" % n)

    return [
        Load(lambda s, n: ask(s, b"line %d\n" % n * 20_000), connect),
        Load(lambda s, n: ask(s, b"request %d" % n), connect),
        Load(one),
        Load(lambda u, n: ask(u, b"gram %d" % n), grams),
    ]


@pytest.fixture
def own(new_doppeld, binaries):
    if not have_image("debian"):
        pytest.skip("no image debian: make test-images")
    return new_doppeld()


@pytest.fixture
def host():
    """A server of the host; its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        serve_upper(server)
        yield server.getsockname()[1]


def start(d, name, program, network, **more):
    body = {"image": "debian", "name": name, "command": ["python3", "-c", program], "network": network, **more}
    return d.post("/v1/domains?start=true", body).ok()["domain"]


def served(d, host):
    """A server and who asks it and the host; the server's ports."""
    server = start(d, "srv", UPPER, nat(PORT, {**PORT, "port": 53, "protocol": "udp"}, name="kills"))
    tcp, udp = (m["host_port"] for m in server["network"]["ports"])
    connected(tcp).close()
    start(d, "out", OUT % host, nat(name="kills", allow=[f"10.88.0.1:{host}"]))
    eventually(lambda: rounds(d) > 0, "it does not begin")
    return tcp, udp


def rounds(d):
    """How many rounds the asking domain has made; it has not ended."""
    assert d.get("/v1/domains/out").ok()["state"] == "running", d.get("/v1/domains/out/logs").lines[-3:]
    return said(d, "/v1/domains/out").count(b"\n")


def pids(d):
    return [d.get(f"/v1/domains/{name}").ok()["pid"] for name in ("srv", "out")]


def test_connections_outlive_keepers(own, host):
    own.start()
    tcp, udp = served(own, host)
    before, service = pids(own), services(own)
    running = loads(tcp, udp)
    late = []
    for _ in range(max(20, KILLS)):
        time.sleep(random.random() * 0.05)
        old = the_keeper(own)
        os.kill(old, signal.SIGKILL)
        # While nobody is there who could answer for it.
        late.append(socket.create_connection(("127.0.0.1", tcp), timeout=60))
        ask(late[-1], b"nobody")
        seen = rounds(own)
        eventually(
            lambda: old not in own.keepers() and own.get("/v1/domains/srv/stats").status == 200, "another keeper"
        )
        eventually(lambda: rounds(own) > seen, "the domain inside gets no further")
    for load in running:
        load.end()
    for s in late:
        ask(s, b"still there")
    assert (pids(own), services(own)) == (before, service)
    [row] = [s for s in own.get("/v1/services").ok() if s["kind"] == "network"]
    assert (row["pid"], row["restarts"], row["domains"]) == (service[0], 0, 2), row
    counted = own.get("/v1/domains/srv/stats").ok()["network"]
    assert counted["received"]["flows"] > running[2].rounds
    # What is set from now on is heeded.
    own.patch("/v1/domains/out", {"network": {}}).ok()
    eventually(lambda: own.get("/v1/domains/out").ok()["state"] == "exited", "its connection to the host is not cut")
    # Whoever hangs or dies is replaced as before.
    for how in (signal.SIGKILL, signal.SIGSTOP):
        s, [old] = connected(tcp), services(own)
        os.kill(old, how)
        assert is_over(s)
        begun = time.monotonic()
        connected(tcp).close()
        print(f"after {how.name} a new connection is answered {time.monotonic() - begun:.3f} s later")
        eventually(lambda: services(own) not in ([], [old]), "no other service")
        kill_keeper(own)
    # What nobody serves any more is free.
    own.delete("/v1/domains/srv", force=True).ok()
    eventually(lambda: socket.create_server(("127.0.0.1", tcp)).close() or True, "its port is taken")


def test_keeper_and_service_die_together(own, host):
    own.config.write_text(own.config.read_text() + "network_shards = 2\n")
    own.start()
    tcp, _udp = served(own, host)
    other = start(own, "other", UPPER, nat(PORT, name="other"))["network"]["ports"][0]["host_port"]
    connected(other).close()
    before = own.get("/v1/domains/srv").ok()
    for _ in range(3):
        open_now = {port: connected(port) for port in (tcp, other)}
        both = services(own)
        old, hit = the_keeper(own), random.choice(both)
        for pid in (old, hit):
            os.kill(pid, signal.SIGKILL)
        eventually(
            lambda: old not in own.keepers() and own.get("/v1/domains/srv/stats").status == 200, "another keeper"
        )
        # One network's connections are over, and begin again at the same ports; the other's have felt nothing.
        fine = [is_fine(s) for s in open_now.values()]
        assert sum(fine) == 1, (
            fine,
            both,
            hit,
            services(own),
            (own.store / "supervisor/keeper.log").read_text()[-2000:],
        )
        for port in open_now:
            connected(port).close()
        eventually(lambda: len(services(own)) == 2, "it is not replaced")
        assert len(set(services(own)) & set(both)) == 1
    now = own.get("/v1/domains/srv").ok()
    assert (now["state"], now["pid"], now["network"]) == ("running", before["pid"], before["network"])


def is_fine(s):
    try:
        return upper(s, b"still") == b"STILL"
    except ConnectionError:
        return False


def test_a_newer_program_takes_networks_over(own, host):
    programs = []
    for name in ("old", "new"):
        programs.append(own.dir / name)
        shutil.copy(own.program, programs[-1])
    own.program = str(programs[0])
    own.start()
    tcp, _udp = served(own, host)
    before = own.get("/v1/domains/srv").ok()
    own.stop()
    own.program = str(programs[1])
    own.start()
    eventually(lambda: os.readlink(f"/proc/{the_keeper(own)}/exe") == str(programs[1]), "the new one's keeper")
    connected(tcp).close()
    now = own.get("/v1/domains/srv").ok()
    assert (now["state"], now["pid"], now["network"]) == ("running", before["pid"], before["network"])
    # Its services are the new one's, too.
    eventually(
        lambda: [os.readlink(f"/proc/{pid}/exe") for pid in services(own)] == [str(programs[1])],
        "the old services stay",
    )


def test_hibernated_domains_keep_their_connections(sleeper):
    d, tcp, _udp = sleeper
    quiet, loud = connected(tcp), connected(tcp)
    for _ in range(3):
        hibernate(d)
        old = the_keeper(d)
        os.kill(old, signal.SIGKILL)
        eventually(lambda: old not in d.keepers() and d.get("/v1/ping").status == 200, "another keeper")
        assert state(d) == "hibernated"
        assert upper(loud, b"hello") == b"HELLO"
        assert is_awake(d)
    assert upper(quiet, b"still there") == b"STILL THERE"
    # The service has gone as well: its connections are over, and it wakes to listen again.
    hibernate(d)
    for pid in (the_keeper(d), *services(d)):
        os.kill(pid, signal.SIGKILL)
    assert is_over(quiet)
    connected(tcp).close()
    assert is_awake(d)
    # Removed while it sleeps: nothing is left.
    hibernate(d)
    old = the_keeper(d)
    os.kill(old, signal.SIGKILL)
    eventually(lambda: [k for k in d.keepers() if k != old] and d.get("/v1/services").ok(), "another keeper")
    d.delete("/v1/domains/sleeper").ok()
    eventually(lambda: socket.create_server(("127.0.0.1", tcp)).close() or True, "its port is taken")


def test_a_service_that_nobody_needs_ends(own, host):
    own.start()
    served(own, host)
    [service] = services(own)
    own.kill()
    for pid in own.keepers():
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not own.keepers(), "the keeper ends")
    # As long as a domain runs it is there; how long it waits for a supervisor after that is in its own tests.
    time.sleep(3)
    assert services(own) == [service]
    own.start()
    eventually(lambda: rounds(own), "it is known")
    assert services(own) == [service]
    for name in ("srv", "out"):
        own.delete(f"/v1/domains/{name}", force=True).ok()
    own.kill()
    for pid in own.keepers():
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not os.path.exists(f"/proc/{service}"), "the service stays though it serves nobody")
