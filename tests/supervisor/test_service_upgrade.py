"""Service domains that are listed, counted, and replaced by those of a newer program."""
import json
import os
import re
import shutil
import signal

import pytest
from conftest import DOPPELD, have_image
from leftovers import services
from test_network_shards import ECHO, echoes
from test_networks import PORT, connected, eventually, is_over, nat

NETWORKS = ("red", "blue")


@pytest.fixture
def installed(tmp_path):
    """A supervisor's program at a place of its own."""
    program = tmp_path / "doppeld"
    shutil.copy(DOPPELD, program)
    return program


@pytest.fixture
def served(new_doppeld, installed):
    """A supervisor with two network services, and ports of a server on each of two networks."""
    d = new_doppeld(config="network_shards = 2\n")
    d.program = str(installed)
    d.start()
    if not have_image("debian"):
        pytest.skip("no image debian: make test-images")
    ports = []
    for name in NETWORKS:
        body = {
            "image": "debian",
            "name": f"up-{name}",
            "command": ["python3", "-c", ECHO],
            "network": nat(PORT, name=name),
            # What is kept would be another service's.
            "files": {"persist": False},
        }
        ports.append(d.post("/v1/domains?start=true", body).ok()["domain"]["network"]["ports"][0]["host_port"])
    return d, ports


def listed(d):
    return d.get("/v1/services").ok()


def install(program, write):
    """Puts another file in the place of a program that runs."""
    new = program.with_suffix(".new")
    write(new)
    os.rename(new, program)


def reset_and_back(connections, ports):
    """Established connections are over, and servers go on."""
    for s in connections:
        assert is_over(s)
        s.close()
    for port in ports:
        connected(port).close()


def test_an_upgrade_while_programs_go_on(served, installed):
    d, ports = served
    before = services(d)
    names = {p: os.readlink(f"/proc/{p}/exe") for p in before}
    assert set(names.values()) == {str(installed)}
    connections = [connected(port) for port in ports]
    install(installed, lambda new: shutil.copy(DOPPELD, new))
    rows = [json.loads(line) for line in d.cli("service", "upgrade", "--json").stdout.splitlines()]
    assert [(r["kind"], r["shard"], r["starts"], r["restarts"]) for r in rows] == [("network", n, 2, 0) for n in (0, 1)]
    new = sorted(r["pid"] for r in rows)
    # They are told of once they are started; that they run their program may take a moment longer.
    eventually(lambda: sorted(services(d)) == new, "not these run")
    assert not set(new) & set(before)
    reset_and_back(connections, ports)
    for name in NETWORKS:
        assert d.get(f"/v1/domains/up-{name}").ok()["state"] == "running"


def test_a_newer_supervisor_brings_newer_services(served, installed):
    d, ports = served
    connections = [connected(port) for port in ports]
    before = services(d)
    d.kill()
    d.start()
    # The same one finds its own, and changes nothing; it is asked after it has asked.
    assert [s["starts"] for s in listed(d)] == [1, 1] and services(d) == before
    assert all(echoes(s) for s in connections)
    d.kill()
    install(installed, lambda new: shutil.copy(DOPPELD, new))
    d.start()
    eventually(lambda: [(s["starts"], s["restarts"]) for s in listed(d)] == [(2, 0)] * 2, "they stay")
    reset_and_back(connections, ports)


def test_a_program_that_cannot_begin_replaces_nothing(served, installed):
    d, ports = served
    connections, before = [connected(port) for port in ports], services(d)
    for bad in ("#!/bin/sh\nexit 0\n", "no program\n"):
        install(installed, lambda new: (new.write_text(bad), new.chmod(0o755)))
        assert "stay as they are" in d.post("/v1/services/upgrade", {}).problem(500, "internal")
    # Another program, which begins and does not understand a word.
    install(installed, lambda new: shutil.copy("/bin/true", new))
    assert "stay as they are" in d.post("/v1/services/upgrade", {}).problem(500, "internal")
    assert services(d) == before and all(echoes(s) for s in connections)
    for s in connections:
        s.close()


def test_deaths_and_use_are_told(served):
    d, _ports = served
    [first, second] = listed(d)
    assert {first["pid"], second["pid"]} == set(services(d))
    assert (first["domains"], first["networks"], first["restarts"]) == (1, 1, 0)
    assert first["memory_bytes"] > 1 << 20 and first["cpu_seconds"] >= 0
    os.kill(first["pid"], signal.SIGKILL)
    eventually(lambda: listed(d)[0]["restarts"] == 1 and listed(d)[0]["pid"], "the death is not told")
    varies = {"cpu_seconds": 0, "memory_bytes": 0, "longest_step_seconds": 0}
    assert listed(d)[1] | varies == second | varies
    text = d.get("/metrics").body.decode()
    shown = dict(re.findall(r'^doppel_network_service_restarts_total\{shard="(\d)"\} (\d+)$', text, re.M))
    assert shown == {"0": "1", "1": "0"}
    table = d.cli("service", "ls").stdout.decode().splitlines()
    assert table[0].split()[:5] == ["SERVICE", "SHARD", "PID", "STARTS", "RESTARTS"]
    assert [row.split()[:2] + row.split()[3:5] for row in table[1:]] == [
        ["network", "0", "2", "1"],
        ["network", "1", "1", "0"],
    ]
