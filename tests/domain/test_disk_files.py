"""Files on disks: the file system `doppelfs` on block devices and loop devices of para domains."""
import subprocess
import time

import pytest
from conftest import DOPPEL, Domain
from test_disks import command, name, run
from test_volume_kills import Killer

__all__ = ["name"]

MIB = 1 << 20
MOUNT = "mkdir -p /mnt; mount -t doppelfs /dev/vda /mnt || exit 9;"


@pytest.fixture
def formatted(name: str) -> str:
    """A disk of 16 MiB with an empty file system."""
    assert command("create", "--size", "16m", "--format", name).code == 0
    return name


def lines(domain: Domain, script: str, *disks: str, image: str = "busybox") -> list[str]:
    done = run(domain, script, *disks, image=image)
    assert done.code == 0, done.err
    return done.out.splitlines()


def test_files_stay(domain: Domain, formatted: str) -> None:
    made = """
        echo hello > /mnt/a; mkdir -p /mnt/d/e; ln /mnt/a /mnt/d/b; ln -s d/b /mnt/l; mknod /mnt/p p; chmod 640 /mnt/a
        head -c 300000 /dev/zero | tr '\\0' x > /mnt/d/e/large
        umount /mnt && ls -A /mnt
    """
    assert lines(domain, MOUNT + made, formatted) == []
    found = """
        cat /mnt/l; stat -c '%a %h %s' /mnt/a; stat -c %F /mnt/p; wc -c < /mnt/d/e/large
        tr -d x < /mnt/d/e/large | wc -c
        stat -f -c '%T %s' /mnt; stat -c %h /mnt/d; grep ' /mnt ' /proc/mounts | cut -d' ' -f1-3
        grep -c doppelfs /proc/filesystems
    """
    assert lines(domain, MOUNT + found, formatted) == [
        "hello", "640 2 6", "fifo", "300000", "0", "UNKNOWN 4096", "3", "/dev/vda /mnt doppelfs", "1",
    ]


def test_what_is_no_file_system_is_refused(domain: Domain, name: str) -> None:
    assert command("create", "--size", "4m", name).code == 0
    tried = lines(
        domain,
        """
        mkdir /mnt; try() { mount -t doppelfs "$@" /mnt 2>/dev/null && echo mounted && umount /mnt || echo refused; }
        try /dev/vda; try -o mkfs,ro /dev/vda; try -o nonsense /dev/vda; try -o mkfs /dev/vda; try /dev/vda
        mount -t doppelfs -o mkfs /dev/vda /mnt && echo kept > /mnt/kept; umount /mnt
        mount -t doppelfs -o mkfs /dev/vda /mnt; cat /mnt/kept; umount /mnt
        echo other > /dev/vda; printf x | dd of=/dev/vda bs=4096 seek=1 conv=notrunc 2>/dev/null
        try -o mkfs /dev/vda; try /dev/null
        """,
        name,
    )
    assert tried == ["refused"] * 3 + ["mounted", "mounted", "kept", "refused", "refused"]
    assert "room for a file system" in command("create", "--size", "512k", "--format", name + "x").err


def test_read_only_and_twice(domain: Domain, formatted: str) -> None:
    lines(domain, MOUNT + "echo one > /mnt/a; umount /mnt", formatted)
    read = """
        mkdir /mnt /two; mount -t doppelfs /dev/vda /mnt 2>/dev/null && grep -c ' /mnt doppelfs ro' /proc/mounts
        umount /mnt 2>/dev/null; mount -t doppelfs -o ro /dev/vda /mnt; cat /mnt/a; touch /mnt/b || echo no
        mount -o remount,rw /mnt || echo no
    """
    assert lines(domain, read, formatted + ":ro")[-3:] == ["one", "no", "no"]
    both = """
        mkdir /two; mount -o remount,ro /mnt; touch /mnt/b || echo no; mount -o remount,rw /mnt; echo two > /mnt/b
        mount -t doppelfs /dev/vda /two && cat /two/b; umount /mnt; echo three > /two/b
        sleep 60 < /two/b & umount /two || echo busy; umount -l /two
        mount -t doppelfs /dev/vda /mnt 2>/dev/null || echo busy; kill $!; wait
        mount -t doppelfs /dev/vda /mnt && cat /mnt/b
    """
    assert lines(domain, MOUNT + both, formatted) == ["no", "two", "busy", "busy", "three"]


FULL = """
import errno, os, shutil
def free():
    s = os.statvfs("/mnt")
    return s.f_bavail * s.f_frsize
def fill(path):
    n = 0
    with open(path, "wb", buffering=0) as f:
        try:
            while True: n += f.write(b"x" * 65536)
        except OSError as e:
            assert e.errno == errno.ENOSPC
        os.fsync(f.fileno())
    return n
first = free()
n = fill("/mnt/all")
assert first * 0.9 < n <= first, (first, n)
# What is there can be overwritten, as a whole, again and again.
for round in range(4):
    with open("/mnt/all", "r+b", buffering=0) as f:
        for at in range(0, n, 65536): f.write(bytes([65 + round]) * min(65536, n - at))
        os.fsync(f.fileno())
assert open("/mnt/all", "rb").read() == b"D" * n
os.unlink("/mnt/all"); os.sync()
assert fill("/mnt/again") >= n * 0.95
os.truncate("/mnt/again", 0)
made = 0
try:
    while True:
        os.mkdir(f"/mnt/{made:0200}"); made += 1
except OSError as e:
    assert e.errno == errno.ENOSPC
os.sync()
assert made > 500, made
for n in range(made): os.rmdir(f"/mnt/{n:0200}")
os.sync()
assert os.listdir("/mnt") == ["again"]
open("/mnt/new", "w").write("new")
print("done")
"""


def test_a_full_one_takes_what_makes_room(domain: Domain, formatted: str) -> None:
    script = f"import subprocess\nsubprocess.run({MOUNT!r}, shell=True, check=True)\n"
    assert lines(domain, script + FULL, formatted, image="debian") == ["done"]
    assert lines(domain, MOUNT + "cat /mnt/new; wc -c < /mnt/again", formatted) == ["new0"]


def test_on_a_loop_device(domain: Domain) -> None:
    made = """
        truncate -s 8M /image; mkdir /mnt; mount -t doppelfs -o loop,mkfs /image /mnt || exit 9
        seq 1 20000 > /mnt/numbers; umount /mnt; losetup -f; mount -t doppelfs -o loop /image /mnt
        md5sum < /mnt/numbers
        rm /mnt/numbers; sync; umount /mnt; seq 1 20000 | md5sum
    """
    device, *sums = lines(domain, made)
    assert device == "/dev/loop0" and sums[0] == sums[1]


HOSTILE = """
import os, random, subprocess
r = random.Random(SEED)
def sh(text): return subprocess.run(text, shell=True, capture_output=True, text=True)
def umount():
    # The tool looks for its loop device afterwards, which is free already.
    sh("umount /mnt")
    assert " /mnt " not in open("/proc/mounts").read()
os.makedirs("/mnt", exist_ok=True)
os.close(os.open("/image", os.O_CREAT | os.O_RDWR)); os.truncate("/image", 2 << 20)
assert sh("mount -t doppelfs -o loop,mkfs /image /mnt").returncode == 0
for d in range(20):
    os.mkdir(f"/mnt/{d}")
    for f in range(10): open(f"/mnt/{d}/{f}", "w").write("x" * r.randrange(9000))
umount()
good = open("/image", "rb").read()
mounted = refused = 0
for n in range(120):
    bad = bytearray(good)
    for _ in range(r.randrange(1, 30)):
        # Mostly where the log is.
        at = r.randrange(40 * 4096 if r.random() < 0.9 else len(bad))
        bad[at] = r.randrange(256)
    with open("/image", "r+b") as f: f.write(bad)
    if sh("mount -t doppelfs -o loop /image /mnt").returncode: refused += 1; continue
    mounted += 1
    sh("find /mnt -type f | xargs cat > /dev/null; touch /mnt/new; rm -rf /mnt/3; sync")
    umount()
print(mounted > 0, refused > 0)
"""


def test_hostile_bytes(domain: Domain) -> None:
    assert lines(domain, HOSTILE.replace("SEED", "5"), image="debian") == ["True True"]


STRESS = """
import os
n = 0
os.chdir("/mnt")
while True:
    n += 1
    d = f"d{n % 7}"
    os.makedirs(d, exist_ok=True)
    with open(f"{d}/new", "w") as f:
        f.write(f"{n}\\n" * (n % 3000 + 1))
        f.flush()
        os.fsync(f.fileno())
    os.rename(f"{d}/new", f"{d}/{n % 50}")
    fd = os.open(d, os.O_RDONLY); os.fsync(fd); os.close(fd)
    print(n, flush=True)
"""

CHECK = """
for d in /mnt/d*; do for f in $d/*; do
    [ -e "$f" ] || continue
    case $f in */new) continue;; esac
    [ "$(sort -u $f | wc -l)" = 1 ] || echo torn $f
    echo $(basename $d) $(basename $f) $(head -n 1 $f) $(wc -l < $f)
done; done
"""


def expected(last: int) -> dict[str, int]:
    """What is in each file after so many rounds."""
    return {f"d{n % 7} {n % 50}": n for n in range(1, last + 1)}


@pytest.mark.parametrize("victim", ["domain", "service"])
def test_what_was_synced_is_there_after_kills(domain: Domain, formatted: str, victim: str) -> None:
    shell = f"{MOUNT} exec python3 -c '{STRESS}'"
    args = [DOPPEL, "run", "--standalone", "--block-device", formatted, "debian", "sh", "-c", shell]
    last = 0
    for _ in range(3):
        with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as p:
            assert p.stdout
            killer = Killer(p.pid)
            if victim == "service":
                killer.start()
            said, until = 0, time.monotonic() + 3
            while time.monotonic() < until:
                said = int(p.stdout.readline())
            if victim == "service":
                killer.over.set()
                killer.join()
                assert killer.kills > 3
            p.kill()
            rest = p.stdout.read().split("\n")[:-1]
        said = int(rest[-1]) if rest else said
        found = lines(domain, MOUNT + CHECK, formatted)
        assert not [line for line in found if line.startswith("torn")]
        rows = [line.split() for line in found]
        got = {f"{d} {f}": int(n) for d, f, n, _ in rows}
        assert all(int(count) == int(n) % 3000 + 1 for _, _, n, count in rows)
        # Rounds after the last one that was told may be there too.
        done = max(got.values())
        assert done >= said and got == expected(done), (said, done)
        last = said
        lines(domain, MOUNT + "rm -r /mnt/d*", formatted)
    assert last > 20


def test_snapshots_and_clones_are_mounted(domain: Domain, formatted: str) -> None:
    lines(domain, MOUNT + "echo first > /mnt/a; sync", formatted)
    snapshot, clone = formatted + "-s", formatted + "-c"
    try:
        assert command("snapshot", formatted, snapshot).code == 0
        assert command("clone", formatted, clone).code == 0
        lines(domain, MOUNT + "echo second > /mnt/a; echo more > /mnt/b", clone)
        assert lines(domain, MOUNT + "cat /mnt/*", clone) == ["second", "more"]
        assert lines(domain, MOUNT + "cat /mnt/*", formatted) == ["first"]
        read = "mkdir /mnt; mount -t doppelfs -o ro /dev/vda /mnt && cat /mnt/*"
        assert lines(domain, read, snapshot + ":ro") == ["first"]
    finally:
        command("rm", "-f", snapshot, clone)


def test_a_larger_disk_has_more_room(domain: Domain, formatted: str) -> None:
    blocks = "stat -f -c %b /mnt"
    before = int(lines(domain, MOUNT + f"echo kept > /mnt/a; {blocks}", formatted)[0])
    assert command("resize", "--size", "32m", formatted).code == 0
    kept, after = lines(domain, MOUNT + f"cat /mnt/a; {blocks}", formatted)
    assert kept == "kept" and int(after) >= before + 15 * MIB // 4096
