"""Live flows of domains, and rules of doppeld.toml that hold for all of them."""

import os
import socket
import subprocess

import pytest
from conftest import DOPPEL, DOPPELD, eventually
from test_networks import PORT, nat

# Calls the host, says what came, and stays; beside it a server.
TALK = "(echo hi; sleep 1000) | nc 10.88.0.1 %d & nc -l -p 80 -e cat"


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def make(d, name, command, network):
    body = {"image": "busybox", "name": name, "command": ["sh", "-c", command], "network": network}
    return d.post("/v1/domains", body, start=True).ok()["domain"]


def test_flows(supervisor, busybox, listener):
    port = listener.getsockname()[1]
    domain = make(supervisor, "flowing", TALK % port, nat(PORT, allow=[f"10.88.0.1:{port}"]))
    try:
        called, client = listener.accept()
        mapping = domain["network"]["ports"][0]
        with called, socket.create_connection(("127.0.0.1", mapping["host_port"])) as caller:
            caller.sendall(b"hello")
            assert caller.recv(5) == b"hello"
            assert called.recv(3) == b"hi\n"
            list_of = lambda path="/v1/domains/flowing/flows", **q: supervisor.get(path, **q).ok()
            flows = list_of()["flows"]
            assert len(flows) == 2 and not list_of()["left_out"] and "next" not in list_of()
            [out] = [f for f in flows if f["direction"] == "out"]
            [into] = [f for f in flows if f["direction"] == "in"]
            assert (out["protocol"], out["state"], out["sent_bytes"]) == ("tcp", "established", 3)
            assert out["peer"] == f"10.88.0.1:{port}" and out["host"] == f"127.0.0.1:{client[1]}"
            assert out["name"] == "flowing" and out["domain"] == domain["id"] and "through" not in out
            assert (into["sent_bytes"], into["received_bytes"]) == (5, 5)
            assert into["through"] == f"127.0.0.1:{mapping['host_port']}"
            assert into["local"] == f"{domain['network']['ip4']}:80"
            assert into["peer"] == f"127.0.0.1:{caller.getsockname()[1]}" and into["age_seconds"] < 600
            # Page by page, of all domains.
            first = list_of("/v1/network/flows", limit=1)
            seen = [f for f in first["flows"] if f["name"] == "flowing"]
            while "next" in first:
                first = list_of("/v1/network/flows", limit=1, after=first["next"])
                seen += [f for f in first["flows"] if f["name"] == "flowing"]
            assert sorted(f["direction"] for f in seen) == ["in", "out"]
            for bad in ({"limit": 0}, {"limit": 10_001}, {"after": "x"}):
                supervisor.get("/v1/network/flows", **bad).problem(400, "invalid_request")
            text = supervisor.cli("network", "flows", "flowing").stdout.decode()
            assert text.split()[:3] == ["DOMAIN", "PROTOCOL", "DIRECTION"] and f"10.88.0.1:{port}" in text
            lines = supervisor.cli("network", "flows", "--format", "json").stdout.decode().splitlines()
            assert any('"flowing"' in line and '"through"' in line for line in lines)
        assert supervisor.cli("network", "flows", "nobody").returncode == 1
    finally:
        supervisor.delete("/v1/domains/flowing", force=True)


DENY = '[network]\nrules = [{ action = "deny", pattern = "10.88.0.1" }]\n'
ASK = "while true; do nc -w 5 10.88.0.1 %d < /dev/null; sleep 0.05; done"


def test_rules_for_all_domains(new_doppeld, listener):
    """A domain cannot undo them; the next supervisor's hold for domains that run, too."""
    d = new_doppeld(config=DENY).start()
    port = listener.getsockname()[1]
    make(d, "ruled", ASK % port, nat(rules=[{"action": "allow", "pattern": "10.88.0.1"}]))
    drops = lambda: d.get("/v1/domains/ruled/stats").ok()["network"]["sent"]["drops"]
    eventually(lambda: drops() > 3, "nothing is refused")
    more = {"network": {"rules": [{"action": "allow", "pattern": "any"}], "allow": ["10.88.0.0/16"]}}
    d.patch("/v1/domains/ruled", more).ok()
    before = drops()
    eventually(lambda: drops() > before + 3, "its own rules undo the host's")
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()
    d.kill()
    d.config.write_text(d.config.read_text().replace(DENY, ""))
    d.start()
    listener.settimeout(60)
    listener.accept()[0].close()
    d.kill()
    d.config.write_text(d.config.read_text() + DENY)
    d.start()
    before = drops()
    eventually(lambda: drops() > before + 3, "rules that came with a supervisor do not hold")


def test_a_rule_for_all_domains_that_is_none(new_doppeld):
    one = new_doppeld(config='[network]\nrules = [{ action = "deny", pattern = "10.0.0.0/99" }]\n')
    check = subprocess.run([DOPPELD, "--config", str(one.config), "--check"], capture_output=True, text=True)
    assert check.returncode != 0
    assert 'network.rules: the 1. ("10.0.0.0/99")' in check.stderr, check.stderr


def test_rules_for_all_domains_without_a_supervisor(binaries, busybox, listener, tmp_path):
    file = tmp_path / "doppeld.toml"
    file.write_text(DENY)
    port = listener.getsockname()[1]
    argv = [DOPPEL, "run", "--rm", "--allow", "10.88.0.1", "busybox", "--", "nc", "-w", "5", "10.88.0.1", str(port)]
    env = {k: v for k, v in os.environ.items() if k != "DOPPEL_HOST"} | {"DOPPELD_CONFIG": str(file)}
    said = subprocess.run(argv, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL, timeout=60)
    assert said.returncode != 0 and "denied" in said.stderr.lower(), said
