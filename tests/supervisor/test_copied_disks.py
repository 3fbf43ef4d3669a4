"""Snapshots and clones of disks that running domains write."""
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import DOPPEL, eventually, ok, refused
from test_frozen_disks import begin, disks, read, services, write

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

# Writes one number to all blocks of the first MiB, in their order, then the next one.
COUNTER = r"""
import os, sys
fd = os.open("/dev/vda", os.O_RDWR)
print("ready", flush=True)
n = 0
while True:
    n += 1
    for block in range(256):
        os.pwrite(fd, n.to_bytes(8, "little"), block * 4096)
"""
# What it has left: each block is of the last round or of the one before, in their order.
COUNTED = r"""
import os
fd = os.open("/dev/vda", os.O_RDONLY)
found = [int.from_bytes(os.pread(fd, 8, block * 4096), "little") for block in range(256)]
assert found == sorted(found, reverse=True) and found[0] - found[-1] <= 1, found
print(found[0])
"""
# Numbers each transaction in two tables, one of which is indexed, and says which are in.
DATABASE = r"""
import sqlite3, subprocess
assert not subprocess.call(["mount", "-t", "doppelfs", "/dev/vda", "/mnt"])
db = sqlite3.connect("/mnt/db", isolation_level=None)
db.execute("PRAGMA journal_mode=%s" % "{mode}")
db.execute("PRAGMA synchronous=FULL")
db.execute("CREATE TABLE a (n INTEGER PRIMARY KEY, text TEXT)")
db.execute("CREATE TABLE b (n INTEGER, text TEXT)")
db.execute("CREATE INDEX i ON b (text)")
n = 0
while True:
    n += 1
    db.execute("BEGIN")
    db.execute("INSERT INTO a VALUES (?, ?)", (n, str(n) * 100))
    db.execute("INSERT INTO b VALUES (?, ?)", (n, str(n * 7919 % 10007) * 50))
    db.execute("COMMIT")
    print(n, flush=True)
"""
WHOLE = r"""
import sqlite3, subprocess
assert not subprocess.call(["mount", "-t", "doppelfs", "/dev/vda", "/mnt"])
db = sqlite3.connect("/mnt/db")
assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
[(n, last)] = db.execute("SELECT count(*), max(n) FROM a").fetchall()
assert db.execute("SELECT count(*), max(n) FROM b").fetchall() == [(n, last)] and n == last
print(n)
"""


@pytest.fixture
def own(new_doppeld: Any, busybox: Any) -> Any:
    return new_doppeld().start()


def inspect(own: Any, disk: str) -> Any:
    return json.loads(ok(own.cli("disk", "inspect", disk)))[0]


def on(own: Any, disk: str, program: str) -> str:
    """What a program prints that has this disk."""
    return ok(own.cli("run", "--rm", "--block-device", disk, "debian", "python3", "-c", program))


def left_over(own: Any) -> list[str]:
    return [one for one in os.listdir(own.store / "disks") if one.startswith((".kept-", ".wanted-", ".new-"))]


def layers(own: Any) -> int:
    return len(os.listdir(own.store / "disks/.layers"))


def start(own: Any, name: str, program: str, *opts: str) -> None:
    ok(own.cli("run", "-d", "--name", name, *opts, "debian", "python3", "-c", program))


def test_a_snapshot_and_a_clone_of_a_disk_that_is_written(own: Any) -> None:
    begin(own)
    write(own, "d", "before", 0)
    assert ok(own.cli("disk", "snapshot", "db", "snap")) == "snap\n"
    assert ok(own.cli("disk", "clone", "db", "two")) == "two\n"
    made = own.post("/v1/disks", {"name": "three", "source": "db", "snapshot": True}).ok(201)
    assert made["snapshot"] and not made["in_use"]
    own.post("/v1/disks", {"name": "three", "source": "db"}).problem(409, "name_in_use")
    write(own, "d", "after", 0)
    for one in ("snap:ro", "two", "three:ro"):
        found = ok(own.cli("run", "--rm", "--block-device", one, "busybox", "head", "-c", "6", "/dev/vda"))
        assert found == "before", one
    ok(own.cli("run", "--rm", "--block-device", "two", "busybox", "sh", "-c", "printf others > /dev/vda"))
    assert read(own, "d", 0) == "after"
    # Three copies of the same bytes take one layer of it.
    assert inspect(own, "db")["layers"] == 2
    # What is not changed stays though the disk it is of goes.
    ok(own.cli("rm", "-f", "d"))
    ok(own.cli("disk", "rm", "db"))
    assert ok(own.cli("run", "--rm", "--block-device", "snap:ro", "busybox", "head", "-c", "6", "/dev/vda")) == "before"
    for one in ("snap", "two", "three"):
        ok(own.cli("disk", "rm", one))
    assert layers(own) == 0 and not left_over(own)


def test_all_of_a_disk_is_of_one_moment(own: Any) -> None:
    """Raw bytes, written without an end, and nothing of them is synced."""
    ok(own.cli("disk", "create", "--size", "2m", "db"))
    start(own, "d", COUNTER, "--block-device", "db")
    eventually(lambda: own.cli("logs", "d").stdout == b"ready\n", "it runs")
    rounds = []
    for n in range(20):
        ok(own.cli("disk", *(("snapshot", "clone")[n % 2], "db", f"s{n}")))
    for n in range(20):
        rounds.append(int(on(own, f"s{n}:ro", COUNTED)))
    assert rounds == sorted(rounds) and rounds[-1] > rounds[0], rounds
    ok(own.cli("rm", "-f", "d"))
    assert int(on(own, "db", COUNTED)) >= rounds[-1]
    assert not left_over(own)


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_database_while_it_writes(own: Any, mode: str) -> None:
    """Each of twenty snapshots is mounted, is whole, and has all that was acknowledged before it was asked for."""
    ok(own.cli("disk", "create", "--size", "64m", "--format", "db"))
    start(own, "d", DATABASE.replace("{mode}", mode), "--block-device", "db")
    said = lambda: ok(own.cli("logs", "d")).split()
    eventually(lambda: len(said()) > 3, "it writes")
    least = []
    for n in range(20):
        least.append(int(said()[-1]))
        ok(own.cli("disk", "clone", "db", f"s{n}"))
    most = int(said()[-1])
    found = [
        int(ok(own.cli("run", "--rm", "--block-device", f"s{n}", "debian", "python3",
                       "-c", WHOLE)))
        for n in range(20)
    ]
    assert all(a <= b <= most + 1 for a, b in zip(least, found, strict=True)), (least, found, most)
    assert found == sorted(found)


def test_readers_do_not_matter_and_are_not_disturbed(own: Any) -> None:
    ok(own.cli("disk", "create", "--size", "1m", "db"))
    ok(own.cli("run", "--rm", "--block-device", "db", "busybox", "sh", "-c", "printf hello > /dev/vda"))
    for n in range(2):
        ok(own.cli("run", "-d", "--name", f"r{n}", "--block-device", "db:ro", "busybox", "sleep", "1000"))
    ok(own.cli("disk", "snapshot", "db", "snap"))
    ok(own.cli("disk", "clone", "db", "two"))
    look = ("head", "-c", "5", "/dev/vda")
    assert [ok(own.cli("exec", f"r{n}", *look)) for n in range(2)] == ["hello"] * 2
    for pid in services(own):
        os.kill(pid, signal.SIGKILL)
    assert [ok(own.cli("exec", f"r{n}", *look)) for n in range(2)] == ["hello"] * 2
    # A snapshot that is read is copied as ever.
    ok(own.cli("run", "-d", "--name", "r2", "--block-device", "snap:ro", "busybox", "sleep", "1000"))
    ok(own.cli("disk", "clone", "snap", "three"))
    assert ok(own.cli("run", "--rm", "--block-device", "three", "busybox", *look)) == "hello"


def test_domains_that_stand_still_or_sleep(own: Any) -> None:
    begin(own)
    write(own, "d", "before", 0)
    ok(own.cli("pause", "d"))
    ok(own.cli("disk", "snapshot", "db", "paused"))
    assert json.loads(ok(own.cli("inspect", "d")))[0]["state"] == "paused", "it stays so"
    ok(own.cli("unpause", "d"))
    assert read(own, "d", 0) == "before"
    write(own, "d", "after", 0)
    ok(own.cli("hibernate", "d"))
    ok(own.cli("disk", "clone", "db", "asleep"))
    ok(own.cli("wake", "d"))
    assert read(own, "d", 0) == "after"
    write(own, "d", "later", 0)
    ok(own.cli("freeze", "d", "f"))
    ok(own.cli("clone", "-d", "--name", "c", "f"))
    [of_clone] = disks(own) - {"db", "paused", "asleep"}
    write(own, "c", "clones", 0)
    ok(own.cli("disk", "snapshot", of_clone, "of-clone"))
    write(own, "c", "newest", 0)
    first = ("head", "-c", "6", "/dev/vda")
    for one, what in (("paused:ro", "before"), ("asleep", "after "), ("of-clone:ro", "clones")):
        assert ok(own.cli("run", "--rm", "--block-device", one, "busybox", *first)) == what
    assert read(own, "d", 0) == "later" and read(own, "c", 0) == "newest"


def test_what_is_refused(own: Any, tmp_path: Path) -> None:
    begin(own)
    refused(own.cli("disk", "snapshot", "db", "db"), "there is a disk")
    refused(own.cli("disk", "snapshot", "none", "x1"), "no disk")
    assert not left_over(own) and inspect(own, "db")["layers"] == 1
    # A domain of nobody's: its process alone has it.
    ok(own.cli("disk", "create", "--size", "1m", "lone"))
    argv = [DOPPEL, "run", "--standalone", "-i", "--block-device", "lone", "busybox", "sh", "-c", "echo ready; cat"]
    env = {**os.environ, "DOPPEL_HOST": f"unix://{own.socket}", "DOPPEL_STORE": str(own.store)}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as p:
        assert p.stdout is not None and p.stdout.readline() == b"ready\n"
        refused(own.cli("disk", "snapshot", "lone", "x1"), "no supervisor of this store runs")
        own.post("/v1/disks", {"name": "x1", "source": "lone"}).problem(409, "in_use")
        p.communicate()
    ok(own.cli("disk", "snapshot", "lone", "x1"))


def test_no_more_than_64_layers(own: Any) -> None:
    begin(own)
    for n in range(63):
        write(own, "d", f"n{n}", 0)
        ok(own.cli("disk", "snapshot", "db", f"s{n}"))
    write(own, "d", "n63", 0)
    refused(own.cli("disk", "snapshot", "db", "more"), "64 layers are the most")
    own.post("/v1/disks", {"name": "more", "source": "db"}).problem(409, "wrong_state")
    assert "more" not in disks(own) and inspect(own, "db")["layers"] == 64 and not left_over(own)
    assert read(own, "d", 0) == "n63"
    first = ("head", "-c", "4", "/dev/vda")
    for n in (0, 31, 62):
        assert ok(own.cli("run", "--rm", "--block-device", f"s{n}:ro", "busybox", *first)).strip() == f"n{n}"
    ok(own.cli("rm", "-f", "d"))
    ok(own.cli("disk", "flatten", "db"))
    ok(own.cli("disk", "snapshot", "db", "more"))


def test_a_cut_that_fails_changes_nothing(own: Any) -> None:
    """The host has no room for what the disk would go on with: it goes on with what it has, whoever dies then."""
    begin(own)
    write(own, "d", "first", 0)
    # Nothing can be made in its place.
    (own.store / "disks/db/.live").mkdir()
    refused(own.cli("disk", "snapshot", "db", "snap"), "cannot make")
    write(own, "d", "second", 1)
    assert disks(own) == {"db"} and inspect(own, "db")["layers"] == 1 and not left_over(own)
    (own.store / "disks/db/.live").rmdir()
    old = own.keepers()
    os.kill(old[0], signal.SIGKILL)
    eventually(lambda: own.keepers() and own.keepers() != old, "another keeper")
    assert [read(own, "d", n) for n in range(2)] == ["first", "second"]
    ok(own.cli("disk", "snapshot", "db", "snap"))
    assert layers(own) == 2


def test_a_domain_that_does_not_stand_still(own: Any) -> None:
    """It is refused in bounded time, nothing stays, and others are not kept from their disks meanwhile."""
    begin(own)
    [pid] = {one["pid"] for one in own.get("/v1/domains").ok()}
    ok(own.cli("disk", "create", "--size", "1m", "other"))
    # Its kernel does not answer.
    os.kill(pid, signal.SIGSTOP)
    begun = time.monotonic()
    answers: list[Any] = []
    ask = threading.Thread(target=lambda: answers.append(own.cli("disk", "snapshot", "db", "snap", timeout=120)))
    ask.start()
    try:
        time.sleep(1)
        at = time.monotonic()
        ok(own.cli("disk", "snapshot", "other", "others"))
        assert time.monotonic() - at < 5
        ask.join(100)
        assert answers and time.monotonic() - begun < 80
        refused(answers[0], "do not stop")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert disks(own) == {"db", "other", "others"} and not left_over(own)
    write(own, "d", "goes on", 3)
    ok(own.cli("disk", "snapshot", "db", "snap"))


@pytest.mark.parametrize("victim", ["service", "keeper", "supervisor"])
def test_whoever_dies_meanwhile(own: Any, victim: str) -> None:
    """Nothing that was written is lost, a copy is whole or not there, and nothing is left over."""
    ok(own.cli("disk", "create", "--size", "2m", "db"))
    start(own, "d", COUNTER, "--block-device", "db")
    eventually(lambda: own.cli("logs", "d").stdout == b"ready\n", "it runs")
    delays = [0, 1, 2, 4, 6, 8, 10, 12, 15, 20, 30, 50]
    for n, delay in enumerate(delays):
        env = {**os.environ, "DOPPEL_HOST": f"unix://{own.socket}", "DOPPEL_STORE": str(own.store)}
        with subprocess.Popen([DOPPEL, "disk", "snapshot", "db", f"s{n}"], env=env, stderr=subprocess.PIPE) as p:
            time.sleep(0.02 + delay / 1000)
            if victim == "supervisor":
                own.kill()
            else:
                for pid in services(own) if victim == "service" else own.keepers():
                    os.kill(pid, signal.SIGKILL)
            p.communicate(timeout=120)
        if victim == "supervisor":
            own.start()
        elif victim == "service":
            assert p.returncode == 0, "the next service goes on"
        # A copy that was not answered may be there, and is whole then.
        if p.returncode == 0:
            assert f"s{n}" in disks(own)
    made = sorted(disks(own) - {"db"}, key=lambda name: int(name[1:]))
    rounds = [int(on(own, f"{one}:ro", COUNTED)) for one in made]
    assert rounds == sorted(rounds)
    ok(own.cli("rm", "-f", "d"))
    assert int(on(own, "db", COUNTED)) >= max(rounds, default=0)
    for one in disks(own):
        ok(own.cli("disk", "rm", one))
    assert layers(own) == 0 and not left_over(own)
