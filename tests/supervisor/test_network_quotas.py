"""How much of a network service a domain may have, as an administrator says it; and what is told of one, and where it
is accounted for."""

import contextlib
import pathlib
import re
import socket
import subprocess

import pytest
from conftest import DOPPELD, have_image
from leftovers import services
from test_network_neighbours import DEAF, make
from test_networks import PORT, eventually, nat, said


@pytest.fixture
def debian():
    if not have_image("debian"):
        pytest.skip("no image debian: make test-images")


def deaf(d, name, **more):
    body = {"image": "debian", "name": name, "command": ["python3", "-c", DEAF], "network": nat(PORT), **more}
    port = d.post("/v1/domains?start=true", body).ok()["domain"]["network"]["ports"][0]["host_port"]
    eventually(lambda: said(d, f"/v1/domains/{name}") == b"ready\n", "it does not listen")
    return port


def rests(look):
    """A figure when it has stopped growing: the same at ten looks in a row."""
    seen = []

    def same():
        seen.append(look())
        return len(seen) > 10 and len(set(seen[-10:])) == 1

    eventually(same, "it grows for ever")
    return seen[-1]


def test_an_administrator_says_how_much_a_domain_may_have(new_doppeld, debian, tmp_path):
    d = new_doppeld(config="[network]\nsockets = 8\n").start()
    port = deaf(d, "few")
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        flows = rests(lambda: d.get("/v1/domains/few/stats").ok()["network"]["received"]["flows"])
        assert flows == 8, "others wait at the host"
    connect = (
        "import errno, socket\n"
        "kept = []\n"
        "try:\n"
        "    while len(kept) < 20:\n"
        f"        kept.append(socket.create_connection(('10.88.0.1', {port})))\n"
        "except OSError as e:\n"
        "    print(len(kept), errno.errorcode[e.errno], flush=True)\n"
    )
    make(d, "many", connect, network=nat(allow=[f"10.88.0.1:{port}/tcp"]))
    eventually(lambda: said(d, "/v1/domains/many") == b"8 EMFILE\n", "sockets are not limited")
    file = tmp_path / "doppeld.toml"
    file.write_text("[network]\nsockets = 0\n")
    refused = subprocess.run([DOPPELD, "--check", "--config", file], capture_output=True, text=True)
    assert refused.returncode != 0 and "network.sockets: must be between 1 and" in refused.stderr


def shared_memory(pid):
    """Bytes of memory files that are charged to a process' control group."""
    text = pathlib.Path(f"/proc/{pid}/cgroup").read_text()
    [(controller, path)] = re.findall(r"^\d+:(memory|):(.*)$", text, re.M)[:1]
    stat = pathlib.Path(f"/sys/fs/cgroup/{controller}{path}/memory.stat").read_text()
    return int(re.search(r"^shmem (\d+)$", stat, re.M)[1])


def test_what_a_domain_receives_is_charged_to_it(new_doppeld, debian):
    d = new_doppeld().start()
    port = deaf(d, "deaf", resources={"memory_bytes": 64 << 20})
    pids = [d.get("/v1/domains/deaf").ok()["pid"], *services(d)]
    before = [shared_memory(pid) for pid in pids]
    with contextlib.ExitStack() as stack:
        for _ in range(120):
            s = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            s.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(4):
                    s.send(bytes(64 << 10))
        domain, service = rests(lambda: tuple(shared_memory(pid) - old for pid, old in zip(pids, before)))
    print(f"after 120 unread connections: domain {domain >> 10} KiB, service {service >> 10} KiB more")
    assert service < 2 << 20, (domain, service)
    assert domain > 120 * 4096, (domain, service)


def test_network_services_are_not_among_the_domains_that_are_bounded_together(new_doppeld, debian):
    d = new_doppeld().start()
    deaf(d, "one")
    [service] = services(d)
    groups = pathlib.Path(f"/proc/{service}/cgroup").read_text()
    named = re.findall(r"/([^/\n]+)/net-\d+-\d+$", groups, re.M)
    assert named and set(named) == {"doppel-services"}, groups


def test_the_longest_step_is_exported(new_doppeld, debian):
    d = new_doppeld().start()
    port = deaf(d, "one")

    def longest():
        text = d.get("/metrics").body.decode()
        return float(re.search(r'^doppel_network_service_longest_step_seconds\{shard="0"\} ([\d.e-]+)$', text, re.M)[1])

    # The service has begun its first step with something to do when somebody calls.
    with socket.create_connection(("127.0.0.1", port)):
        assert eventually(longest, "it has no longest step")
