"""Frozen images that refer to older ones for what has not changed: what is written, what stays, what can go.

The program sums all its memory, so that any page from the wrong place or time is noticed (docs/freezer.md).
"""
import glob
import json
import os
import pathlib
import random
import signal
import subprocess
import time

import pytest
from conftest import DOPPEL, eventually
from freezing import clean, clones, doppel_call, names, path_of, refused  # noqa: F401

MIB = 1 << 20
MOST_ANCESTORS = 7

# Says the sum of all it holds after each line it reads, and at the end of its input, as a clone has it.
PROGRAM = r"""
import mmap, os, random, signal, sys, zlib
pages = int(sys.argv[1]) * 256
m = mmap.mmap(-1, pages * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
rnd = random.Random(1)
block = rnd.randbytes(1 << 20)
for i in range(0, pages, 256):
    m[i * 4096:i * 4096 + len(block)] = block
    m[i * 4096:i * 4096 + 8] = i.to_bytes(8, "little")
children = []
def child():
    # A process of its own, with a copy of everything and some of it changed.
    r, w = os.pipe()
    back, forth = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(w)
        change(20)
        while os.read(r, 1): os.write(forth, b"%10d" % zlib.crc32(m))
        os._exit(0)
    os.close(r)
    children.append((pid, w, back))
def end():
    pid, w, back = children.pop(0)
    os.close(w); os.close(back); os.waitpid(pid, 0)
def change(n):
    for i in rnd.sample(range(pages), n):
        m[i * 4096 + 9:i * 4096 + 17] = rnd.randbytes(8)
def total():
    sums = [zlib.crc32(m)]
    for _, w, back in children:
        os.write(w, b"x")
        sums.append(int(os.read(back, 10)))
    return zlib.crc32(repr(sums).encode())
print(total(), flush=True)
for line in sys.stdin:
    word, *n = line.split()
    {"sum": lambda: None, "change": lambda: change(int(n[0])), "fork": child, "end": end}[word]()
    print(total(), flush=True)
print(total(), flush=True)
"""


class Running:
    """A domain of PROGRAM, or a clone of one."""

    def __init__(self, process, name, sum_=None):
        self.process, self.name = process, name
        self.sum = sum_ or self.line()

    def line(self):
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return line.strip().decode()

    def do(self, *words):
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()
        self.sum = self.line()
        return self.sum

    def freeze(self, frozen, *opts):
        return json.loads(doppel_call("freeze", "--json", *opts, self.name, frozen).ok())

    def end(self):
        out, err = self.process.communicate(timeout=60)
        assert (self.process.returncode, out.decode()) == (0, f"{self.sum}\n"), err


@pytest.fixture
def running(domain):
    """Starts PROGRAM with so many MiB, or clones."""
    count = iter(range(1000))

    def start(mib=0, of=None, sum_=None):
        name = f"fzt-{os.getpid()}-anc{next(count)}"
        if of is None:
            return Running(domain.start("python3", "-c", PROGRAM, str(mib), opts=["--name", name]), name)
        p = subprocess.Popen(
            [DOPPEL, "clone", "-i", "--name", name, of],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        domain.started.append(p)
        assert eventually(lambda: doppel_call("stats", name).code == 0), "the clone runs"
        return Running(p, name, sum_)

    return start


def used(frozen):
    """Bytes that an image's file takes."""
    return os.stat(path_of(frozen)).st_blocks * 512


def beside(frozen):
    """The files of its ancestors."""
    return sorted(pathlib.Path(path_of(frozen)).with_suffix(".ancestors").glob("*"))


def about(frozen):
    return json.loads(doppel_call("frozen", "inspect", frozen).ok())


def sums(frozen, *opts):
    found = [c["stdout"].strip() for c in clones(frozen, *opts)]
    assert len(set(found)) == 1, found
    return found[0]


def test_a_further_freeze_writes_what_has_changed(running, names, clean):
    d = running(48)
    one, same, other, whole, elsewhere = names("1"), names("same"), names("other"), names("whole"), names("mem")
    first = d.freeze(one)
    assert first["written"] == first["bytes"] >= 48 * MIB and not beside(one)
    second = d.freeze(same)
    assert second["bytes"] >= 48 * MIB > 5 * MIB > second["written"] and used(same) < 5 * MIB
    image = about(same)
    assert (image["ancestors"], len(beside(same))) == (1, 1) and image["own_bytes"] == second["written"]
    assert image["ancestor_bytes"] > 40 * MIB and image["ancestors_used"] == used(one)
    before = d.sum
    d.do("change", 300)
    d.do("fork")
    third = d.freeze(other)
    # The new process is compared with what it forked from.
    assert third["written"] < 20 * MIB < 96 * MIB < third["bytes"], third
    assert {sums(one), sums(same)} == {before} and sums(other, "-n", "2") == d.sum
    # Without the newest the one before serves.
    doppel_call("frozen", "rm", other).ok()
    assert d.freeze(other)["written"] < 20 * MIB and beside(other)
    d.do("end")
    assert d.freeze(whole, "--whole")["written"] >= 48 * MIB and not beside(whole)
    assert d.freeze(elsewhere, "--in-memory")["written"] >= 48 * MIB, "an image needs no file of another store"
    assert {sums(whole), sums(elsewhere)} == {d.sum}
    d.end()


def test_clones_of_clones(running, names, clean):
    """Deeper than images refer to each other: each has the memory of its moment."""
    d, made = running(16), [names("0")]
    d.freeze(made[0])
    d.end()
    expected = [d.sum]
    for n in range(1, MOST_ANCESTORS + 3):
        c = running(of=made[-1], sum_=expected[-1])
        assert c.do("sum") == expected[-1], n
        c.do("change", 40)
        if n in (2, 5):
            c.do("fork")
        if n == 4:
            c.do("end")
        made.append(names(str(n)))
        report = c.freeze(made[-1])
        assert report["written"] < report["bytes"] // 2, (n, report)
        assert len(beside(made[-1])) <= min(n, MOST_ANCESTORS)
        expected.append(c.sum)
        c.end()
    assert len(beside(made[-1])) > 4, "they refer to each other"
    assert [sums(f) for f in made] == expected
    # In any order, and the last still has all.
    random.Random(3).shuffle(gone := made[:-1])
    doppel_call("frozen", "rm", *gone).ok()
    assert sums(made[-1], "-n", "2") == expected[-1]


def test_names_go_at_once_and_files_when_nobody_needs_them(running, names, clean):
    d = running(8)
    made = [names(str(n)) for n in range(3)]
    for frozen in made:
        d.freeze(frozen)
        d.do("change", 5)
    after = [sums(f) for f in made]
    d.end()
    inode = os.stat(path_of(made[0])).st_ino
    clone = running(of=made[2], sum_=after[2])
    store = os.path.dirname(path_of(made[2]))
    assert "in use" in refused("frozen", "rm", made[2])
    doppel_call("frozen", "rm", made[0]).ok()
    assert made[0] not in doppel_call("frozen", "ls").ok() and "no frozen image" in refused("clone", made[0])
    assert inode in [p.stat().st_ino for p in beside(made[1])]
    assert (sums(made[1]), sums(made[2])) == (after[1], after[2])
    # The name can be had again, by another image.
    d = running(1)
    d.freeze(made[0])
    d.end()
    doppel_call("frozen", "rm", made[1]).ok()
    assert clone.do("sum") == after[2]
    clone.end()
    assert sums(made[2]) == after[2]
    doppel_call("frozen", "rm", made[2]).ok()
    assert not [p for n in made[1:] for p in glob.glob(f"{store}/{n}.*")]


def test_flattened_exported_and_damaged(running, names, clean, tmp_path):
    d = running(8)
    one, two, three, taken = names("1"), names("2"), names("3"), names("imported")
    d.freeze(one)
    d.do("change", 30)
    d.freeze(two)
    d.freeze(three)
    d.end()
    # An export is whole, also of one that is not.
    file = tmp_path / "exported"
    doppel_call("frozen", "export", two, file).ok()
    doppel_call("frozen", "import", file, taken).ok()
    assert (sums(taken), about(taken)["ancestors"]) == (d.sum, 0)
    doppel_call("frozen", "rm", one).ok()
    clone = running(of=two, sum_=d.sum)
    doppel_call("frozen", "flatten", two, taken).ok()
    assert not beside(two) and used(two) > 8 * MIB
    assert clone.do("sum") == d.sum, "a clone goes on with the files it has"
    again = names("again")
    clone.freeze(again)
    clone.end()
    assert sums(two) == sums(three) == sums(again) == d.sum
    # Damage in a file without a name is noticed before anything runs.
    path = next(p for p in beside(three) if p.stat().st_blocks * 512 > 8 * MIB)
    path.chmod(0o600)
    whole = path.read_bytes()
    at = len(whole) - 3 * MIB
    flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    for bad in (flipped, whole[:-4096], pathlib.Path(path_of(two)).read_bytes()):
        path.write_bytes(bad)
        error = refused("clone", three)
        assert three in error or path.name in error, error
        assert three in refused("frozen", "flatten", three) or path.name in error
    path.unlink()
    assert "its memory is in another file" in refused("clone", three)
    path.write_bytes(whole)
    assert sums(three) == d.sum


def test_hibernated_clones_refer_to_what_they_came_from(running, names, domain, clean):
    d, one = running(24), names("1")
    d.freeze(one)
    d.end()
    c = running(of=one, sum_=d.sum)
    name, asleep = c.name, f"{c.name}.asleep"
    c.do("change", 50)
    expected = c.sum
    try:
        for n in range(3):
            report = json.loads(doppel_call("hibernate", "--json", name).ok())
            assert report["written"] < 12 * MIB < 24 * MIB <= report["bytes"], (n, report)
            c.process.wait(60)
            assert used(asleep) < 13 * MIB
            if n == 1:
                doppel_call("frozen", "rm", one).ok()
            p = subprocess.Popen(
                [DOPPEL, "wake", "-i", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            domain.started.append(p)
            assert eventually(lambda: doppel_call("stats", name).code == 0)
            c = Running(p, name, expected)
            assert c.do("sum") == expected
            expected = c.do("change", 10)
        c.end()
        store = os.environ["DOPPEL_STORE"]
        assert eventually(lambda: not glob.glob(f"{store}/frozen/{asleep}*")), "it goes with its domain"
    finally:
        doppel_call("frozen", "rm", asleep)


def test_killed_in_the_middle(running, names, clean):
    """SIGKILL in a freeze, a removal or a flattening: no image without its pages, and nothing that no sweep finds."""
    rnd = random.Random(5)
    d, base = running(12), names("base")
    store = pathlib.Path(os.environ["DOPPEL_STORE"]) / "frozen"
    d.freeze(base)
    d.end()
    mine = {base}
    for i in range(9):
        c = running(of=base, sum_=d.sum)
        made = names(f"k{i}")
        mine.add(made)
        argv = {0: ["freeze", c.name, made], 1: ["frozen", "flatten", made], 2: ["frozen", "rm", made]}[i % 3]
        if i % 3:
            c.freeze(made)
        p = subprocess.Popen([DOPPEL, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(rnd.random() * 0.03)
        # Who writes is the domain's own process, for a freeze.
        victim = c.process if i % 3 == 0 else p
        victim.send_signal(signal.SIGKILL)
        p.communicate(timeout=60)
        c.process.kill()
        c.process.communicate(timeout=60)
        if made in doppel_call("frozen", "ls", "-q").ok().split():
            assert sums(made) == d.sum
    left = mine & set(doppel_call("frozen", "ls", "-q").ok().split())
    # No image is so old: prune sweeps all the same.
    doppel_call("frozen", "prune", "--force", "--filter", "until=8760h").ok()
    links = {p.stem for p in store.iterdir() if p.suffix == ".ancestors"}
    assert links & mine <= left, links
    for name in left:
        assert sums(name) == d.sum
