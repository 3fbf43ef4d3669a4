"""Control groups v2: limits of both kinds of domains, alone and through the supervisor, as the host keeps and counts
them.

scripts/test-cgroup2 runs these in a virtual machine, for hosts that have v1.
"""

import contextlib
import os
import pathlib
import subprocess
import time

import pytest
from conftest import DOPPEL, STORE, eventually, have_image

ROOT = pathlib.Path("/sys/fs/cgroup")
SPIN = "while :; do :; done"
MIB = 1 << 20

pytestmark = [
    pytest.mark.skipif(not (ROOT / "cgroup.controllers").exists(), reason="this host has no control groups v2"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make control groups"),
]
# Alone, domains have limits of memory and CPUs only.
supervised = pytest.mark.parametrize("start", ["supervised"], indirect=True)


@pytest.fixture(params=["para", "paene"])
def kind(request, busybox):
    return request.param


@pytest.fixture(params=["alone", "supervised"])
def start(request, kind, supervisor):
    """Starts domains that end with the test; gives their groups, and checks that these end with them."""
    alone, names, groups, processes = request.param == "alone", [], [], []

    def start(script, *options, image="busybox"):
        name = f"v2-{kind}-{len(groups)}"
        # A first process ignores signals that it has no handler for.
        argv = [
            "--kind",
            kind,
            "--name",
            name,
            *options,
            image,
            "--",
            "sh",
            "-c",
            f"trap exit TERM; {{ {script}; }} & wait",
        ]
        if alone:
            processes.append(subprocess.Popen([DOPPEL, "run", "--standalone", *argv], stdin=subprocess.DEVNULL))
            groups.append(eventually(lambda: next((ROOT / "doppel").glob(f"d*-{name}"), None), "it has a group"))
        else:
            p = supervisor.cli("run", "-d", *argv)
            assert p.returncode == 0, p.stderr
            names.append(name)
            groups.append(group_of(supervisor, name))
        eventually(lambda: read(groups[-1], "cgroup.procs"), "somebody is in it")
        return groups[-1]

    start.alone = alone
    yield start
    for p in processes:
        # It may not have its handler yet.
        eventually(lambda: p.terminate() or p.poll() is not None, "it ends")
    for name in names:
        supervisor.cli("rm", "-f", name)
    eventually(lambda: not any(g.exists() for g in groups), "groups end with their domains")


def group_of(supervisor, name):
    pid = supervisor.get(f"/v1/domains/{name}").ok()["pid"]
    return ROOT / pathlib.Path(f"/proc/{pid}/cgroup").read_text().strip().removeprefix("0::/")


def read(group, file):
    return (group / file).read_text().strip()


def count(group, word, file="cpu.stat"):
    """A figure of a group's file."""
    return int(dict(line.split() for line in read(group, file).splitlines())[word])


def used(*groups, seconds=4):
    """CPUs that each uses."""
    look = lambda: [count(group, "usage_usec") for group in groups]
    before, begun = look(), time.monotonic()
    time.sleep(seconds)
    after, span = look(), time.monotonic() - begun
    return [(a - b) / 1e6 / span for a, b in zip(after, before)]


def pin(group):
    """Has a domain run on one CPU, the same for all."""
    cpu = min(os.sched_getaffinity(0))
    for task in read(group, "cgroup.threads").split():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task), {cpu})


def disk():
    """The number of the disk that the image store is on."""
    device = os.stat(STORE).st_dev
    of = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    of = of.parent if (of / "partition").exists() else of
    if not (of / "dev").exists():
        pytest.skip("the image store is on no disk")
    return (of / "dev").read_text().strip()


def test_limits_are_written(kind, start):
    # What a guest kernel and an attendant need comes on top. Killing one process ends a guest kernel; programs of a
    # paene domain are killed one by one.
    memory, alone = (136, "1") if kind == "para" else (80, "0")
    expected = {
        "memory.max": str(memory * MIB),
        "memory.swap.max": "0",
        "memory.oom.group": alone,
        "cpu.max": "50000 100000",
    }
    options = "--memory 64m --cpus 0.5".split()
    handed_down = {"cpu", "memory", "pids"}
    if not start.alone:
        number = disk()
        # With so few CPUs it has one vCPU.
        tasks = 50 + 16 if kind == "para" else 50
        options += "--memory-reservation 32m --cpu-weight 300 --pids-limit 50".split()
        options += ["--device-read-bps", f"{number}:2m", "--device-write-iops", f"{number}:99"]
        expected |= {"memory.low": str(32 * MIB), "cpu.weight": "300", "pids.max": str(tasks)}
        expected["io.max"] = f"{number} rbps={2 * MIB} wbps=max riops=max wiops=99"
        handed_down |= {"io"}
    group = start("sleep 1000", *options)
    # A kernel without swap accounting has no such file.
    found = {file: read(group, file) for file in expected if (group / file).exists()}
    assert found == {file: expected[file] for file in found} and len(found) >= len(expected) - 1
    for above in (ROOT, ROOT / "doppel"):
        assert handed_down <= set((above / "cgroup.subtree_control").read_text().split()), above


def test_a_cap_on_cpu_time_throttles(start):
    group = start(f"{SPIN} & {SPIN}", "--cpus", "0.3")
    time.sleep(2)
    [share] = used(group)
    assert 0.2 < share < 0.36 and count(group, "nr_throttled") > 0, share


@supervised
def test_weights_divide_a_cpu(kind, start):
    light, heavy = start(SPIN), start(SPIN, "--cpu-weight", "300")
    time.sleep(3)
    for group in (light, heavy):
        pin(group)
    shares = used(light, heavy, seconds=6)
    print(f"{kind}: 1 to {shares[1] / shares[0]:.2f}, {sum(shares):.2f} CPUs")
    assert 2.5 < shares[1] / shares[0] < 3.5 and 0.7 < sum(shares) < 1.1, shares


@supervised
def test_block_io_is_throttled(start):
    if not have_image("debian"):
        pytest.skip("no image debian: make test-images")
    # A file of some 6 MiB, which is in no cache.
    script = "sleep 3; cat /usr/bin/python3.11 > /dev/null; sleep 1000"
    group = start(script, "--device-read-bps", f"{disk()}:1m", image="debian")
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    bytes_read = lambda: sum(int(w[7:]) for w in read(group, "io.stat").split() if w.startswith("rbytes="))
    eventually(lambda: bytes_read() > 0, "it reads")
    before, begun = bytes_read(), time.monotonic()
    time.sleep(3)
    rate = (bytes_read() - before) / (time.monotonic() - begun)
    assert 0.3 * MIB < rate < 1.3 * MIB, rate


@pytest.mark.parametrize("supervised", [False, True], ids=["alone", "supervised"])
def test_memory_ends_at_its_limit(kind, supervisor, supervised):
    """Who wants more has an error (para) or is killed (paene), and others of the domain go on."""

    def run(script):
        argv = [
            "run",
            *(["--rm"] if supervised else ["--standalone"]),
            "--kind",
            kind,
            "--memory",
            "64m",
            "busybox",
            "sh",
            "-c",
            script,
        ]
        if supervised:
            return supervisor.cli(*argv)
        return subprocess.run([DOPPEL, *argv], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)

    p = run("tail /dev/zero > /dev/null; echo $?; echo here")
    code, *rest = p.stdout.decode().split()
    assert (p.returncode, rest) == (0, ["here"]), p
    assert code == "137" if kind == "paene" else int(code) > 0, p
    p = run("exec tail /dev/zero > /dev/null")
    assert p.returncode == 137 if kind == "paene" else p.returncode > 0, p


def test_changed_paused_and_accounted(kind, supervisor):
    name = (
        supervisor
        .cli("run", "-d", "--kind", kind, "--memory", "64m", "busybox", "sh", "-c", SPIN)
        .stdout.decode()
        .strip()
    )
    group = group_of(supervisor, name)
    eventually(lambda: count(group, "usage_usec") > 100_000, "it runs")
    p = supervisor.cli("update", "--memory", "96m", "--cpus", "0.2", "--cpu-weight", "50", "--pids-limit", "30", name)
    assert p.returncode == 0, p.stderr
    memory = 96 * MIB * 9 // 8 + 64 * MIB if kind == "para" else (96 + 16) * MIB
    found = [read(group, file) for file in ("memory.max", "cpu.max", "cpu.weight")]
    assert found == [str(memory), "20000 100000", "50"], found
    assert used(group)[0] < 0.3
    stats = supervisor.get(f"/v1/domains/{name}/stats").ok()
    assert stats["cpu_seconds"] > 0.1 and stats["memory"]["usage_bytes"] > 0 and stats["pids"] > 0, stats
    assert supervisor.cli("pause", name).returncode == 0
    assert used(group, seconds=2)[0] < 0.01
    assert supervisor.cli("unpause", name).returncode == 0
    assert used(group, seconds=2)[0] > 0.1
    counted = count(group, "usage_usec") / 1e6
    supervisor.cli("kill", name)
    supervisor.cli("wait", name)
    kept = supervisor.get(f"/v1/domains/{name}").ok()["usage"]
    assert kept["cpu_seconds"] >= counted, (kept, counted)
    eventually(lambda: not group.exists(), "its group has ended")
    supervisor.cli("rm", name)


def test_inside_a_group_with_processes(busybox):
    """As in a container that sees its own group as the root: nothing can be limited below it, and that is said."""
    box = ROOT / "box"
    box.mkdir()
    try:
        script = (
            f'echo $$ > {box}/cgroup.procs; exec unshare -Cm sh -c \'umount -l {ROOT}; mount -t cgroup2 cgroup2 '
            f'{ROOT}; exec "$@"\' sh "$@"'
        )

        def run(*options):
            argv = ["sh", "-c", script, "sh", DOPPEL, "run", "--standalone", *options, "busybox", "echo", "here"]
            return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)

        p = run("--memory", "64m")
        assert p.returncode == 125 and b"it has processes itself" in p.stderr, p
        p = run()
        assert (p.returncode, p.stdout) == (0, b"here\n") and b"running without a control group" in p.stderr, p
    finally:
        for group in (box / "doppel", box):
            eventually(lambda: not group.exists() or not (group / "cgroup.procs").read_text(), "it is empty")
            if group.exists():
                group.rmdir()
