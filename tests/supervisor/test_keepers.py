"""Several keepers: each holds domains of one owner, up to a limit, and its end touches no others."""
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import leftovers
import pytest
from conftest import DOPPELD, Answer, eventually
from test_supervisor_faults import sleeper

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


class Owner:
    """A client over TCP, with a token of its own."""

    def __init__(self, d, port, name):
        self.port = port
        made = subprocess.run(
            [DOPPELD, "token", "--config", str(d.config), "add", name], capture_output=True, text=True, check=True
        )
        self.headers = {"authorization": "Bearer " + made.stdout.strip(), "content-type": "application/json"}

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, json.dumps(body) if body is not None else None, self.headers)
        try:
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def run(self, name, **more):
        return self.ask("POST", "/v1/domains?start=true", {**sleeper(name), **more}).ok()["domain"]


@pytest.fixture
def owned(new_doppeld, tmp_path):
    """A supervisor whose keepers hold two domains at most and are soon let go, and two owners."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = (
        f'keeper_domains = 2\nkeeper_idle_seconds = 0\n[tcp]\nlisten = "127.0.0.1:{port}"\ntokens = '
        f'"{tmp_path}/tokens"\n'
    )
    d = new_doppeld(config=config)
    owners = Owner(d, port, "alice"), Owner(d, port, "bob")
    d.start()
    return d, *owners


def keeper(d, domain):
    return eventually(lambda: d.keeper_of(domain["id"]), "it has a keeper")


def all_of(d):
    """Name, state and first process of each domain."""
    return {x["name"]: (x["state"], x.get("pid")) for x in d.get("/v1/domains?all=true").ok()}


def remove_all(d):
    for name in all_of(d):
        d.delete(f"/v1/domains/{name}?force=true").ok()


def runs(d, *names):
    """That somebody speaks for these domains."""
    for name in names:
        # Asked of the next keeper if one dies; an exec is not, which may have run.
        d.get(f"/v1/domains/{name}/stats").ok()
        d.post(f"/v1/domains/{name}/exec", {"command": ["true"]}).ok()


def test_each_owner_has_keepers_of_its_own(owned):
    d, alice, bob = owned
    one = d.keepers()
    assert len(one) == 1
    root = d.post("/v1/domains?start=true", sleeper("root-1")).ok()["domain"]
    a, b = alice.run("alice-1"), bob.run("bob-1")
    of = [keeper(d, x) for x in (root, a, b)]
    assert len(set(of)) == 3 and of[0] == one[0] and set(of) == set(d.keepers())
    # Who manages a domain changes nothing: a start by another owner is for whoever made it.
    d.post("/v1/domains/alice-1/restart", {"timeout_seconds": 0}).ok()
    assert keeper(d, a) == of[1]
    before = all_of(d)
    os.kill(of[1], signal.SIGKILL)
    # Those of others answer at once, whatever becomes of this one's.
    runs(d, "root-1", "bob-1")
    assert [keeper(d, x) for x in (root, b)] == [of[0], of[2]]
    # Its domains go on with another one, which is of their owner too.
    eventually(lambda: keeper(d, a) not in of, "a keeper follows")
    runs(d, "alice-1")
    assert keeper(d, alice.run("alice-2")) == keeper(d, a)
    assert {name: x for name, x in all_of(d).items() if name in before} == before
    remove_all(d)
    leftovers.none_of(d)


def test_a_keeper_holds_no_more_than_its_limit(owned):
    d, alice, _ = owned
    made = [alice.run(f"m{i}") for i in range(5)]
    by = [keeper(d, x) for x in made]
    assert sorted(by.count(k) for k in set(by)) == [1, 2, 2], by
    # Room is used again before another keeper is started.
    d.delete(f"/v1/domains/{made[0]['id']}?force=true").ok()
    assert keeper(d, alice.run("again")) in by
    remove_all(d)
    eventually(lambda: len(d.keepers()) == 1, "empty keepers end")
    eventually(lambda: len(list((d.runtime / "keepers").iterdir())) == 1, "their directories go")
    leftovers.none_at_all(d)


def test_a_domain_s_directory_goes_when_its_keeper_has_forgotten_it(owned):
    """A keeper tells of an end before it writes it down, into the directory that goes with the domain."""
    d, alice, _ = owned
    domain = alice.run("written")
    directory = d.store / "domains" / domain["id"]
    # The keeper waits for a reader where it writes how the domain ended.
    os.mkfifo(directory / "exit.new")
    with ThreadPoolExecutor(1) as pool:
        removal = pool.submit(d.delete, "/v1/domains/written", force=True)
        eventually(lambda: d.get("/v1/domains/written").status == 404, "it is removed")
        time.sleep(0.5)
        waits = directory.exists() and not removal.done()
        if waits:
            reader = os.open(directory / "exit.new", os.O_RDONLY | os.O_NONBLOCK)
            removal.result(60).ok()
            os.close(reader)
    assert waits, "the directory went while the keeper wrote there"
    assert not directory.exists()
    assert "exit of" not in d.logged() and "cannot remove" not in d.logged()
    leftovers.none_of(d)


def test_an_end_that_is_known_needs_no_answer(owned):
    """A domain that ends while it is removed is gone, though its keeper, which said so, answers nothing for a while."""
    d, *_ = owned
    for i in range(4):
        name = f"ends{i}"
        domain = d.post("/v1/domains?start=true", sleeper(name, "sleep 1; seq 1 15000")).ok()["domain"]
        exit_new = d.store / "domains" / domain["id"] / "exit.new"
        # The keeper waits for a reader where it writes how the domain ended.
        os.mkfifo(exit_new)
        with ThreadPoolExecutor(2) as pool:
            logs = pool.submit(d.cli, "logs", "-f", name)
            time.sleep(0.5)
            # It is asked to remove the domain while it still reads what the keeper said before it told of the end.
            os.kill(d.process.pid, signal.SIGSTOP)
            removal = pool.submit(d.delete, f"/v1/domains/{name}", force=True)
            time.sleep(1.5)
            os.kill(d.process.pid, signal.SIGCONT)
            begun = time.monotonic()
            eventually(lambda name=name: d.get(f"/v1/domains/{name}").status == 404, "it is removed")
            took = time.monotonic() - begun
            reader = os.open(exit_new, os.O_RDONLY | os.O_NONBLOCK)
            removal.result(60).ok()
            os.close(reader)
            logs.result(60)
        # One that waits for so long is taken for one that hangs.
        assert took < 25
    leftovers.none_of(d)


def test_domains_of_one_network_stay_together(owned):
    d, alice, bob = owned
    alice.run("a0"), alice.run("a1")
    # Names that the service does not know are refused at once, whatever name server this host has.
    more = {"network": {"kind": "nat", "name": "together", "dns": "127.0.0.1:1"}}
    serve = ["sh", "-c", "hostname > /tmp/index.html; exec httpd -f -p 80 -h /tmp"]
    made = [alice.run(f"n{i}", command=serve, **more) for i in range(3)]
    assert len({keeper(d, x) for x in made}) == 1
    # They find each other by name, whatever the limit; another owner's network of that name is another one.
    bob.run("b0", command=serve, **more)

    def fetch(client, host):
        p = d.cli("exec", client, "wget", "-q", "-O", "-", f"http://{host}/")
        return p.stdout.decode().strip() if p.returncode == 0 else None

    for host in ("n1", "n2"):
        eventually(lambda: fetch("n0", host) == host, f"{host} is found")
    eventually(lambda: fetch("b0", "b0") == "b0", "b0 finds itself")
    assert fetch("b0", "n1") is None and fetch("n0", "b0") is None


def test_domains_that_name_no_network_are_spread(owned):
    d, alice, _ = owned
    serve = ["sh", "-c", "hostname > /tmp/index.html; exec httpd -f -p 80 -h /tmp"]
    made = [alice.run(f"s{i}", command=serve, network={"kind": "nat"}) for i in range(5)]
    by = [keeper(d, x) for x in made]
    assert sorted(by.count(k) for k in set(by)) == [1, 2, 2], by
    # Those that share a keeper find each other still, as those of a network with a name do.

    def finds(name):
        return d.cli("exec", name, "wget", "-q", "-O", "-", "http://s0/").stdout == b"s0\n"

    eventually(lambda: finds("s0"), "it serves")
    assert [finds(x["name"]) for x in made] == [k == by[0] for k in by]
    remove_all(d)


def test_a_supervisor_finds_all_keepers_again(owned):
    d, alice, bob = owned
    made = [alice.run("a1"), alice.run("a2"), alice.run("a3"), bob.run("b1")]
    before = {x["name"]: keeper(d, x) for x in made}
    domains = all_of(d)
    d.kill()
    # One of them dies when nobody looks.
    os.kill(before["b1"], signal.SIGKILL)
    d.start()
    assert all_of(d) == domains
    runs(d, *domains)
    for x in made[:3]:
        assert keeper(d, x) == before[x["name"]]
    # Whose they are is known still: room is used, and not by others.
    assert keeper(d, alice.run("a4")) == before["a3"]
    assert keeper(d, bob.run("b2")) == keeper(d, made[3])


def test_all_keepers_die_at_once(owned):
    d, alice, bob = owned
    made = [*(alice.run(f"a{i}") for i in range(3)), bob.run("b0")]
    domains, old = all_of(d), set(d.keepers())
    for whole in (False, True):
        if whole:
            d.kill()
        for pid in d.keepers():
            os.kill(pid, signal.SIGKILL)
        if whole:
            d.start()
        runs(d, *domains)
        assert all_of(d) == domains
        by = {x["name"]: keeper(d, x) for x in made}
        assert by["a0"] == by["a1"] and len(set(by.values())) == 3 and not old & set(by.values())
        old |= set(by.values())
    # Each is over the domains of its directory alone: what they end is theirs.
    for name in domains:
        d.post(f"/v1/domains/{name}/kill", {"signal": "KILL"}).ok()
        assert d.post(f"/v1/domains/{name}/wait").ok()["exit"]["exit_code"] == 137
    remove_all(d)
    eventually(lambda: not d.kept(), "all processes are gone")
