"""Domains that are removed when they end (`--rm`, `auto_remove`): what "removed" says, and what is left if nobody can
write that down, or the supervisor dies."""
import json
import os
import pathlib
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import leftovers
import pytest
from conftest import DOPPEL, eventually, ok, output_of
from test_supervisor_faults import ROUNDS, consistent

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def brief(name: str, script: str = "true") -> dict[str, Any]:
    return {"image": "busybox", "command": ["sh", "-c", script], "name": name, "auto_remove": True}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def test_name_and_port_are_free_at_once(new_doppeld: Any, busybox: Any) -> None:
    own = new_doppeld().start()
    port = free_port()
    for n in range(10):
        options = ["--name", "again", "-p", f"127.0.0.1:{port}:80", "-v", "/data"]
        run = own.cli("run", "--rm", *options, "busybox", "echo", str(n))
        assert ok(run) == f"{n}\n"
        assert own.get("/v1/domains?all=true").ok() == []
        assert ok(own.cli("volume", "ls", "-q")) == ""
    eventually(lambda: list((own.store / "domains").iterdir()) == [], "their directories go")
    leftovers.none_of(own)


def test_a_supervisor_that_dies_once_it_has_said_so(new_doppeld: Any, busybox: Any) -> None:
    """It is removed again if its row is still there; its name is another's meanwhile."""
    own = new_doppeld().start()
    for n in range(ROUNDS):
        id = own.post("/v1/domains?start=true", brief("gone")).ok(201)["domain"]["id"]
        own.post(f"/v1/domains/{id}/wait?condition=removed")
        if n % 2:
            own.post("/v1/domains?start=true", {**brief("gone", "exec sleep 1000"), "auto_remove": False}).ok(201)
        own.kill()
        own.start()
        eventually(lambda: id not in {x["id"] for x in own.get("/v1/domains?all=true").ok()}, "it is removed again")
        consistent(own)
        if n % 2:
            assert own.get("/v1/domains/gone").ok()["state"] == "running"
            own.delete("/v1/domains/gone?force=true").ok()
    leftovers.none_of(own)


@pytest.fixture
def small(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_keeps_nobody_waiting(new_doppeld: Any, busybox: Any, small: pathlib.Path) -> None:
    own = new_doppeld(directory=small).start()
    try:
        id = own.post("/v1/domains?start=true", brief("ends", "exec sleep 1000")).ok(201)["domain"]["id"]
        with open(small / "fill", "wb", buffering=0) as f:
            try:
                while f.write(b"x" * 4096):
                    pass
            except OSError:
                pass
        # The state grows by no byte from here on.
        own.post(f"/v1/domains/{id}/kill", {"signal": "KILL"}).ok()
        assert own.post(f"/v1/domains/{id}/wait?condition=removed").status in (200, 404)
        assert own.get("/v1/domains/ends").status == 404
        (small / "fill").unlink()
        eventually(lambda: not (own.store / "domains" / id).exists(), "all of it goes when there is room again")
        own.kill()
        own.start()
        assert own.get("/v1/domains?all=true").ok() == []
    finally:
        own.close()


def test_a_program_that_ends_before_its_files_are_known_to_be_served(new_doppeld: Any, busybox: Any) -> None:
    """Its keeper hears both at once: it did start."""
    own = new_doppeld().start()
    ok(own.cli("run", "--rm", "busybox", "true"))
    for n in range(5):
        argv = [DOPPEL, "run", "--rm", "-v", f"v{n}:/data", "busybox", "touch", "/data/x"]
        env = {**os.environ, "DOPPEL_HOST": f"unix://{own.socket}", "DOPPEL_STORE": str(own.store)}
        known = set(own.kept(spares=True))
        p = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        keepers = own.keepers()
        try:
            while p.poll() is None and not set(own.kept(spares=True)) - known:
                pass
            for keeper in keepers:
                os.kill(keeper, 19)
            time.sleep(0.5)
        finally:
            for keeper in keepers:
                os.kill(keeper, 18)
        out, err = p.communicate(timeout=60)
        assert (p.returncode, out, err) == (0, b"", b"")


def test_run_in_one_request(new_doppeld: Any, busybox: Any) -> None:
    """Made, started, followed and removed by one request; what cannot be started is not kept."""
    own = new_doppeld().start()
    script = "echo out; echo err >&2; exit 3"
    for goes in (True, False):
        lines = own.post("/v1/domains/run", {**brief("one", script), "auto_remove": goes}).lines
        first = lines[0]
        assert (first["type"], first["name"], first["warnings"]) == ("started", "one", []), lines
        assert output_of(lines) == (b"out\n", b"err\n", 3) and lines[-1]["type"] == "exit"
        # The stream has ended, so it is gone, or it has ended.
        left = own.get("/v1/domains?all=true").ok()
        assert [x["id"] for x in left] == ([] if goes else [first["id"]])
    own.post("/v1/domains/run", brief("one")).problem(409, "name_in_use")
    own.delete("/v1/domains/one").ok()
    own.post("/v1/domains/run", {**brief("one"), "image": "nosuch"}).problem(404, "image_not_found")
    own.post("/v1/domains/run", {**brief("one"), "env": {"A=B": "c"}}).problem(400, "invalid_request")
    failed = own.cli("run", "--rm", "--name", "one", "busybox", "nosuch-program")
    assert failed.returncode == 127, failed
    assert own.get("/v1/domains?all=true").ok() == []
    # A client that goes away leaves a domain that goes on, as with attach.
    connection = own.connection()
    body = json.dumps(brief("stays", "sleep 1000"))
    connection.request("POST", "/v1/domains/run", body, {"Content-Type": "application/json"})
    connection.getresponse().readline()
    connection.close()
    assert own.get("/v1/domains/stays").ok()["state"] == "running"
    own.delete("/v1/domains/stays?force=true").ok()
    leftovers.none_of(own)
