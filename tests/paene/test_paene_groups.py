"""`/sys/fs/cgroup` inside a paene domain: its own groups, read-only, where runtimes find their limits."""
import os
import subprocess

import pytest
from conftest import DOPPEL, run, text

V2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")


def test_limits_are_seen(doppeld):
    script = """
        cd /sys/fs/cgroup
        cat memory.max memory/memory.limit_in_bytes 2>/dev/null
        cat cpu.max cpu/cpu.cfs_quota_us 2>/dev/null
        cat pids.max pids/pids.max 2>/dev/null
        true
    """
    limits = ["--memory", "100m", "--cpus", "0.5", "--pids-limit", "77"]
    out = text(doppeld.cli("run", "--rm", "--kind", "paene", *limits, "busybox", "sh", "-c", script)).split("\n")
    # 16 MiB are the attendant's.
    assert out[:3] == [str(116 << 20), "50000 100000" if V2 else "50000", "77"], out


def test_only_its_own_and_read_only():
    script = """
        sed 's/.*:/path /' /proc/self/cgroup | sort -u
        awk '$5 ~ "^/sys/fs/cgroup" { print "mount", $4, $6 }' /proc/self/mountinfo
        find /sys/fs/cgroup -mindepth 2 -type d | sed 's/^/below /'
        for f in $(find /sys/fs/cgroup -name cgroup.procs); do cat $f | sed 's/^/process /'; done | sort -u
        for f in $(find /sys/fs/cgroup -type f); do (echo 1 > $f) 2>/dev/null && echo wrote $f; done
        mkdir /sys/fs/cgroup/mine /sys/fs/cgroup/*/mine 2>/dev/null && echo made a group
        mount -o remount,rw /sys/fs/cgroup 2>/dev/null && echo remounted
        true
    """
    lines = [line.split() for line in text(run("sh", "-c", script)).splitlines()]
    of = lambda word: [line[1:] for line in lines if line[0] == word]
    assert ["/"] in of("path") and all("doppel" not in path for [path] in of("path")), lines
    mounts = of("mount")
    assert mounts and all(root == "/" and "ro" in flags.split(",") for root, flags in mounts), mounts
    # Its program and what that runs; v2 shows processes of others as 0.
    assert {int(pid) for [pid] in of("process")} - {0} and all(int(pid) < 100 for [pid] in of("process")), lines
    assert {word for word, *_ in lines} == {"path", "mount", "process"}, lines


def test_the_attendant_is_not_seen():
    """Neither it nor the network's helper is among the processes of any group, nor can it be stopped by its group."""
    # The shell's own commands: it forks nothing.
    script = (
        "for f in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs; do [ -e $f ] && while read p; do "
        "echo $p; done < $f; done; true"
    )
    out = text(run("sh", "-c", script, opts=["--network", "nat"])).split()
    assert set(out) - {"0"} == {"1"}, out


def test_every_exec_sees_the_same(started):
    p = started(
        "sh",
        "-c",
        "ls -R /sys/fs/cgroup | md5sum; exec sleep 1000",
        opts=["--name", "paene-groups"],
        stdin=subprocess.DEVNULL,
    )
    seen = p.stdout.readline()
    assert (
        text(
            subprocess.run(
                [DOPPEL, "exec", "paene-groups", "sh", "-c", "ls -R /sys/fs/cgroup | md5sum"],
                capture_output=True,
                timeout=60,
            )
        ).encode()
        == seen
    )


def test_without_control_groups_there_are_none():
    script = f"umount -l /sys/fs/cgroup; exec {DOPPEL} run --standalone --kind paene busybox -- ls -A /sys/fs/cgroup"
    p = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, timeout=60)
    assert p.returncode == 0 and p.stdout == b"", p


def test_java_sees_its_limits(image):
    p = run(
        "java", "-XshowSettings:system", "-version", image=image("runtimes"), opts=["--memory", "500m", "--cpus", "1"]
    )
    if p.returncode == 127:
        pytest.skip("no Java in image runtimes")
    settings = dict(line.strip().split(":", 1) for line in p.stderr.decode().splitlines() if ":" in line)
    assert settings["Memory Limit"].strip() == "516.00M" and settings["Effective CPU Count"].strip() == "1", p.stderr


def test_node_sees_its_limit(image):
    code = "console.log(process.constrainedMemory())"
    p = run("node", "-e", code, image=image("runtimes"), opts=["--memory", "500m"])
    if p.returncode == 127:
        pytest.skip("no Node in image runtimes")
    assert text(p).strip() == str(516 << 20)
