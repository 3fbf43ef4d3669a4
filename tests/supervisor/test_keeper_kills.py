"""Keepers are killed; their domains go on: nothing that a program prints is lost or comes twice, exit codes are right.

DOPPEL_KEEPER_KILLS and DOPPEL_KEPT_DOMAINS say how often, and with how many domains (`make soak`: 200 and 50).
"""
import json
import os
import pathlib
import random
import shutil
import signal
import threading
import time

import pytest
from conftest import eventually, of_group, output_of

KILLS = int(os.environ.get("DOPPEL_KEEPER_KILLS", "6"))
DOMAINS = int(os.environ.get("DOPPEL_KEPT_DOMAINS", "6"))
# Numbered lines on both streams, until it is told to end; the last one says how many there were.
BUSY = """
trap 'over=1' TERM
n=0
while [ -z "$over" ]; do
  for _ in 1 2 3 4 5 6 7 8; do echo "out $n"; echo "err $n" >&2; n=$((n + 1)); done
  usleep 20000
done
echo "end $n"
exit %d
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def own(new_doppeld, busybox):
    return new_doppeld().start()


def start(d, name, script, **more):
    wanted = {"image": "busybox", "name": name, "command": ["sh", "-c", script], **more}
    return d.post("/v1/domains?start=true", wanted).ok()["domain"]


def busy(d, name, code, **more):
    """A domain that prints until it is told to end; PID 1 does not hear SIGTERM before it says that it wants to."""
    made = start(d, name, BUSY % code, **more)
    eventually(lambda: d.get(f"/v1/domains/{name}/logs").body, f"{name} has begun")
    return made


def the_keeper(d):
    """The keeper; what it is just starting looks like it for a moment."""
    return eventually(lambda: found[0] if len(found := d.keepers()) == 1 else None, "there is one keeper")


def kill_keeper(d):
    """Kills the keeper; how long it takes until another one answers for its domains."""
    old = the_keeper(d)
    os.kill(old, signal.SIGKILL)
    begun = time.monotonic()
    eventually(lambda: d.get("/v1/domains/b0/stats").status == 200 and old not in d.keepers(), "another keeper")
    return time.monotonic() - begun


def check(text, word):
    """All lines are there, in order, once; how many there are."""
    lines = [line for line in text.decode().splitlines() if line.startswith(word)]
    wrong = [(i, line) for i, line in enumerate(lines) if line != f"{word} {i}"]
    assert not wrong, wrong[:3]
    return len(lines)


def follow(d, name, into):
    """Reads what a domain prints until it ends, in a thread."""

    def read():
        connection = d.connection(timeout=600)
        connection.request("GET", f"/v1/domains/{name}/logs?follow=true")
        for line in connection.getresponse():
            into.append(json.loads(line))

    thread = threading.Thread(target=read)
    thread.start()
    return thread


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_domains_outlive_their_keepers(own, kind):
    count, kills = (DOMAINS, KILLS) if kind == "para" else (2, max(2, KILLS // 20))
    pids = {}
    for i in range(count):
        # Some have a network, which goes on as well.
        network = {"network": {"kind": "nat"}} if i % 5 == 1 else {}
        busy(own, f"b{i}", 10 + i, kind=kind, log={"max_bytes": 64 << 20, "max_files": 3}, **network)
        pids[f"b{i}"] = own.get(f"/v1/domains/b{i}").ok()["pid"]
    followed = []
    follower = follow(own, "b0", followed)
    eventually(lambda: followed, "it is followed")
    short, took = {}, []
    for k in range(kills):
        # One that ends about when its keeper does.
        short[f"s{k}"] = 100 + k % 100
        start(own, f"s{k}", f"echo only; usleep {random.randrange(60000)}; exit {100 + k % 100}", kind=kind)
        time.sleep(random.random() * 0.05)
        took.append(kill_keeper(own))
    print(
        f"{kind}: {kills} kills, the next keeper answers after {sorted(took)[len(took) // 2]:.3f} s, at most "
        f"{max(took):.3f} s"
    )
    for name, code in short.items():
        assert own.post(f"/v1/domains/{name}/wait").ok()["exit"]["exit_code"] == code, name
        assert output_of(own.get(f"/v1/domains/{name}/logs").lines)[0] == b"only\n", name
    for name, pid in pids.items():
        now = own.get(f"/v1/domains/{name}").ok()
        assert (now["state"], now["pid"]) == ("running", pid), now
        own.post(f"/v1/domains/{name}/kill", {"signal": "TERM"}).ok()
    for i, name in enumerate(pids):
        exit = own.post(f"/v1/domains/{name}/wait").ok()["exit"]
        assert (exit["exit_code"], exit.get("reason")) == (10 + i, None), exit
        out, err, _ = output_of(own.get(f"/v1/domains/{name}/logs").lines)
        lines = check(out, "out")
        assert lines == check(err, "err") and out.endswith(f"end {lines}\n".encode()), name
    follower.join()
    out, err, code = output_of(followed)
    assert all(line["type"] != "lost" for line in followed)
    assert (check(out, "out"), code) == (check(err, "err"), 10)
    # What is left is the last keeper's own.
    for name in [*pids, *short]:
        own.delete(f"/v1/domains/{name}").ok()
    eventually(lambda: not own.kept(), "all processes are gone")


def holds(area, lines):
    """Whether one of these is in a control area; an attendant that begins has not put its own in its place yet."""
    return area.exists() and any(line in area.read_bytes() for line in lines)


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_input_comes_once(own, kind):
    # More than the ring holds, so that it is on its way when the keeper dies.
    lines = b"".join(b"line %d\n" % i for i in range(20000))
    start(own, "b0", "while [ ! -e /go ]; do usleep 10000; done; cat; exit 3", kind=kind, stdin=True)
    pid, answers = own.get("/v1/domains/b0").ok()["pid"], []
    giver = threading.Thread(target=lambda: answers.append(own.post("/v1/domains/b0/input?close=true", lines)))
    giver.start()
    area = pathlib.Path(f"/proc/{pid}/fd/{0 if kind == 'para' else 9}")
    # An attendant takes some of it before its program does.
    there = [b"line %d000\n" % i for i in range(1, 20)]
    for _ in range(2):
        eventually(lambda: holds(area, there), "it has what there is room for")
        kill_keeper(own)
    own.cli("exec", "b0", "touch", "/go").check_returncode()
    giver.join()
    assert answers and answers[0].status < 300, answers and answers[0].body
    assert own.post("/v1/domains/b0/wait").ok()["exit"]["exit_code"] == 3
    assert output_of(own.get("/v1/domains/b0/logs").lines)[0] == lines


def test_what_was_set_stays(own):
    x = busy(own, "b0", 7, resources={"memory_bytes": 64 << 20, "cpus": 0.5})
    busy(own, "still", 8)
    start(own, "fed", "cat; exit 5", stdin=True)
    own.post("/v1/domains/fed/input", b"before\n").ok()
    own.post("/v1/domains/still/pause").ok()
    printed = own.get("/v1/domains/still/logs").body

    def limits():
        pid = own.get("/v1/domains/b0").ok()["pid"]
        # Whoever is restless beside others has less of the CPU for a while, never more.
        quota = of_group(pid, "cpu", "cpu.cfs_quota_us", "cpu.max").split()[0]
        period = of_group(pid, "cpu", "cpu.cfs_period_us", "cpu.max").split()[-1]
        capped = quota != "max" and 0 < int(quota) <= int(period) / 2
        return of_group(pid, "memory", "memory.limit_in_bytes", "memory.max"), capped

    before = limits()
    assert before[1]
    kill_keeper(own)
    assert limits() == before
    assert own.get("/v1/domains/still").ok()["state"] == "paused"
    assert own.get("/v1/domains/still/logs").body == printed
    own.post("/v1/domains/still/unpause").ok()
    eventually(lambda: own.get("/v1/domains/still/logs").body != printed, "it goes on")
    # A program more, memory changed, input, an end: all as before.
    e = own.post("/v1/domains/b0/exec", {"command": ["echo", "more"]}).ok()
    assert output_of(own.get(f"/v1/execs/{e['id']}/output").lines) == (b"more\n", b"", 0)
    own.patch("/v1/domains/b0", {"resources": {"memory_bytes": 96 << 20}}).ok()
    kill_keeper(own)
    assert limits()[0] != before[0] and limits()[1]
    own.post("/v1/domains/fed/input?close=true", b"after\n").ok()
    assert own.post("/v1/domains/fed/wait").ok()["exit"]["exit_code"] == 5
    assert output_of(own.get("/v1/domains/fed/logs").lines)[0] == b"before\nafter\n"
    # Killed as asked for; one that somebody kills while it has no keeper ends too, and is known to.
    own.post("/v1/domains/still/kill", {"signal": "KILL"}).ok()
    assert own.post("/v1/domains/still/wait").ok()["exit"]["exit_code"] == 137
    keeper = the_keeper(own)
    os.kill(keeper, signal.SIGSTOP)
    os.kill(own.get("/v1/domains/b0").ok()["pid"], signal.SIGKILL)
    os.kill(keeper, signal.SIGKILL)
    exit = own.post("/v1/domains/b0/wait").ok()["exit"]
    assert exit["exit_code"] == 125 and "keeper" in exit["reason"], exit
    assert x["name"] == "b0"


def test_a_keeper_dies_just_after_a_restart(own):
    start(own, "b0", "exec sleep 1000")
    for _ in range(5):
        own.post("/v1/domains/b0/restart", {"timeout_seconds": 0}).ok()
        pid = own.get("/v1/domains/b0").ok()["pid"]
        # What is left of the run before is not taken for the domain.
        kill_keeper(own)
        own.post("/v1/domains/b0/exec", {"command": ["true"]}).ok()
        assert own.get("/v1/domains/b0").ok()["pid"] == pid
    own.post("/v1/domains/b0/kill", {"signal": "KILL"}).ok()
    assert own.post("/v1/domains/b0/wait").ok()["exit"]["exit_code"] == 137


def test_a_keeper_that_hangs_is_replaced(own):
    busy(own, "b0", 4)
    pid = own.get("/v1/domains/b0").ok()["pid"]
    for supervisor_too in (False, True):
        keeper = the_keeper(own)
        os.kill(keeper, signal.SIGSTOP)
        if supervisor_too:
            own.kill()
            own.start()
        # Asked of the next keeper.
        own.get("/v1/domains/b0/stats").ok()
        eventually(lambda: keeper not in own.keepers(), "it is killed")
        own.post("/v1/domains/b0/exec", {"command": ["true"]}).ok()
        assert own.get("/v1/domains/b0").ok()["pid"] == pid
    own.post("/v1/domains/b0/kill", {"signal": "TERM"}).ok()
    assert own.post("/v1/domains/b0/wait").ok()["exit"]["exit_code"] == 4
    out, err, _ = output_of(own.get("/v1/domains/b0/logs").lines)
    assert check(out, "out") == check(err, "err")


def test_a_freeze_whose_keeper_dies(own):
    # So much memory that writing it takes longer than the keeper lives.
    start(own, "b0", "dd if=/dev/urandom of=/dev/shm/much bs=1M count=64 2>/dev/null; echo ready; " + BUSY % 3)
    logs = lambda: own.get("/v1/domains/b0/logs").body
    eventually(lambda: b"end" in logs() or len(logs()) > 1000, "it has its memory")
    pid = own.get("/v1/domains/b0").ok()["pid"]
    for i, stop in enumerate((False, True)):
        answers = []
        ask = lambda: answers.append(own.post("/v1/domains/b0/freeze", {"frozen": f"z{i}", "stop": stop}))
        freeze = threading.Thread(target=ask)
        freeze.start()
        time.sleep(0.005)
        kill_keeper(own)
        freeze.join()
        # It is whole, or there is nothing of it and the domain goes on.
        made = [f["name"] for f in own.get("/v1/frozen").ok()]
        assert (f"z{i}" in made) == (answers[0].status == 200), (answers[0].body, made)
        if stop and f"z{i}" in made:
            return
        printed = logs()
        eventually(lambda: logs() != printed, "it goes on")
        assert own.get("/v1/domains/b0").ok()["pid"] == pid
    own.post("/v1/domains/b0/kill", {"signal": "TERM"}).ok()
    assert own.post("/v1/domains/b0/wait").ok()["exit"]["exit_code"] == 3


def test_supervisor_and_keeper_die_together(own):
    busy(own, "b0", 4)
    start(own, "s0", "usleep 300000; exit 6")
    own.kill()
    for pid in own.keepers():
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    own.start()
    assert own.get("/v1/domains/b0").ok()["state"] == "running"
    assert own.post("/v1/domains/s0/wait").ok()["exit"]["exit_code"] == 6
    own.post("/v1/domains/b0/kill", {"signal": "TERM"}).ok()
    assert own.post("/v1/domains/b0/wait").ok()["exit"]["exit_code"] == 4
    out, err, _ = output_of(own.get("/v1/domains/b0/logs").lines)
    assert check(out, "out") == check(err, "err")


def test_a_newer_program_takes_over(new_doppeld, busybox):
    own = new_doppeld()
    programs = []
    for name in ("old", "new"):
        programs.append(own.dir / name)
        shutil.copy(own.program, programs[-1])
    own.program = str(programs[0])
    own.start()
    busy(own, "b0", 3)
    pid = own.get("/v1/domains/b0").ok()["pid"]

    def program_of():
        try:
            return os.readlink(f"/proc/{the_keeper(own)}/exe")
        except FileNotFoundError:
            return None  # it has just given way

    assert program_of() == str(programs[0])
    own.stop()
    own.program = str(programs[1])
    own.start()
    eventually(lambda: program_of() == str(programs[1]), "the new one's keeper")
    now = eventually(lambda: own.get("/v1/domains/b0").ok(), "it is known")
    assert (now["state"], now["pid"]) == ("running", pid)
    own.post("/v1/domains/b0/kill", {"signal": "TERM"}).ok()
    ended = eventually(lambda: (d := own.get("/v1/domains/b0").ok())["state"] != "running" and d, "it ends")
    assert ended["exit"]["exit_code"] == 3
    out, err, _ = output_of(own.get("/v1/domains/b0/logs").lines)
    assert check(out, "out") == check(err, "err")
