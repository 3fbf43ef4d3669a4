"""A storage service that cannot begin, or cannot serve a domain: whoever wanted it is told why, others go on."""
import json
import os
import pathlib
import resource
import stat
import subprocess
import time
from typing import Any

import pytest
from conftest import DOPPEL, DOPPELD, ROOT, eventually, ok
from leftovers import of_any_kind
from processes import words

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
REFUSE = str(ROOT / "tests/refuse_filters.py")
CANNOT = "the storage service cannot begin: Operation not permitted"
# Seconds until somebody knows.
SOON = 30


def storage_service(own: Any, domain: str) -> int:
    """Process id of the storage service that a domain has."""
    keeper = eventually(lambda: own.keeper_of(domain), "its keeper")
    return eventually(lambda: [p for p in of_any_kind(keeper) if b"storage-service" in words(p)], "its service")[0]


@pytest.fixture
def refusing(new_doppeld: Any, busybox: Any, tmp_path: pathlib.Path) -> Any:
    """A supervisor whose services cannot begin."""
    program = tmp_path / "doppeld"
    program.write_text(f'#!/bin/sh\nexec {REFUSE} {DOPPELD} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    own = new_doppeld()
    own.program = str(program)
    return own.start()


def test_a_command_of_its_own_says_why(busybox: Any, tmp_path: pathlib.Path) -> None:
    for wants in (["-v", f"{tmp_path}:/data"], ["--persist=refused"]):
        begun = time.monotonic()
        argv = [REFUSE, DOPPEL, "run", "--standalone", *wants, "busybox", "echo", "hello"]
        p = subprocess.run(argv, capture_output=True, timeout=2 * SOON)
        assert (p.returncode, p.stdout) == (125, b""), (p.returncode, p.stdout, p.stderr)
        assert CANNOT in p.stderr.decode(), p.stderr
        assert time.monotonic() - begun < SOON
    ok(subprocess.run([DOPPEL, "layer", "rm", "refused"], capture_output=True, timeout=SOON))
    # Who wants none has none.
    argv = [REFUSE, DOPPEL, "run", "--standalone", "busybox", "echo", "hello"]
    assert ok(subprocess.run(argv, capture_output=True, timeout=SOON)) == "hello\n"


def test_a_start_is_refused_and_others_go_on(refusing: Any) -> None:
    id = ok(refusing.cli("run", "-d", "--no-persist", "--name", "other", "busybox", "sleep", "1000")).strip()
    keeper = eventually(lambda: refusing.keeper_of(id), "it has a keeper")
    for n in range(3):
        begun = time.monotonic()
        p = refusing.cli("run", "-d", "--name", f"d{n}", "busybox", "sleep", "1000")
        assert p.returncode == 125 and CANNOT in p.stderr.decode(), (p.returncode, p.stdout, p.stderr)
        assert time.monotonic() - begun < SOON
        assert ok(refusing.cli("exec", "other", "echo", "alive")) == "alive\n"
    # Nobody has asked for anything wrong.
    made = refusing.post("/v1/domains", {"image": "busybox", "command": ["sleep", "1000"], "name": "made"}).ok()
    detail = refusing.post(f"/v1/domains/{made['domain']['id']}/start").problem(500, "internal")
    assert CANNOT in detail
    assert CANNOT in refusing.get("/v1/domains/made").ok()["exit"]["reason"]
    assert "a storage service cannot begin" in refusing.logged() + log_of(refusing)
    ok(refusing.cli("rm", "made"))
    assert [id.startswith(left) for left in ok(refusing.cli("ps", "-aq")).split()] == [True]
    eventually(lambda: ok(refusing.cli("layer", "ls", "-q")) == "", "no layer is left")
    # While it starts another service it is not told apart from that.
    assert eventually(lambda: refusing.keeper_of(id), "it has a keeper") == keeper


def log_of(own: Any) -> str:
    logs = own.store.glob("supervisor/*.log")
    return "".join(path.read_text(errors="replace") for path in logs)


@pytest.mark.parametrize("options", [[], ["--cpus", "0.5"]])
def test_one_that_has_no_room_refuses_a_domain_and_serves_the_others(
    new_doppeld: Any, busybox: Any, options: list[str]
) -> None:
    """Also one that was made ready, which runs at once: that has no limits."""
    own = new_doppeld().start()
    first = ok(own.cli("run", "-d", "--name", "first", "busybox", "sleep", "1000")).strip()
    service = storage_service(own, first)
    limits = resource.prlimit(service, resource.RLIMIT_NOFILE)
    has = len(os.listdir(f"/proc/{service}/fd"))
    resource.prlimit(service, resource.RLIMIT_NOFILE, (has, limits[1]))
    ok(own.cli("create", "--name", "second", *options, "busybox", "sleep", "1000"))
    own.cli("start", "second")

    def reason() -> Any:
        domain = json.loads(ok(own.cli("inspect", "second")))[0]
        return domain["state"] != "running" and (domain["exit"] or {}).get("reason")

    said = eventually(reason, "it has ended")
    assert "the storage service cannot serve it" in said and "RLIMIT_NOFILE" in said, said
    resource.prlimit(service, resource.RLIMIT_NOFILE, limits)
    assert storage_service(own, first) == service, "it goes on"
    assert ok(own.cli("exec", "first", "sh", "-c", "echo kept > /f; sync; cat /f")) == "kept\n"
    ok(own.cli("start", "second"))
    assert ok(own.cli("exec", "second", "sh", "-c", "echo kept > /f; sync; cat /f")) == "kept\n"


def test_one_that_dies_again_and_again_keeps_nobody_from_the_rest(new_doppeld: Any, busybox: Any) -> None:
    """Its domains wait, the keeper and other domains go on, and it is not started without end."""
    own = new_doppeld().start()
    first = ok(own.cli("run", "-d", "--name", "first", "busybox", "sleep", "1000")).strip()
    other = ok(own.cli("run", "-d", "--name", "other", "--no-persist", "busybox", "sleep", "1000")).strip()
    keeper, killed, end = own.keeper_of(first), set(), time.monotonic() + 2
    while time.monotonic() < end:
        for pid in of_any_kind(keeper):
            if b"storage-service" in words(pid) and pid not in killed:
                killed.add(pid)
                os.kill(pid, 9)
        time.sleep(0.001)
    assert 5 < len(killed) < 60, len(killed)
    assert ok(own.cli("exec", other, "echo", "alive")) == "alive\n"
    assert ok(own.cli("exec", "first", "sh", "-c", "echo kept > /f; sync; cat /f")) == "kept\n"
    assert own.keeper_of(first) == keeper
