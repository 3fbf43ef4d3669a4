"""What of a clone's files and shared memory stays in its frozen image until it is written (docs/freezer.md)."""
import json
import os
import subprocess
import time

import pytest
from conftest import DOPPEL, HERE, eventually
from freezing import clean, clones, doppel_call, names, refused, root_file, small_disk  # noqa: F401

MIB = 1 << 20
WRITTEN = """
import hashlib, os, sys
data = os.urandom(1 << 20)
with open("/tmp/big", "wb") as f:
    for i in range(%d): f.write(data[i:] + data[:i])
digest = lambda: hashlib.sha256(open("/tmp/big", "rb").read()).hexdigest()
before = digest()
print("ready", flush=True)
sys.stdin.read()
print(digest() == before, flush=True)
"""


@pytest.fixture(scope="module")
def program():
    return (HERE / "progs/kept.py").read_text()


def test_memory_is_right_in_all(program, names, clean):
    """Parent, three clones, and clones of one: all contents as models in private memory say, whatever each does."""
    one, two = names("one"), names("two")
    first = doppel_call("run", "--rm", "--freeze-as", one, "debian", "--", "python3", "-c", program, "again").ok()
    assert first.split() == ["ok", "0"], first
    assert [c["stdout"].split() for c in clones(one, "-n", "3")] == [["ok", "1"]] * 3
    again = clones(one, "--freeze-as", two)[0]["stdout"]
    assert again.split() == ["ok", "1"], again
    assert [c["stdout"].split() for c in clones(two, "-n", "2")] == [["ok", "2"]] * 2


def freeze(name, frozen, *opts):
    return json.loads(doppel_call("freeze", "--json", *opts, name, frozen).ok())


# Three processes stamp pages of shared files round after round: through a mapping, by calls, and by calls that store
# into a mapping. In a clone each looks whether what it has is of one moment: the pages up to where it is have this
# round's stamp, all others that of the one before.
STAMPS = r"""
import mmap, os, select, signal
PAGES = 2048
generation = os.open("/sys/doppel/generation", os.O_RDONLY)
began = os.pread(generation, 20, 0)
cloned = lambda: os.pread(generation, 20, 0) != began
def by_mapping(m, fd, i, n): m[i * 4096:i * 4096 + 8] = n
def by_call(m, fd, i, n): assert os.pwrite(fd, n, i * 4096) == 8
def by_both(m, fd, i, n):
    os.pwrite(source, n, 0)
    assert os.preadv(source, [memoryview(m)[i * 4096:i * 4096 + 8]], 0) == 8
source = os.memfd_create("source")
def work(path, store, ready):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(fd, PAGES * 4096)
    m = mmap.mmap(fd, PAGES * 4096)
    n = 0
    while True:
        n += 1
        for i in range(PAGES):
            store(m, fd, i, n.to_bytes(8, "little"))
            if i % 64 == 0 and cloned():
                called = lambda j: int.from_bytes(os.pread(fd, 8, j * 4096), "little")
                seen = lambda j: int.from_bytes(m[j * 4096:j * 4096 + 8], "little")
                return all(seen(j) == called(j) == n - (j > i) for j in range(PAGES))
        if n == 2: os.write(ready, b".")
there, ready = os.pipe()
children = []
for path, store in (("/dev/shm/a", by_mapping), ("/tmp/b", by_call), ("/dev/shm/c", by_both)):
    pid = os.fork()
    if pid == 0: os._exit(0 if work(path, store, ready) else 1)
    children.append(pid)
for _ in children: os.read(there, 1)
print("ready", flush=True)
while True:
    if cloned():
        print([os.waitpid(c, 0)[1] for c in children], flush=True)
        os._exit(0)
    # In this order: the input of a clone is at its end, and the freeze may come between the two.
    if select.select([0], [], [], 0.005)[0] and not cloned():
        for c in children: os.kill(c, signal.SIGKILL)
        print("end", flush=True)
        os._exit(0)
"""


def test_pages_are_of_one_moment(domain, names, clean):
    """Frozen while it writes, three times: the page file is copied ahead, and what is written meanwhile again."""
    p = domain.start("python3", "-c", STAMPS, image="debian", opts=["--name", "fzt-shared"])
    assert p.stdout.readline() == b"ready\n", p.stderr.read()
    for i in range(3):
        frozen = names(str(i))
        freeze("fzt-shared", frozen)
        assert [c["stdout"] for c in clones(frozen, "-n", "2")] == ["[0, 0, 0]\n"] * 2
    out, err = p.communicate(timeout=20)
    assert out == b"end\n", err


def test_memory_is_right_while_it_changes(domain, program, names, clean):
    """Frozen six times amid writes, truncations, moved and forked mappings; clones go on with that and are right."""
    p = domain.start("python3", "-c", program, "on", image="debian", opts=["--name", "fzt-on", "-i"])
    assert p.stdout.readline() == b"ready\n", p.stderr.read()
    for i in range(6):
        frozen = names(str(i))
        freeze("fzt-on", frozen)
        if i % 2:
            assert [c["stdout"].split() for c in clones(frozen, "-n", "2")] == [["ok", "1"]] * 2
    out, err = p.communicate(timeout=30)
    assert out == b"ok 0\n", err


BALLAST = """
import hashlib, mmap, os, sys
data = os.urandom(1 << 20)
with open("/tmp/big", "wb") as f:
    for i in range(%d): f.write(data[i:] + data[:i])
fd = os.open("/dev/shm/big", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, %d << 20)
m = mmap.mmap(fd, %d << 20)
for i in range(%d): m[i << 20:i + 1 << 20] = data[i:] + data[:i]
read = lambda: open("/tmp/big", "rb").read()
before = hashlib.sha256(read()).digest()
assert bytes(m) == read()
print("ready", flush=True)
sys.stdin.read()
print(hashlib.sha256(read()).digest() == before, flush=True)
sys.stdin.close()
import select
select.select([], [], [], 3)
print(m[:] == read(), flush=True)
"""


def test_clones_copy_nothing(domain, names, clean):
    """32 MiB in /tmp and as much mapped from /dev/shm: copied ahead of the pause, and by no clone that only reads."""
    mib, frozen = 32, names()
    p = domain.start("python3", "-c", BALLAST % ((mib,) * 4), image="debian", opts=["--name", "fzt-big", "-i"])
    assert p.stdout.readline() == b"ready\n", p.stderr.read()
    report = freeze("fzt-big", frozen)
    assert report["ahead_bytes"] >= (2 * mib - 4) * MIB, report
    about = json.loads(doppel_call("frozen", "inspect", frozen).ok())
    assert about["copied_bytes"] < 4 * MIB < 2 * mib * MIB < about["data_bytes"], about
    name = f"fzt-kept-{os.getpid()}"
    args = [DOPPEL, "clone", "-n", "3", "--name", name, frozen]
    running = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        domains = [f"{name}-{i}" for i in (1, 2, 3)]
        assert eventually(lambda: doppel_call("stats", *domains).code == 0)
        # They have read the file by then, and not the mapping.
        time.sleep(1)
        for row in map(json.loads, doppel_call("stats", "--json", *domains).ok().splitlines()):
            assert row["pages_bytes"] < MIB and row["image_bytes"] > 2 * mib * MIB - MIB, row
        out = running.communicate(timeout=20)[0]
        assert out.count(b"True") == 6 and b"False" not in out, out
    finally:
        running.kill()
        running.wait()
    out, err = p.communicate(timeout=20)
    assert out == b"True\nTrue\n", err


def test_further_images_refer_to_the_page_file(domain, names, clean):
    """An older image's pages are not written again, nor by a clone that never read them; images stand alone."""
    mib = 16
    first, second, third, whole = (names(n) for n in ("first", "second", "third", "whole"))
    p = domain.start("python3", "-c", BALLAST % ((mib,) * 4), image="debian", opts=["--name", "fzt-refers", "-i"])
    assert p.stdout.readline() == b"ready\n", p.stderr.read()
    freeze("fzt-refers", first)
    again = freeze("fzt-refers", second)
    assert again["written"] < 4 * MIB and again["ahead_bytes"] >= (2 * mib - 4) * MIB, again
    name = f"fzt-clone-{os.getpid()}"
    running = subprocess.Popen(
        [DOPPEL, "clone", "--name", name, second], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    try:
        assert running.stdout.readline() == b"True\n"
        freeze(name, third)
        # It has a heap of its own by now.
        about = json.loads(doppel_call("frozen", "inspect", third).ok())
        assert about["ancestor_bytes"] > 2 * mib * MIB, about
        assert freeze(name, whole, "--whole")["written"] > 2 * mib * MIB
        assert running.communicate(timeout=20)[0] == b"True\n"
    finally:
        running.kill()
        running.wait()
    for gone in (first, second):
        doppel_call("frozen", "rm", gone).ok()
    assert [c["stdout"] for c in clones(third, "-n", "2")] == ["True\n"] * 2
    assert clones(whole)[0]["stdout"] == "True\n"
    doppel_call("frozen", "flatten", third).ok()
    assert json.loads(doppel_call("frozen", "inspect", third).ok())["ancestors"] == 0
    assert clones(third)[0]["stdout"] == "True\n"
    out, err = p.communicate(timeout=20)
    assert out == b"True\nTrue\n", err


def test_full_disk_while_copying_ahead(domain, names, clean, tmp_path):
    """No room for what is copied while it runs: it goes on, nothing is left, and with room it can be frozen."""
    disk, frozen, name = small_disk(tmp_path / "disk", "8m"), names(), f"fzt-{os.getpid()}-ahead"
    program = BALLAST % ((16,) * 4)
    p = subprocess.Popen(
        [DOPPEL, "run", "--rm", "-i", "--name", name, root_file("debian"), "--", "python3", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "DOPPEL_STORE": str(disk)},
    )
    try:
        assert p.stdout.readline() == b"ready\n", p.stderr.read()
        for _ in range(2):
            assert "No space left" in refused("freeze", name, "x", env={"DOPPEL_STORE": str(disk)})
            assert os.listdir(disk / "frozen") == []
        assert freeze(name, frozen)["ahead_bytes"] > 16 * MIB
        assert clones(frozen)[0]["stdout"] == "True\nTrue\n"
        out, err = p.communicate(timeout=20)
        assert out == b"True\nTrue\n", err
    finally:
        p.kill()
        p.wait()
        subprocess.run(["umount", disk], check=True)
