"""The supervisor, its keepers and services become those of a newer program: no domain ends, every request is
answered."""

import json
import os
import shutil
import threading
import time

import pytest
from conftest import DOPPELD, eventually, output_of
from test_keeper_kills import BUSY, check, start
from test_service_upgrade import install

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def installed(tmp_path):
    program = tmp_path / "doppeld"
    shutil.copy(DOPPELD, program)
    return program


@pytest.fixture
def own(new_doppeld, installed, busybox):
    d = new_doppeld()
    d.program = str(installed)
    return d.start()


def program_of(pid):
    return os.stat(f"/proc/{pid}/exe").st_ino


class Poller:
    """Asks for the domains every 20 ms, each time on a connection of its own; notes what fails, and the longest
    wait."""

    def __init__(self, d):
        self.failed, self.longest, self.over = [], 0, threading.Event()
        self.thread = threading.Thread(target=self.run, args=(d,))

    def run(self, d):
        last = time.monotonic()
        while not self.over.wait(0.02):
            try:
                d.get("/v1/domains").ok()
            except (OSError, AssertionError) as e:
                self.failed.append(repr(e))
                continue
            now = time.monotonic()
            self.longest, last = max(self.longest, now - last), now

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def test_everything_is_replaced_and_nothing_ends(own, installed):
    for i in range(3):
        start(own, f"b{i}", BUSY % i)
    pids = [own.get(f"/v1/domains/b{i}").ok()["pid"] for i in range(3)]
    process, before = own.process.pid, own.get("/v1/version").ok()
    old = program_of(process)
    for _ in range(2):
        install(installed, lambda new: shutil.copy(DOPPELD, new))
        new = installed.stat().st_ino
        checked = json.loads(own.cli("upgrade", "--check", "--json").stdout)
        assert (checked["running"], checked["installed"], checked["same"]) == (before, before, False)
        assert program_of(process) == old
        with Poller(own) as poller:
            done = own.cli("upgrade", "--json")
            assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["before"], report["after"], report["keepers"]) == (before, before, [{"number": 1}]), report
        print(f"the longest wait for an answer: {poller.longest:.3f} s")
        assert not poller.failed
        # The process is the same for its service manager; it and its keeper are of the new program.
        assert own.process.poll() is None and program_of(process) == new
        eventually(lambda: [program_of(k) for k in own.keepers()] == [new], "the keeper is of the new program")
        old = new
    assert [own.get(f"/v1/domains/b{i}").ok()["pid"] for i in range(3)] == pids
    for i in range(3):
        own.post(f"/v1/domains/b{i}/kill", {"signal": "TERM"}).ok()
        assert own.post(f"/v1/domains/b{i}/wait").ok()["exit"]["exit_code"] == i
        out, err, _ = output_of(own.get(f"/v1/domains/b{i}/logs").lines)
        assert check(out, "out") == check(err, "err")
    # Keepers that gave way are not there as dead processes, and nothing was left open.
    dead = [p for p in os.listdir("/proc") if p.isdigit() and is_dead_child(p, process)]
    assert not dead
    assert own.stop() == 0


def is_dead_child(pid, parent):
    try:
        with open(f"/proc/{pid}/stat") as f:
            state, ppid = f.read().rpartition(")")[2].split()[:2]
    except OSError:
        return False
    return state == "Z" and int(ppid) == parent


def test_the_same_program_stays(own):
    descriptors = lambda: len(os.listdir(f"/proc/{own.process.pid}/fd"))
    before = descriptors()
    done = own.cli("upgrade")
    assert done.returncode == 0 and b"as before" in done.stdout, done
    eventually(lambda: descriptors() <= before, "nothing is left open")


@pytest.mark.parametrize(
    "text, why",
    [
        ("no program\n", "not fit"),
        ("#!/bin/sh\necho it breaks >&2; exit 3\n", "it breaks"),
        # It passes what can be tried, and does not begin.
        (
            '#!/bin/sh\ncase "$*" in *--check|about) exec {0} "$@";; esac\nexec {0} "$@" --store /proc/none\n',
            "/proc/none",
        ),
    ],
)
def test_one_that_does_not_begin_replaces_nothing(own, installed, tmp_path, text, why):
    start(own, "b0", BUSY % 3)
    pid, process = own.get("/v1/domains/b0").ok()["pid"], own.process.pid
    old = program_of(process)
    good = tmp_path / "good"
    shutil.copy(DOPPELD, good)
    install(installed, lambda new: (new.write_text(text.format(good)), new.chmod(0o755)))
    with Poller(own) as poller:
        done = own.cli("upgrade")
    assert done.returncode == 1 and why in done.stderr.decode(), done
    assert not poller.failed
    assert own.process.poll() is None and program_of(process) == old
    assert [program_of(k) for k in own.keepers()] == [old]
    assert own.get("/v1/domains/b0").ok()["pid"] == pid
    own.post("/v1/domains/b0/exec", {"command": ["true"]}).ok()
    # The next one is taken.
    install(installed, lambda new: shutil.copy(DOPPELD, new))
    done = own.cli("upgrade")
    assert done.returncode == 0, done
    assert program_of(process) == installed.stat().st_ino
    assert own.get("/v1/domains/b0").ok()["pid"] == pid
