"""Limits of named volumes (bytes, files), and rates of a domain's own files by device."""
import json
import os
import pathlib
import signal
import time
import uuid

import pytest
from test_leases import running, sh
from test_volume_kills import services
from test_volumes import command

MIB = 1 << 20


@pytest.fixture
def bounded():
    """A volume of 4 MiB and 50 files."""
    name = "test-" + uuid.uuid4().hex[:10]
    command("create", "--opt", "size=4m", "-o", "nr_inodes=50", name).ok()
    yield name
    command("rm", "-f", name)


def place(name):
    return pathlib.Path(json.loads(command("inspect", name).ok())[0]["mountpoint"])


def used(root):
    return sum(entry.lstat().st_blocks * 512 for entry in [root, *root.rglob("*")])


def test_a_volume_takes_no_more_than_it_may(bounded):
    """Bytes and files beyond the limits are refused (ENOSPC), df shows them, and what is removed can be used again."""
    shown = json.loads(command("inspect", bounded).ok())[0]
    assert (shown["size_bytes"], shown["inodes"]) == (4 * MIB, 50)
    root = place(bounded)
    fill = "dd if=/dev/zero of=/v/big bs=64k conv=fsync 2>&1 | tail -n 1; stat -c %s /v/big"
    with running(bounded) as domain:
        shown = sh(domain, "for how in -k -i; do df $how /v | tail -n 1 | awk '{print $2}'; done")
        assert shown == "4096\n50\n"
        for _ in range(2):
            size = int(sh(domain, fill).split()[-1])
            assert 3.5 * MIB < size <= 4 * MIB and used(root) <= 4 * MIB
            more = domain.exec("sh", "-c", "head -c 300000 /dev/zero > /v/more; sync /v/more")
            assert "No space left" in more.err
            # A successor of the service goes on with the same count.
            [pid] = services(domain.process.pid)
            os.kill(pid, signal.SIGKILL)
            sh(domain, "rm -f /v/more; mv /v/big /v/moved; rm /v/moved")
        made = sh(domain, "i=0; while mkdir /v/d$i 2>/dev/null; do i=$((i + 1)); done; echo $i").strip()
        # The volume's root is one.
        assert made == "49"
        assert sh(domain, "rmdir /v/d*; echo x > /v/f; cat /v/f") == "x\n"
    # What the host has put there counts when somebody begins anew.
    (root / "hosts").write_bytes(b"1" * (2 * MIB))
    with running(bounded) as domain:
        assert int(sh(domain, fill).split()[-1]) < 2 * MIB
        with running(bounded) as other:
            assert "No space left" in other.exec("sh", "-c", "head -c 300000 /dev/zero > /v/theirs").err


def test_what_cannot_be_limited(domain, bounded):
    assert "limits" in command("create", "-o", "size=8m", bounded).err
    assert command("create", bounded).ok().strip() == bounded
    for option, why in (("size=1", "at least"), ("nr_inodes=0", "number"), ("color=red", "size="), ("size", "size=")):
        failed = command("create", "-o", option, bounded + "x")
        assert failed.code != 0 and why in failed.err
    if os.geteuid() == 0:
        options = ("--standalone", "--kind", "paene", "-v", f"{bounded}:/v")
        refused = domain.run("true", image="busybox", opts=options)
        assert refused.code != 0 and "limits" in refused.err


def test_rates_are_kept(bounded):
    """A domain's volume and no other's: 2 MiB a second written; whoever has no rate is not held up."""
    device = place(bounded).stat().st_dev
    rate = f"{os.major(device)}:{os.minor(device)}:2m"
    write = "dd if=/dev/zero of=/v/f bs=64k count=48 conv=fsync 2>/dev/null"

    def seconds(domain):
        begun = time.monotonic()
        sh(domain, write)
        return time.monotonic() - begun

    with running(bounded, "--device-write-bps", rate) as slow:
        took = seconds(slow)
    with running(bounded) as free:
        # The quickest of some: the host's disk may have more to write than this.
        assert min(seconds(free) for _ in range(3)) < took
    # 3 MiB, of which a tenth of a second is free.
    assert 1.0 < took < 6, took
