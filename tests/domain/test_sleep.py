"""Hibernated domains: `doppel hibernate`, `doppel wake`, `doppel frozen ls`."""
import fcntl
import json
import os
import pathlib
import subprocess

import pytest
from conftest import DOPPEL, eventually

# Counts on whenever a line comes; says so by itself when it has slept.
PROGRAM = r"""
import os, select, sys, time
ballast = os.urandom(%d)
print("ready", flush=True)
last, poll = time.monotonic(), select.poll()
poll.register(0, select.POLLIN)
while True:
    ready = poll.poll(1)
    now = time.monotonic()
    if now - last > 0.7:
        print("slept", flush=True)
    last = time.monotonic()
    if ready:
        line = sys.stdin.readline().split()
        if not line or line[0] == "end":
            break
        if line[0] == "sum":
            print(sum(ballast[i] for i in range(0, len(ballast), 4096)), flush=True)
"""


def doppel(*argv, timeout=60):
    return subprocess.run([DOPPEL, *argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)


def store():
    return pathlib.Path(os.environ["DOPPEL_STORE"]) / "frozen"


class Sleeper:
    """A domain that can be hibernated and woken; `tell` gives a line to its program, `hear` awaits one."""

    def __init__(self, megabytes=4):
        self.name = f"sleeper-{os.getpid()}-{id(self) & 0xffff}"
        self.image = store() / f"{self.name}.asleep.frozen"
        argv = ["run", "--rm", "-i", "--name", self.name, "debian", "--", "python3", "-c", PROGRAM % (megabytes << 20)]
        self.start(*argv)
        assert self.hear() == "ready"
        self.tell("sum")
        self.sum = self.hear()

    def start(self, *argv):
        self.process = subprocess.Popen(
            [DOPPEL, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self):
        while True:
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read()
            if line != "slept\n":
                return line.strip()

    def hibernate(self):
        p = doppel("hibernate", self.name)
        assert p.returncode == 0, p.stderr
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, (out, err)

    def wake(self, *options):
        self.start("wake", "-i", *options, self.name)
        self.tell("sum")
        assert self.hear() == self.sum

    def end(self):
        self.tell("end")
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, (out, err)


@pytest.fixture
def sleeper(doppel_image_debian):
    s = Sleeper()
    yield s
    s.process.kill()
    s.process.communicate()
    eventually(lambda: not doppel("frozen", "rm", f"{s.name}.asleep").returncode or not s.image.exists())


@pytest.fixture
def doppel_image_debian():
    if doppel("image", "inspect", "--quick", "debian").returncode:
        pytest.skip("no image debian: make test-images")


def listed(name):
    rows = [json.loads(line) for line in doppel("frozen", "ls", "--json").stdout.splitlines()]
    return [r for r in rows if r["name"] == f"{name}.asleep"]


def test_sleeps_and_wakes_again_and_again(sleeper):
    for _k in range(3):
        sleeper.hibernate()
        (row,) = listed(sleeper.name)
        assert row["place"] == "disk" and row["image"]["domain"] == sleeper.name and row["image"]["generation"] == 0
        sleeper.wake()
        # Still there, and still listed: what a crash would go back to.
        assert listed(sleeper.name)
    sleeper.end()
    assert not listed(sleeper.name) and not sleeper.image.with_suffix(".touched").exists()


def unused(image):
    with open(image) as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_is_awake_once(sleeper):
    sleeper.hibernate()
    sleeper.wake()
    again, clone, rm = (
        doppel("wake", sleeper.name),
        doppel("clone", f"{sleeper.name}.asleep"),
        doppel("frozen", "rm", f"{sleeper.name}.asleep"),
    )
    for p in (again, clone, rm):
        assert p.returncode == 125 and "in use" in p.stderr, p.stderr
    sleeper.tell("sum")
    assert sleeper.hear() == sleeper.sum
    sleeper.end()
    p = doppel("wake", sleeper.name)
    assert p.returncode == 125 and "no frozen image named" in p.stderr


def test_crash_goes_back_to_the_last_sleep(sleeper):
    sleeper.hibernate()
    sleeper.wake()
    sleeper.process.kill()
    sleeper.process.communicate()
    # Its processes die after it; the last of them gives up the image.
    assert listed(sleeper.name) and eventually(lambda: unused(sleeper.image))
    sleeper.wake()
    sleeper.end()
    assert not listed(sleeper.name)


def test_working_set_is_recorded_and_used(sleeper):
    sleeper.hibernate()
    sleeper.wake()
    touched = sleeper.image.with_suffix(".touched")
    assert eventually(touched.exists)
    lines = touched.read_text().splitlines()
    assert lines[0] == "doppel touched pages 1" and lines[1:]
    # It holds for the image of the next sleep.
    sleeper.hibernate()
    assert touched.exists()
    sleeper.wake()
    sleeper.end()
    assert not touched.exists()


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)
        f.seek(at)
        f.write(bytes([byte[0] ^ 1]))


def test_damage_outside_the_working_set_ends_the_domain(sleeper):
    """What is not read ahead is checked behind the wake."""
    sleeper.hibernate()
    sleeper.image.with_suffix(".touched").write_text("doppel touched pages 1\n")
    data = sleeper.image.read_bytes()
    # The ballast is the last large run of what looks random.
    at = next(i for i in range(len(data) - 4096, 0, -4096) if len(set(data[i : i + 4096])) > 250)
    flip(sleeper.image, at)
    sleeper.start("wake", "-i", sleeper.name)
    assert sleeper.process.wait(timeout=60) == 125
    err = sleeper.process.stderr.read()
    assert "damaged" in err and "is kept" in err, err
    assert eventually(lambda: unused(sleeper.image))
    # All is checked first without a working set.
    p = doppel("wake", "--no-prefetch", sleeper.name)
    assert p.returncode == 125 and "damaged" in p.stderr
    flip(sleeper.image, at)
    sleeper.wake()
    sleeper.end()
