"""Domains of a supervisor with volumes: hibernated, frozen and cloned, while keepers and supervisors die."""
import json
import os
import signal
from typing import Any

import pytest
from conftest import eventually, ok, refused

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
# Adds what it is told to a file that it has open.
PROGRAM = "exec 5>>/data/log; echo begun >&5; while read -r line; do echo $line >&5; done; exec sleep 1000"
ADD = "echo {} >> /data/log; cat /data/log"


@pytest.fixture
def own(new_doppeld: Any, busybox: Any) -> Any:
    return new_doppeld().start()


def begin(own: Any, *volume: str) -> None:
    ok(own.cli("run", "-d", "-i", "--name", "d", *volume, "busybox", "sh", "-c", PROGRAM))
    eventually(lambda: own.cli("exec", "d", "cat", "/data/log").stdout == b"begun\n", "it runs")


def place(own: Any, name: str = "data") -> Any:
    return own.store / "volumes" / name / "_data"


def mounts(own: Any, name: str) -> list[dict[str, Any]]:
    return json.loads(ok(own.cli("inspect", name)))[0]["mounts"]


def test_a_hibernated_domain_wakes_with_its_volume(own: Any) -> None:
    """Which is its own while it sleeps, and in which others have written meanwhile."""
    begin(own, "-v", "data:/data")
    for n in range(3):
        ok(own.cli("exec", "d", "sh", "-c", ADD.format(n)))
        ok(own.cli("hibernate", "d"))
        assert (place(own) / "log").read_text().splitlines()[-1] == str(n), "what waited is written"
        refused(own.cli("volume", "rm", "data"), "in use")
        (place(own) / "host").write_text(f"{n}")
        if n == 1:
            own.kill()
            own.start()
        ok(own.cli("wake", "d"))
        assert ok(own.cli("exec", "d", "cat", "/data/host")) == str(n)
    assert ok(own.cli("exec", "d", "sh", "-c", ADD.format("end"))) == "begun\n0\n1\n2\nend\n"
    ok(own.cli("rm", "-f", "d"))
    eventually(lambda: not list((own.store / "frozen").iterdir()), "nothing is left of its sleep")


def test_clones_have_what_their_volume_says(own: Any) -> None:
    """Clones of one with a shared volume, and of one with a volume of which each clone has a copy."""
    begin(own, "-v", "data:/data", "-v", "copy:/copy:on-clone=snapshot")
    ok(own.cli("exec", "d", "sh", "-c", "echo first > /copy/f; echo first >> /data/log"))
    ok(own.cli("freeze", "d", "image"))
    ok(own.cli("exec", "d", "sh", "-c", "echo later > /copy/f; sync"))
    for name in ("one", "two"):
        ok(own.cli("clone", "-d", "--name", name, "image"))
        assert ok(own.cli("exec", name, "cat", "/copy/f")) == "first\n"
        ok(own.cli("exec", name, "sh", "-c", f"echo {name} > /copy/f; echo {name} >> /data/log; sync"))
    assert (place(own) / "log").read_text() == "begun\nfirst\none\ntwo\n"
    assert (place(own, "copy") / "f").read_text() == "later\n"
    shared, private = mounts(own, "one")
    assert (shared["name"], shared["destination"]) == ("data", "/data")
    assert private["destination"] == "/copy" and private["name"] not in ("data", "copy")
    assert (place(own, private["name"]) / "f").read_text() == "one\n"
    os.kill(own.keeper_of(own.get("/v1/domains/one").ok()["id"]), signal.SIGKILL)
    assert ok(own.cli("exec", "one", "cat", "/copy/f")) == "one\n"
    ok(own.cli("hibernate", "one"))
    ok(own.cli("wake", "one"))
    assert ok(own.cli("exec", "one", "cat", "/copy/f")) == "one\n"
    # One that is frozen itself.
    ok(own.cli("freeze", "one", "again"))
    ok(own.cli("clone", "-d", "--name", "three", "again"))
    assert ok(own.cli("exec", "three", "cat", "/copy/f")) == "one\n"
    refused(own.cli("volume", "rm", private["name"]), "in use")
    for name in ("one", "two", "three"):
        ok(own.cli("rm", "-f", name))
    eventually(lambda: sorted(ok(own.cli("volume", "ls", "-q")).split()) == ["copy", "data"], "copies have gone")


def test_a_clone_that_cannot_begin_leaves_nothing(own: Any) -> None:
    begin(own, "-v", "data:/data", "-v", "copy:/copy:on-clone=fresh")
    ok(own.cli("freeze", "--stop", "d", "image"))
    ok(own.cli("rm", "d"))
    ok(own.cli("volume", "rm", "data"))
    refused(own.cli("clone", "-d", "--name", "one", "image"), "data")
    eventually(lambda: ok(own.cli("volume", "ls", "-q")).split() == ["copy"], "what was made for it has gone")
    assert ok(own.cli("ps", "-aq")) == ""
