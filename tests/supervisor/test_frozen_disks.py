"""Domains of a supervisor with disks: hibernated, frozen and cloned, while keepers and supervisors die."""
import json
import os
import signal
from typing import Any

import pytest
from conftest import eventually, ok, refused
from leftovers import of_any_kind
from processes import words

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
# Writes each line it is told to the disk, block by block, and says what is in a block.
PROGRAM = "exec 5<>/dev/vda; echo ready; while read -r line; do echo $line; done; exec sleep 1000"
WRITE = "printf %-16s {} | dd of=/dev/vda bs=4096 seek={} conv=notrunc 2>/dev/null"
READ = "dd if=/dev/vda bs=4096 skip={} count=1 2>/dev/null | tr -d '\\0 '"


@pytest.fixture
def own(new_doppeld: Any, busybox: Any) -> Any:
    return new_doppeld().start()


def begin(own: Any) -> None:
    ok(own.cli("disk", "create", "--size", "4m", "db"))
    ok(own.cli("run", "-d", "-i", "--name", "d", "--block-device", "db", "busybox", "sh", "-c", PROGRAM))
    eventually(lambda: own.cli("logs", "d").stdout == b"ready\n", "it runs")


def write(own: Any, domain: str, text: str, block: int) -> None:
    ok(own.cli("exec", domain, "sh", "-c", WRITE.format(text, block)))


def read(own: Any, domain: str, block: int) -> str:
    return ok(own.cli("exec", domain, "sh", "-c", READ.format(block)))


def disk_of(own: Any, domain: str) -> str:
    return json.loads(ok(own.cli("inspect", domain)))[0]["config"]["files"]["disks"][0]["name"]


def disks(own: Any) -> set[str]:
    return set(ok(own.cli("disk", "ls", "-q")).split())


def services(own: Any) -> list[int]:
    return [p for keeper in own.keepers() for p in of_any_kind(keeper) if b"storage-service" in words(p)]


def test_a_hibernated_domain_wakes_with_its_disk(own: Any) -> None:
    begin(own)
    for n in range(3):
        write(own, "d", f"round{n}", n)
        ok(own.cli("hibernate", "d"))
        if n == 1:
            own.kill()
            own.start()
        ok(own.cli("wake", "d"))
        assert read(own, "d", n) == f"round{n}"
    write(own, "d", "last", 9)
    ok(own.cli("hibernate", "d"))
    ok(own.cli("run", "--rm", "--block-device", "db", "busybox", "sh", "-c", WRITE.format("other", 0)))
    refused(own.cli("wake", "d"), "written to")
    # It is stopped, and starts with what is on the disk.
    ok(own.cli("start", "d"))
    assert read(own, "d", 0) == "other" and read(own, "d", 9) == "last"


def test_clones_have_disks_of_their_own(own: Any) -> None:
    begin(own)
    write(own, "d", "before", 0)
    ok(own.cli("freeze", "d", "f"))
    write(own, "d", "after", 0)
    write(own, "d", "after", 1)
    for n in range(2):
        ok(own.cli("clone", "-d", "--name", f"c{n}", "f"))
        assert read(own, f"c{n}", 0) == "before" and read(own, f"c{n}", 1) == ""
        write(own, f"c{n}", f"c{n}", 0)
    assert [read(own, one, 0) for one in ("d", "c0", "c1")] == ["after", "c0", "c1"]
    # A clone that begins anew has memory and disk of the freeze.
    ok(own.cli("stop", "-t", "0", "c0"))
    ok(own.cli("start", "c0"))
    assert read(own, "c0", 0) == "before"
    own.kill()
    own.start()
    assert [read(own, one, 0) for one in ("d", "c0", "c1")] == ["after", "before", "c1"]
    assert len(disks(own)) == 3
    ok(own.cli("rm", "-f", "c0", "c1"))
    assert disks(own) == {"db"}
    ok(own.cli("frozen", "rm", "f"))
    assert not [one for one in os.listdir(own.store / "disks") if one.startswith(".kept-")]
    assert read(own, "d", 0) == "after"


def test_an_adopted_domain_is_frozen_with_its_disk(own: Any) -> None:
    """Also while the keeper, or its storage service, dies again and again."""
    begin(own)
    for n in range(4):
        write(own, "d", f"n{n}", n)
        for pid in own.keepers() if n % 2 else services(own):
            os.kill(pid, signal.SIGKILL)
        assert read(own, "d", n) == f"n{n}", "it goes on"
        ok(own.cli("freeze", "d", f"f{n}"))
        write(own, "d", "later", n)
        ok(own.cli("clone", "-d", "--name", f"c{n}", f"f{n}"))
        assert [read(own, f"c{n}", k) for k in range(n + 1)] == ["later"] * n + [f"n{n}"]
    assert [read(own, "d", k) for k in range(4)] == ["later"] * 4
