"""Disks of paene domains: the host's kernel has them as loop devices, by the same storage service as para domains."""
import os
import pathlib
import signal
import subprocess
import time

import pytest
from conftest import Domain, Result, eventually
from processes import words
from test_disks import RANDOM, SUM, command, disk, inspected, name

__all__ = ["disk", "name"]

needs_devices = pytest.mark.skipif(
    os.geteuid() != 0 or not all(pathlib.Path(p).exists() for p in ("/dev/fuse", "/dev/loop-control")),
    reason="paene domains with disks need root, /dev/fuse and loop devices",
)
pytestmark = needs_devices


def run(domain: Domain, script: str, *disks: str, kind: str = "paene", image: str = "debian") -> Result:
    opts = [word for disk in disks for word in ("--block-device", disk)]
    shell = ("python3", "-c", script) if image == "debian" else ("sh", "-c", script)
    return domain.run(*shell, image=image, opts=("--standalone", "--kind", kind, *opts))


def test_both_kinds_have_the_same_bytes(domain: Domain, disk: str) -> None:
    write = "echo %s | dd of=/dev/vda bs=1 seek=%d conv=notrunc 2>/dev/null"
    read = "dd if=/dev/vda bs=1 skip=5000 count=12 2>/dev/null | tr '\\0' -"
    assert run(domain, write % ("para", 5000), disk, kind="para", image="busybox").code == 0
    assert run(domain, read, disk, image="busybox").out.startswith("para\n---")
    # Nobody syncs: what was written is there when the domain has ended.
    assert run(domain, write % ("paene", 5006), disk, image="busybox").code == 0
    for kind in ("para", "paene"):
        assert run(domain, read, disk + ":ro", kind=kind, image="busybox").out == "para\n-paene\n", kind


SHOWN = r"""
import fcntl, os, struct
s = os.stat("/dev/vda")
print(oct(s.st_mode), os.major(s.st_rdev), s.st_uid, s.st_gid)
fd = os.open("/dev/vda", os.O_RDWR)
def ask(number, form):
    return struct.unpack(form, fcntl.ioctl(fd, number, bytes(struct.calcsize(form))))[0]
print(ask(0x80081272, "Q"), ask(0x1260, "Q"), ask(0x1268, "i"), ask(0x125e, "i"))
print(os.lseek(fd, 0, os.SEEK_END), os.pread(fd, 10, 8 << 20))
def refused(act):
    try:
        act()
        print("done")
    except OSError as e:
        print(e.strerror)
refused(lambda: os.pwrite(fd, b"x", 8 << 20))
other = os.open("/dev/vdb", os.O_RDWR)
refused(lambda: os.pwrite(other, b"x", 0))
refused(lambda: fcntl.ioctl(other, 0x1277, struct.pack("QQ", 0, 4096)))
# Of loop devices: that would show another part of the file, or another file.
for number in (0x4c01, 0x4c04, 0x4c05, 0x4c06, 0x4c07, 0x4c08, 0x4c09, 0x4c0a):
    refused(lambda: fcntl.ioctl(fd, number, bytes(304)))
"""


def test_programs_find_a_block_device(domain: Domain, disk: str) -> None:
    second = disk + "-ro"
    try:
        assert command("create", "--size", "4m", second).code == 0
        told = run(domain, SHOWN, disk, second + ":ro")
    finally:
        command("rm", "-f", second)
    assert told.out.splitlines() == [
        "0o60660 7 0 6",
        f"{8 << 20} {(8 << 20) // 512} 512 0",
        f"{8 << 20} b''",
        "No space left on device",
        *["Operation not permitted"] * 10,
    ], told.err


def test_a_copy_on_write_disk_holds_what_was_written(domain: Domain, disk: str) -> None:
    """Every kind of write and discard, on a disk whose bytes are partly in a layer below."""
    snapshot, clone = disk + "-s", disk + "-c"
    try:
        before = run(domain, RANDOM.replace("range(1500)", "range(300)"), disk)
        assert before.code == 0, before.err
        assert command("snapshot", disk, snapshot).code == 0
        assert command("clone", snapshot, clone).code == 0
        after = run(domain, RANDOM.replace("Random(7)", "Random(8)"), clone)
        assert after.code == 0, after.err
        for what, written in ((snapshot, before), (disk, before), (clone, after)):
            assert run(domain, SUM, what + ":ro", kind="para").out == written.out, what
    finally:
        command("rm", "-f", clone, snapshot)


def test_discarded_blocks_take_no_room(domain: Domain, disk: str) -> None:
    script = "import os; fd = os.open('/dev/vda', os.O_RDWR); os.write(fd, os.urandom(8 << 20))"
    assert run(domain, script, disk).code == 0
    assert inspected(disk)["used_bytes"] >= 8 << 20
    discard = """
import fcntl, os, struct
fcntl.ioctl(os.open("/dev/vda", os.O_RDWR), 0x1277, struct.pack("QQ", 0, 8 << 20))
"""
    assert run(domain, discard, disk).code == 0
    assert inspected(disk)["used_bytes"] < 1 << 20


def below(pid: int) -> list[int]:
    """Processes that this one has started, and theirs."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *below(int(child))]
    return found


def begun(domain: Domain, disk: str) -> tuple["subprocess.Popen[bytes]", pathlib.Path]:
    """A domain that has the disk, and its loop device in /sys."""
    opts = ("--standalone", "--kind", "paene", "--block-device", disk)
    script = "stat -c %T /dev/vda; echo kept | dd of=/dev/vda conv=fsync 2>/dev/null; echo up; exec sleep 1000"
    process = domain.start("sh", "-c", script, image="busybox", opts=opts)
    minor = int(process.stdout.readline(), 16)
    assert process.stdout.readline() == b"up\n"
    device = pathlib.Path(f"/sys/block/loop{minor}/loop/autoclear")
    assert device.read_text() == "1\n"
    return process, device


def test_one_domain_writes_or_many_read(domain: Domain, disk: str) -> None:
    process, _ = begun(domain, disk)
    for kind in ("para", "paene"):
        refused = run(domain, "true", disk + ":ro", kind=kind, image="busybox")
        assert refused.code != 0 and "in use" in refused.err, refused.err
    assert command("snapshot", disk, disk + "-s").code != 0 and command("rm", disk).code != 0
    domain.end_started()
    assert process.poll() is not None


def test_a_killed_domain_leaves_no_device(domain: Domain, disk: str) -> None:
    process, device = begun(domain, disk)
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: not device.exists(), 10)
    eventually(lambda: run(domain, "head -c 4 /dev/vda", disk, kind="para", image="busybox").out == "kept", 10)


def test_a_domain_ends_with_who_serves_its_disks(domain: Domain, disk: str) -> None:
    process, device = begun(domain, disk)
    helpers = [p for p in below(process.pid) if b"disks" in words(p)]
    assert len(helpers) == 1
    os.kill(helpers[0], signal.SIGKILL)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 137 and b"who serves its disks" in err
    eventually(lambda: not device.exists(), 10)


def test_rates_hold(domain: Domain, disk: str) -> None:
    """2 MiB a second, of which a tenth of a second is free."""
    device = pathlib.Path(inspected(disk)["path"]).stat().st_dev
    rate = f"{os.major(device)}:{os.minor(device)}:2m"
    write = "dd if=/dev/zero of=/dev/vda bs=64k count=48 conv=fsync 2>/dev/null"
    seconds = {}
    for opts in ((), ("--device-write-bps", rate)):
        begun = time.monotonic()
        opts = ("--standalone", "--kind", "paene", "--block-device", disk, *opts)
        assert domain.run("sh", "-c", write, image="busybox", opts=opts).code == 0
        seconds[len(opts)] = time.monotonic() - begun
    free, slow = seconds.values()
    assert free < slow and 1.0 < slow < 6, seconds
