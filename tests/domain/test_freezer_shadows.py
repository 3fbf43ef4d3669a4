"""Domains with much memory, which go on while a freeze still copies it from shadows of their processes.

That nothing else differs is held by test_freezer.py, whose domains are mostly too small for shadows.
"""
import json
import random
import subprocess

from conftest import DOPPEL, descendants, eventually, still_there
from freezing import clean, clones, doppel_call, names  # noqa: F401

# Two processes stamp their pages round after round. In a clone each looks whether its pages are of one moment: those up
# to where it is have this round's stamp, all others that of the one before.
STAMPS = r"""
import mmap, os, select, signal
PAGES = 2048
m = mmap.mmap(-1, PAGES * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
generation = os.open("/sys/doppel/generation", os.O_RDONLY)
cloned = lambda: os.pread(generation, 20, 0) != b"0\n"
stamp = lambda i: int.from_bytes(m[i * 4096:i * 4096 + 8], "little")
child = os.fork()
n = 0
while True:
    n += 1
    for i in range(PAGES):
        m[i * 4096:i * 4096 + 8] = n.to_bytes(8, "little")
        if i % 64 == 0 and cloned():
            good = all(stamp(j) == n - (j > i) for j in range(PAGES))
            if child == 0: os._exit(0 if good else 1)
            print(good, os.waitpid(child, 0)[1] == 0, flush=True)
            os._exit(0)
    if n == 2 and child: print("ready", flush=True)
    # In this order: the input of a clone is at its end, and the freeze may come between the two.
    if child and select.select([0], [], [], 0)[0] and not cloned():
        os.kill(child, signal.SIGKILL)
        print("end", flush=True)
        os._exit(0)
"""
BALLAST = "import sys\nx = b'x' * (%d << 20)\nprint('ready', flush=True)\nprint(len(sys.stdin.read()), len(x) >> 20)"


FORKS = """
import os, select
x = b"x" * (8 << 20)
print("ready", flush=True)
while not select.select([0], [], [], 0)[0]:
    if os.fork() == 0: os._exit(0)
    assert os.wait()[1] == 0
print("end")
"""


def freeze(name, frozen, *opts):
    return json.loads(doppel_call("freeze", "--json", *opts, name, frozen).ok())


def test_pages_are_of_one_moment(domain, names, clean):
    """Frozen while it writes, and goes on writing while it is saved; its shadows end."""
    p = domain.start("python3", "-c", STAMPS, opts=["--name", "fzt-stamps"])
    assert p.stdout.readline() == b"ready\n", p.stderr.read()
    inside = len(descendants(p.pid))
    for opts in ([], ["--in-memory"], []):
        frozen = names()
        assert freeze("fzt-stamps", frozen, *opts)["shadows"] >= 2
        assert [c["stdout"] for c in clones(frozen, "-n", "2")] == ["True True\n"] * 2
    assert eventually(lambda: len(descendants(p.pid)) == inside)
    out, err = p.communicate(b"end\n", timeout=60)
    assert (p.returncode, out) == (0, b"end\n"), err


def test_processes_that_end_while_they_are_saved(domain, names, clean):
    """Their shadows do not end with them."""
    p = domain.start("python3", "-c", FORKS, opts=["--name", "fzt-forks"])
    assert p.stdout.readline() == b"ready\n", p.stderr.read()
    for _ in range(12):
        frozen = names()
        assert freeze("fzt-forks", frozen, "--in-memory")["shadows"] >= 1
        assert clones(frozen)[0]["stdout"] == "end\n"
    out, err = p.communicate(b"end\n", timeout=60)
    assert (p.returncode, out) == (0, b"end\n"), err


def test_frozen_by_several_at_once(domain, names, clean):
    """One after the other, with nothing between: a freeze does not take the shadows of the one before for processes."""
    images = [names() for _ in range(4)]
    p = domain.start("python3", "-c", BALLAST % 24, opts=["--name", "fzt-several"])
    assert p.stdout.readline() == b"ready\n", p.stderr.read()
    for _ in range(5):
        all_of_them = [
            subprocess.Popen(
                [DOPPEL, "freeze", "--in-memory", "fzt-several", i],
                stderr=subprocess.PIPE,
                text=True,
                stdout=subprocess.DEVNULL,
            )
            for i in images
        ]
        assert [f.communicate(timeout=60)[1] for f in all_of_them] == [""] * len(images)
        doppel_call("frozen", "rm", *images).ok()
    out, err = p.communicate(b"end\n", timeout=60)
    assert (p.returncode, out) == (0, b"4 24\n"), err


def test_no_shadows_without_room(domain, names, clean):
    """A domain that could not write all of its memory while it has shadows stands still for the whole freeze."""
    frozen = names()
    p = domain.start("python3", "-c", BALLAST % 180, opts=["--name", "fzt-full", "--memory", "200m"])
    assert p.stdout.readline() == b"ready\n", p.stderr.read()
    assert freeze("fzt-full", frozen, "--in-memory")["shadows"] == 0
    assert clones(frozen)[0]["stdout"] == "0 180\n"
    out, err = p.communicate(b"end\n", timeout=60)
    assert (p.returncode, out) == (0, b"4 180\n"), err


def test_ending_while_it_is_saved(domain, names, clean):
    """The domain ends, or is killed with the command that runs it: the image is there whole or not at all."""
    rnd = random.Random(5)
    for i in range(6):
        frozen, name = names(), f"fzt-ending{i}"
        p = domain.start("python3", "-c", BALLAST % 48, opts=["--name", name])
        assert p.stdout.readline() == b"ready\n", p.stderr.read()
        inside = descendants(p.pid)
        f = subprocess.Popen(
            [DOPPEL, "freeze", "--in-memory", name, frozen], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            f.wait(rnd.random() * 0.03)
        except subprocess.TimeoutExpired:
            pass
        p.kill() if i % 2 else p.stdin.close()
        _, err = f.communicate(timeout=60)
        p.wait(60)
        if f.returncode:
            assert err.startswith("doppel: ") and any(
                x in err for x in ("no domain named", "ended before", "the domain ended")
            ), err
        # Killed between the image's completion and the answer, the command fails although the image is there.
        inspected = subprocess.run([DOPPEL, "frozen", "inspect", frozen], capture_output=True, text=True)
        if f.returncode and inspected.returncode:
            assert "no frozen image" in inspected.stderr
        else:
            assert clones(frozen)[0]["stdout"] == "0 48\n"
        assert eventually(lambda: not still_there(inside))
        for stream in (p.stdin, p.stdout, p.stderr):
            stream.close()
