"""Disks: `doppel disk`, and block devices of domains of `doppel run` alone."""
import hashlib
import json
import os
import random
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import DOPPEL, Domain, Result, call, eventually
from test_volume_kills import Killer

MIB = 1 << 20


def command(*args: str) -> Result:
    """`doppel disk ...` on the store alone."""
    env = {name: value for name, value in os.environ.items() if name != "DOPPEL_HOST"}
    return call([DOPPEL, "disk", *args], b"", 60, env=env)


def inspected(name: str) -> dict[str, Any]:
    return json.loads(command("inspect", name).out)[0]


@pytest.fixture
def name() -> Iterator[str]:
    """A disk's name that nobody has."""
    one = "test-" + uuid.uuid4().hex[:10]
    yield one
    command("rm", "-f", one)


@pytest.fixture
def disk(name: str) -> str:
    """A disk of 8 MiB."""
    assert command("create", "--size", "8m", name).out.split() == [name]
    return name


def run(domain: Domain, script: str, *disks: str, image: str = "busybox") -> Result:
    opts = [word for disk in disks for word in ("--block-device", disk)]
    shell = ("python3", "-c", script) if image == "debian" else ("sh", "-c", script)
    return domain.run(*shell, image=image, opts=("--standalone", *opts))


def test_a_disk_is_made_told_and_removed(name: str) -> None:
    assert command("create", "--size", "1g", name).code == 0
    assert name in command("ls", "-q").out.split()
    told = inspected(name)
    assert (told["size_bytes"], told["in_use"]) == (1 << 30, False) and told["used_bytes"] < MIB
    assert "there is a disk" in command("create", "--size", "1m", name).err
    assert command("rm", name).out.split() == [name]
    assert command("inspect", name).code != 0 and command("rm", name).code != 0
    for wrong in (("--size", "1", name), ("--size", "0", name), ("--size", "1m", "../x")):
        assert command("create", *wrong).code != 0, wrong


def test_what_is_written_stays(domain: Domain, disk: str) -> None:
    assert run(domain, "echo hello | dd of=/dev/vda bs=1 seek=5000 conv=fsync 2>/dev/null", disk).code == 0
    found = run(domain, "dd if=/dev/vda bs=1 skip=4999 count=8 2>/dev/null | od -An -tx1", disk)
    assert found.out.split() == "00 68 65 6c 6c 6f 0a 00".split()


SHOWN = r"""
import fcntl, os, struct
s = os.stat("/dev/vda")
print(oct(s.st_mode), os.major(s.st_rdev), os.minor(s.st_rdev), s.st_gid)
fd = os.open("/dev/vda", os.O_RDWR)
def ask(number, form):
    return struct.unpack(form, fcntl.ioctl(fd, number, bytes(struct.calcsize(form))))[0]
print(ask(0x80081272, "Q"), ask(0x1260, "Q"), ask(0x1268, "i"), ask(0x125e, "i"), fcntl.ioctl(fd, 0x1261))
print(os.lseek(fd, 0, os.SEEK_END), os.pread(fd, 10, 8 << 20), len(os.pread(fd, 10, (8 << 20) - 4)))
for act in (lambda: os.pwrite(fd, b"x", 8 << 20), lambda: os.lseek(fd, (8 << 20) + 1, 0), lambda: os.ftruncate(fd, 1)):
    try:
        act()
        print("done")
    except OSError as e:
        print(e.strerror)
print(open("/proc/partitions").read().split()[-4:], open("/sys/block/vda/size").read().strip())
print(open("/sys/class/block/vda/ro").read().strip(), open("/sys/block/vdb/ro").read().strip())
print(open("/sys/block/vda/dev").read().strip(), open("/sys/block/vdb/queue/logical_block_size").read().strip())
os.fsync(fd)
"""


def test_programs_find_a_block_device(domain: Domain, disk: str) -> None:
    second = disk + "-ro"
    try:
        assert command("create", "--size", "4m", second).code == 0
        lines = run(domain, SHOWN, disk, second + ":ro", image="debian").out.splitlines()
    finally:
        command("rm", "-f", second)
    assert lines == [
        "0o60660 254 0 6",
        f"{8 * MIB} {8 * MIB // 512} 512 0 0",
        f"{8 * MIB} b'' 4",
        "No space left on device",
        "Invalid argument",
        "Invalid argument",
        "['254', '16', '4096', 'vdb'] 16384",
        "0 1",
        "254:0 512",
    ]


RANDOM = r"""
import fcntl, mmap, os, random, struct
r, size = random.Random(7), 8 << 20
fd = os.open("/dev/vda", os.O_RDWR)
direct = os.open("/dev/vda", os.O_RDWR | os.O_DIRECT)
want = bytearray(os.pread(fd, size, 0))
page = mmap.mmap(-1, 1 << 20)
for n in range(1500):
    at, length = r.randrange(size), r.randrange(1, 200_000 if n % 10 == 0 else 9000)
    length = min(length, size - at)
    what = r.randrange(6)
    if what < 3:
        data = r.randbytes(length)
        assert os.pwrite(fd, data, at) == length
        want[at:at + length] = data
    elif what == 3:
        at, length = at // 4096 * 4096, -(-length // 4096) * 4096
        page[:length] = r.randbytes(length)
        done = os.pwritev(direct, [memoryview(page)[:length]], at)
        assert done == min(length, size - at), (done, length)
        want[at:at + done] = page[:done]
    elif what == 4:
        at, length = at // 512 * 512, -(-length // 512) * 512
        length = min(length, size - at)
        fcntl.ioctl(fd, r.choice((0x1277, 0x127f)), struct.pack("QQ", at, length))
        want[at:at + length] = bytes(length)
    else:
        assert os.pread(fd, length, at) == want[at:at + length], (at, length)
    if n % 100 == 0:
        os.fsync(fd)
assert os.pread(fd, size, 0) == want
import hashlib
print(hashlib.sha256(want).hexdigest())
"""
SUM = "import hashlib; print(hashlib.sha256(open('/dev/vda', 'rb').read()).hexdigest())"


def test_it_holds_what_was_written(domain: Domain, disk: str) -> None:
    written = run(domain, RANDOM, disk, image="debian")
    assert written.code == 0, written.err
    assert run(domain, SUM, disk + ":ro", image="debian").out == written.out


def test_a_read_only_disk_is_not_written(domain: Domain, disk: str) -> None:
    script = """
import errno, fcntl, os, struct
fd = os.open("/dev/vda", os.O_RDWR)
for act in (lambda: os.write(fd, b"x"), lambda: fcntl.ioctl(fd, 0x1277, struct.pack("QQ", 0, 4096))):
    try:
        act()
    except OSError as e:
        print(errno.errorcode[e.errno])
"""
    assert run(domain, script, disk + ":ro", image="debian").out.split() == ["EPERM", "EPERM"]


def test_one_domain_writes_or_many_read(domain: Domain, disk: str) -> None:
    opts = ("--standalone", "--block-device", disk + ":ro")
    reader = domain.start("sh", "-c", "echo up; exec sleep 1000", image="busybox", opts=opts)
    assert reader.stdout.readline() == b"up\n"
    assert run(domain, "true", disk + ":ro").code == 0
    refused = run(domain, "true", disk)
    assert refused.code != 0 and "in use" in refused.err
    assert command("rm", disk).code != 0 and inspected(disk)["in_use"]
    domain.end_started()


def test_what_is_refused(domain: Domain, disk: str) -> None:
    for opts, why in (
        (("--block-device", "nobody-has-it"), "no disk"),
        (("--block-device", disk, "--block-device", disk + ":ro"), "twice"),
        (("--block-device", disk + ":rx"), "ro or rw"),
    ):
        refused = domain.run("true", image="busybox", opts=("--standalone", *opts))
        assert refused.code != 0 and why in refused.err, refused.err


def test_discarded_blocks_take_no_room(domain: Domain, disk: str) -> None:
    script = """
import fcntl, os, struct
fd = os.open("/dev/vda", os.O_RDWR)
os.write(fd, os.urandom(8 << 20))
os.fsync(fd)
"""
    assert run(domain, script, disk, image="debian").code == 0
    assert inspected(disk)["used_bytes"] >= 8 * MIB
    script = """
import fcntl, os, struct
fcntl.ioctl(os.open("/dev/vda", os.O_RDWR), 0x1277, struct.pack("QQ", 0, 8 << 20))
"""
    assert run(domain, script, disk, image="debian").code == 0
    assert inspected(disk)["used_bytes"] < MIB


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_the_services_death_loses_nothing(domain: Domain, disk: str, kind: str) -> None:
    """It works on, with every check in it, while the service that reads and writes its disk is killed."""
    if kind == "paene" and os.geteuid() != 0:
        pytest.skip("a paene domain needs root")
    opts = ("--standalone", "--kind", kind, "--block-device", disk)
    until_told = "import itertools, select\nfor n in itertools.count():\n    if select.select([0], [], [], 0)[0]: break"
    again = RANDOM.replace("for n in range(1500):", until_told)
    assert until_told in again
    process = domain.start("python3", "-c", again, image="debian", opts=opts)
    killer = Killer(process.pid)
    killer.start()
    try:
        eventually(lambda: killer.kills >= 4 or process.poll() is not None, 100)
        out, err = process.communicate(b"\n", timeout=100)
    finally:
        killer.over.set()
        killer.join()
    assert process.returncode == 0, err
    assert killer.kills >= 4
    assert run(domain, SUM, disk + ":ro", image="debian").out == out.decode()


def test_snapshots_and_clones(domain: Domain, disk: str) -> None:
    snapshot, clone = disk + "-s", disk + "-c"
    write = "printf %s | dd of=/dev/vda bs=4096 seek=%d conv=notrunc 2>/dev/null"
    read = "for n in 0 1 2 3000; do dd if=/dev/vda bs=4096 skip=$n count=1 2>/dev/null | head -c 1 | tr '\\0' -; done"
    try:
        assert run(domain, write % ("a", 0) + "; " + write % ("a", 1), disk).code == 0
        assert command("snapshot", disk, snapshot).code == 0
        assert run(domain, write % ("b", 1), disk).code == 0
        assert command("clone", disk, clone).code == 0
        assert run(domain, write % ("c", 2), clone).code == 0
        assert command("resize", "--size", "16m", clone).code == 0
        assert run(domain, write % ("d", 3000), clone).code == 0
        assert run(domain, read, disk).out == "ab-"
        assert run(domain, read, snapshot + ":ro").out == "aa-"
        assert run(domain, read, clone).out == "abcd"
        refused = run(domain, "true", snapshot)
        assert refused.code != 0 and "is a snapshot" in refused.err
        assert (inspected(clone)["layers"], inspected(clone)["size_bytes"]) == (3, 16 * MIB)
        assert command("flatten", clone).code == 0 and inspected(clone)["layers"] == 1
        assert command("rm", snapshot, disk).code == 0
        assert run(domain, read, clone + ":ro").out == "abcd"
    finally:
        command("rm", "-f", snapshot, clone)


LOOPS = r"""
import fcntl, os, struct
def configure(device, fd, offset=0, limit=0, flags=0):
    info = struct.pack("5Q4I64s", 0, 0, 0, offset, limit, 0, 0, 0, flags, b"/tmp/f").ljust(232, b"\0")
    fcntl.ioctl(device, 0x4c0a, struct.pack("II", fd, 0) + info + bytes(64))
def status(device):
    return struct.unpack("5Q4I64s", fcntl.ioctl(device, 0x4c05, bytes(232))[:120])
control = os.open("/dev/loop-control", os.O_RDWR)
assert fcntl.ioctl(control, 0x4c82) == 0
backing = os.open("/tmp/f", os.O_RDWR | os.O_CREAT)
os.ftruncate(backing, 1 << 20)
os.pwrite(backing, b"file", 8192)
loop = os.open("/dev/loop0", os.O_RDWR)
assert os.read(loop, 1) == b""
configure(loop, backing, 4096, 65536 + 5)
print(os.lseek(loop, 0, os.SEEK_END), os.pread(loop, 4, 4096), fcntl.ioctl(control, 0x4c82))
os.pwrite(loop, b"loop", 100)
print(os.pread(backing, 4, 4196), len(os.pread(loop, 1 << 20, 0)))
print(status(loop)[3:6], status(loop)[9].rstrip(b"\0"), status(loop)[1] == os.fstat(backing).st_ino)
print(open("/sys/block/loop0/loop/backing_file").read().strip(), open("/sys/block/loop0/loop/offset").read().strip())
fcntl.ioctl(loop, 0x1277, struct.pack("QQ", 0, 4096))
print(os.pread(backing, 4, 4196), "loop0" in open("/proc/partitions").read())
for act in (lambda: configure(loop, backing), lambda: fcntl.ioctl(os.open("/dev/loop1", os.O_RDWR), 0x4c00, loop),
            lambda: fcntl.ioctl(os.open("/dev/loop2", os.O_RDWR), 0x4c05, bytes(232)),
            lambda: os.pwrite(loop, b"x", 65536)):
    try:
        act()
        print("done")
    except OSError as e:
        print(e.strerror)
# Cleared while somebody else uses it: with the last use.
other = os.open("/dev/loop0", os.O_RDONLY)
fcntl.ioctl(loop, 0x4c01)
os.close(loop)
print(os.pread(other, 4, 4096), os.path.exists("/sys/block/loop0/loop"))
os.close(other)
print(os.path.exists("/sys/block/loop0/loop"), fcntl.ioctl(control, 0x4c82))
read_only = os.open("/dev/loop3", os.O_RDWR)
configure(read_only, os.open("/tmp/f", os.O_RDONLY), flags=4)
print(struct.unpack("i", fcntl.ioctl(read_only, 0x125e, bytes(4))))
os.close(read_only)
print(os.path.exists("/sys/block/loop3/loop"))
"""


def test_loop_devices(domain: Domain) -> None:
    lines = domain.run("python3", "-c", LOOPS, opts=("--standalone",))
    assert lines.out.splitlines() == [
        "65536 b'file' 1",
        "b'loop' 65536",
        "(4096, 65541, 0) b'/tmp/f' True",
        "/tmp/f 4096",
        "b'\\x00\\x00\\x00\\x00' True",
        "Device or resource busy",
        "Invalid argument",
        "No such device or address",
        "No space left on device",
        "b'file' True",
        "False 0",
        "(1,)",
        "False",
    ], lines.err


def test_losetup(domain: Domain, disk: str) -> None:
    script = """
dd if=/dev/zero of=/f bs=1024 count=64 2>/dev/null
losetup -f && losetup /dev/loop0 /f && losetup /dev/loop0 && losetup -d /dev/loop0 && losetup -f
losetup /dev/loop1 /dev/vda && echo on disk | dd of=/dev/loop1 conv=notrunc 2>/dev/null && head -c 7 /dev/vda
"""
    done = run(domain, script, disk)
    assert done.out.split("\n") == ["/dev/loop0", "/dev/loop0: 0 /f", "/dev/loop0", "on disk"], done.err


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files of all kinds, and beside them an EROFS image of them."""
    if not shutil.which("mkfs.erofs"):
        pytest.skip("mkfs.erofs is not installed")
    root, r = tmp_path / "tree", random.Random(1)
    (root / "dir" / "deep").mkdir(parents=True)
    (root / "empty").write_bytes(b"")
    (root / "dir" / "large").write_bytes(r.randbytes(300_001))
    (root / "dir" / "deep" / "small").write_bytes(b"small")
    os.link(root / "empty", root / "dir" / "same")
    (root / "link").symlink_to("dir/deep/small")
    for n in range(300):
        (root / "dir" / "deep" / f"name-{n:04}").write_text(str(n))
    shutil.copy("/bin/busybox", root / "busybox")
    os.setxattr(root / "dir", "user.note", b"value")
    call(["mkfs.erofs", str(tmp_path / "image"), str(root)], b"", 60)
    return root


def sums(root: Path) -> list[str]:
    files = sorted(p for p in root.rglob("*") if p.is_file() and not p.is_symlink())
    return [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  ./{p.relative_to(root)}" for p in files]


MOUNTED = """
cat /mnt/link && /mnt/busybox echo " runs" && stat -c '%h %s' /mnt/dir/same /mnt/dir/large && stat -f -c %T /mnt | wc -l
for act in "touch /mnt/new" "rm /mnt/empty" "chmod 0 /mnt/dir"; do $act 2>/dev/null && echo done; done
grep " /mnt " /proc/mounts | cut -d' ' -f2,3
"""
TOLD = ["small runs", "2 0", "1 300001", "1", "/mnt erofs"]


def test_erofs_on_a_disk(domain: Domain, disk: str, tree: Path) -> None:
    opts = ("--standalone", "--block-device", disk)
    image = (tree.parent / "image").read_bytes()
    written = domain.run("sh", "-c", "cat > /dev/vda", image="busybox", opts=opts, stdin=image)
    assert written.code == 0, written.err
    script = "cd /; mkdir /mnt; mount -t erofs /dev/vda /mnt || exit 1;"
    done = run(domain, script + MOUNTED + "cd /mnt; find . -type f | sort | xargs sha256sum", disk + ":ro")
    assert done.code == 0 and done.out.splitlines() == [*TOLD, *sorted(sums(tree), key=lambda s: s[66:])], done.err
    tries = " || ".join(f"mount -t erofs {what} /mnt" for what in ("/dev/loop0", "/bin/sh", "/dev/null"))
    blank = run(domain, f"mkdir /mnt; {tries}")
    assert blank.code != 0


def test_erofs_by_a_loop_device(domain: Domain, tree: Path) -> None:
    script = "cat > /image; mkdir /mnt; mount -t erofs -o loop,ro /image /mnt || exit 1; losetup /dev/loop0;"
    done = domain.run(
        "sh", "-c", script + MOUNTED + "umount /mnt; losetup -f", image="busybox", opts=("--standalone",),
        stdin=(tree.parent / "image").read_bytes(),
    )
    assert done.out.splitlines() == ["/dev/loop0: 0 /image", *TOLD, "/dev/loop0"], done.err
