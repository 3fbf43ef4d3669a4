"""Frozen domains with disks, and their clones: each goes on with what was on the disks then, on one of its own."""
import json
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from conftest import DOPPEL, Domain, Result, command

STORE = os.environ.get("DOPPEL_STORE", "/var/lib/doppel")
FREEZE = r"""
import fcntl, os, struct, subprocess, sys, time
def freeze():
    with open("/sys/power/state", "w") as f: f.write("freeze")
    return open("/sys/doppel/args").read().split()
"""


@pytest.fixture
def name() -> Iterator[str]:
    one = "df-" + uuid.uuid4().hex[:10]
    yield one
    for frozen in (one, one + "-2", one + ".asleep"):
        command("frozen", "rm", frozen)
    for disk in (one, one + "-b"):
        command("disk", "rm", "-f", disk)


def eventually(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


def disks() -> set[str]:
    return set(command("disk", "ls", "-q").ok().split())


def kept() -> list[str]:
    return [one for one in os.listdir(f"{STORE}/disks") if one.startswith(".kept-")]


def layers() -> set[str]:
    return set(os.listdir(f"{STORE}/disks/.layers"))


def run(domain: Domain, name: str, script: str, *opts: str) -> str:
    """Runs it in a domain of this name, which may freeze itself under the name."""
    opts = ("--standalone", "--name", name, "--freeze-as", name, *opts)
    argv = domain.argv("python3", "-c", FREEZE + script, image="debian", opts=opts)
    out = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, (out.stdout, out.stderr)
    return out.stdout


RAW = r"""
fd = os.open("/dev/vda", os.O_RDWR)
for n in range(0, 64, 3): os.pwrite(fd, b"%04d" % n * 1024, n * 4096)
os.pwrite(fd, b"head" * 300, 100)
args = freeze()
who = args[0] if args else "parent"
assert os.pread(fd, 1200, 100) == b"head" * 300, os.pread(fd, 16, 100)
for n in range(1, 64): assert os.pread(fd, 4096, n * 4096) == (b"\0" * 4096 if n % 3 else b"%04d" % n * 1024), n
print(who, os.pread(fd, 6, 1 << 20), flush=True)
os.pwrite(fd, who.encode().ljust(6), 1 << 20)
os.pwrite(fd, who.encode() * 100, 100)
os.fsync(fd)
"""


def test_bytes_of_a_disk(domain: Domain, name: str) -> None:
    """Neither side sees what the other writes, whoever goes first; a clone's disk goes with it."""
    command("disk", "create", "--size", "2m", name).ok()
    before, names = layers(), disks()
    assert run(domain, name, RAW, "--block-device", name) == "parent b'\\x00\\x00\\x00\\x00\\x00\\x00'\n"
    for n in range(3):
        assert command("clone", "--arg", f"c{n}", name).ok() == f"c{n} b'\\x00\\x00\\x00\\x00\\x00\\x00'\n"
    assert disks() == names
    out = domain.run("dd", "if=/dev/vda", "bs=1", "count=6", "skip=1048576", opts=("--block-device", name))
    assert out.ok().startswith("parent"), out
    of_disk = layers() - before
    assert of_disk, "the domain has a layer above the frozen one"
    command("frozen", "rm", name).ok()
    command("disk", "rm", name).ok()
    assert not kept() and not layers() & of_disk, "nothing is left of it"


def test_clones_at_once_and_of_clones(domain: Domain, name: str) -> None:
    script = r"""
fd = os.open("/dev/vda", os.O_RDWR)
os.pwrite(fd, b"first", 0)
args = freeze()
assert os.pread(fd, 5, 0) == b"first"
who = (args[0] if args else "parent").encode()
for n in range(200): os.pwrite(fd, who * 512, (n % 100 + 1) * 8192)
for n in range(100): assert os.pread(fd, len(who) * 512, (n + 1) * 8192) == who * 512, n
if args == ["second"]:
    args = freeze()
    assert os.pread(fd, 6 * 512, 8192) == b"second" * 512
    os.pwrite(fd, args[0].encode(), 8192)
    assert os.pread(fd, 6 * 512, 8192 * 2) == b"second" * 512
print(args, flush=True)
"""
    command("disk", "create", "--size", "4m", name).ok()
    run(domain, name, script, "--block-device", name)
    results: list[Result] = []
    def clone(n: int) -> None:
        results.append(command("clone", "--arg", f"c{n}", name))

    some = [threading.Thread(target=clone, args=(n,)) for n in range(6)]
    for one in some:
        one.start()
    for one in some:
        one.join()
    assert sorted(r.ok() for r in results) == [f"['c{n}']\n" for n in range(6)]
    assert command("clone", "--arg", "second", "--freeze-as", name + "-2", name).ok() == "['second']\n"
    # The first image is not needed any more.
    command("frozen", "rm", name).ok()
    command("disk", "rm", name).ok()
    assert command("clone", "--arg", "third", name + "-2").ok() == "['third']\n"
    assert command("clone", "-n", "3", "--arg", "x", name + "-2").ok().count("['x']") == 3


def test_a_mounted_file_system(domain: Domain, name: str) -> None:
    """What was written and not synced is the clone's as well, and it goes on to write."""
    script = r"""
assert not subprocess.call("mkdir /mnt/d; mount -t doppelfs /dev/vda /mnt/d", shell=True)
f = open("/mnt/d/log", "a+")
for n in range(50):
    with open(f"/mnt/d/file{n}", "w") as g: g.write(str(n) * 3000)
os.sync()
for n in range(25): os.unlink(f"/mnt/d/file{n}")
f.write("begun "); f.flush()
args = freeze()
who = args[0] if args else "parent"
f.write(who); f.flush(); os.fsync(f.fileno())
f.seek(0); assert f.read() == "begun " + who
assert sorted(os.listdir("/mnt/d")) == sorted(["log"] + [f"file{n}" for n in range(25, 50)])
for n in range(25, 50): assert open(f"/mnt/d/file{n}").read() == str(n) * 3000
for n in range(100): open(f"/mnt/d/{who}{n}", "w").write(who * 1000)
f.close()
assert not subprocess.call("umount /mnt/d && mount -t doppelfs /dev/vda /mnt/d", shell=True)
assert open("/mnt/d/log").read() == "begun " + who
assert all(open(f"/mnt/d/{who}{n}").read() == who * 1000 for n in range(100))
print(len(os.listdir("/mnt/d")), flush=True)
"""
    command("disk", "create", "--size", "64m", "--format", name).ok()
    assert run(domain, name, script, "--block-device", name) == "126\n"
    for n in range(2):
        assert command("clone", "--arg", f"c{n}", name).ok() == "126\n"


def test_read_only_and_several(domain: Domain, name: str) -> None:
    """A clone reads what there was, also when somebody has written to the disk since."""
    script = r"""
a, b = os.open("/dev/vda", os.O_RDONLY), os.open("/dev/vdb", os.O_RDWR)
before = os.pread(a, 5, 0)
os.pwrite(b, before, 4096)
args = freeze()
assert os.pread(a, 5, 0) == before == b"hello" and os.pread(b, 5, 4096) == before
os.pwrite(b, b"other", 4096)
print(args, flush=True)
"""
    command("disk", "create", "--size", "1m", name).ok()
    command("disk", "create", "--size", "1m", name + "-b").ok()
    domain.run("sh", "-c", "printf hello > /dev/vda", opts=("--block-device", name)).ok()
    run(domain, name, script, "--block-device", f"{name}:ro", "--block-device", name + "-b")
    domain.run("sh", "-c", "printf later > /dev/vda", opts=("--block-device", name)).ok()
    assert command("clone", "--arg", "1", name).ok() == "['1']\n"
    assert domain.run("head", "-c", "5", "/dev/vda", opts=("--block-device", name)).ok() == "later"
    # A snapshot has no layer above it.
    command("disk", "snapshot", name, name + "-s").ok()
    command("disk", "rm", "-f", name + "-s").ok()


def test_freezes_that_change_nothing_take_no_layer(domain: Domain, name: str) -> None:
    command("disk", "create", "--size", "1m", name).ok()
    script = r"""
fd = os.open("/dev/vda", os.O_RDWR)
os.pwrite(fd, b"x", 0)
print("ready", flush=True)
sys.stdin.readline()
assert os.pread(fd, 1, 0) == b"x"
"""
    opts = ("--standalone", "-i", "--name", name, "--block-device", name)
    argv = domain.argv("python3", "-c", FREEZE + script, image="debian", opts=opts)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout is not None and p.stdout.readline() == "ready\n"
        for _ in range(3):
            command("freeze", name, name).ok()
            command("frozen", "rm", name).ok()
        assert json.loads(command("disk", "inspect", name).ok())[0]["layers"] == 2
        p.communicate("\n", timeout=60)
        assert p.returncode == 0


def test_it_wakes_with_its_disk(domain: Domain, name: str) -> None:
    """Unless somebody else has written to it."""
    command("disk", "create", "--size", "1m", name).ok()
    script = r"""
fd = os.open("/dev/vda", os.O_RDWR)
os.pwrite(fd, b"0", 0)
print("ready", flush=True)
while not os.path.exists("/end"): time.sleep(0.01)
print(os.pread(fd, 2, 0), flush=True)
"""
    opts = ("--standalone", "--name", name, "--block-device", name)
    argv = domain.argv("python3", "-c", FREEZE + script, image="debian", opts=opts)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout is not None and p.stdout.readline() == "ready\n"
        command("hibernate", name).ok()
        p.wait(60)
    domain.run("head", "-c", "1", "/dev/vda", opts=("--block-device", f"{name}:ro")).ok()
    with subprocess.Popen([DOPPEL, "wake", name], stdout=subprocess.PIPE, text=True) as p:
        eventually(lambda: command("exec", name, "sh", "-c", "printf 12 > /dev/vda; touch /end").code == 0)
        out, _ = p.communicate(timeout=60)
        assert out == "b'12'\n", out
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout is not None and p.stdout.readline() == "ready\n"
        command("hibernate", name).ok()
        p.wait(60)
    domain.run("sh", "-c", "printf 3 > /dev/vda", opts=("--block-device", name)).ok()
    woken = command("wake", name)
    assert woken.code != 0 and f'disk "{name}" was written to' in woken.err, woken
