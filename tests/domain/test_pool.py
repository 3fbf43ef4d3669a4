"""Clones that are made ready before they are wanted (`doppel clone --warm` and `--repeat`), and what clones share."""
import contextlib
import json
import os
import re
import subprocess
import time

import pytest
from conftest import DOPPEL, call, domain_cgroups, eventually

WARM = """
import os, socket, sys
with open('/sys/power/state', 'w') as f:
    f.write('freeze\\n')
read = lambda name: open('/sys/doppel/' + name).read().strip()
boot = open('/proc/sys/kernel/random/boot_id').read().strip()
print(read('clone_index'), read('args'), read('generation'), socket.gethostname(), os.urandom(8).hex(), boot, sys.argv[1])
"""  # noqa: E501


@pytest.fixture(scope="module")
def frozen():
    name = f"pooltest-{os.getpid()}"
    call(
        [
            DOPPEL,
            "run",
            "--freeze-as",
            name,
            "--in-memory",
            "--freeze-stop",
            "debian",
            "--",
            "python3",
            "-c",
            WARM,
            "kept",
        ],
        b"",
        60,
    ).ok()
    yield name
    call([DOPPEL, "frozen", "rm", name], b"", 20).ok()


def clones(frozen, *options):
    ends = [json.loads(line) for line in call([DOPPEL, "clone", *options, frozen], b"", 60).ok().splitlines()]
    assert all(e["exit_code"] == 0 and e["stderr"] == "" for e in ends), ends
    return ends


@pytest.mark.parametrize("options", [("--warm", "-n", "5", "--json"), ("--repeat", "5"), ("--repeat", "5", "-n", "3")])
def test_each_is_its_own(frozen, options):
    ends = clones(frozen, "--arg", "hello", *options)
    said = [e["stdout"].split() for e in ends]
    assert [s[0] for s in said] == ["1", "2", "3", "4", "5"]
    assert [s[1:3] for s in said] == [["hello", "1"]] * 5
    assert [s[3] for s in said] == [e["name"] for e in ends]
    # Randomness and boot id differ in each.
    assert len({s[4] for s in said}) == 5 and len({s[5] for s in said}) == 5
    assert [s[6] for s in said] == ["kept"] * 5


def test_host_name_is_given_late(frozen):
    (end,) = clones(frozen, "--warm", "--json", "--hostname", "web", "--name", f"pool-{os.getpid()}")
    assert end["name"] == f"pool-{os.getpid()}" and end["stdout"].split()[2] == "web"  # no arguments


def test_arguments_too_long_are_refused(frozen):
    options = [a for _ in range(9) for a in ("--arg", "x" * 120_000)]
    refused = call([DOPPEL, "clone", "--repeat", "1", *options, frozen], b"", 60)
    assert refused.code == 125 and "longer than" in refused.err, refused.err


def test_nothing_is_left(frozen):
    """Clones that were made ready but never called leave nothing behind either."""
    clones(frozen, "--repeat", "1", "-n", "4")
    ends = clones(frozen, "--repeat", "2", "-n", "4")
    assert not {e["name"] for e in ends} & {os.path.basename(g) for g in domain_cgroups()}

    def dead_links():
        """Links of the runtime directory to processes that are gone."""
        found = set()
        for kind in ("ids", "names"):
            for link in os.scandir(f"/run/doppel/{kind}"):
                with contextlib.suppress(FileNotFoundError):
                    found.add(os.readlink(link.path))
        return found - set(os.listdir("/run/doppel/holders"))

    assert eventually(lambda: not dead_links()), dead_links()


def test_what_clones_have_in_common(frozen):
    """Of one process' clones: the empty mount, network, IPC and UTS namespaces, and nothing else."""
    sleeping = f"{frozen}-sleep"
    call(
        [
            DOPPEL,
            "run",
            "--freeze-as",
            sleeping,
            "--in-memory",
            "--freeze-stop",
            "debian",
            "--",
            "sh",
            "-c",
            "echo freeze >/sys/power/state; exec sleep 1000",
        ],
        b"",
        60,
    ).ok()
    p = subprocess.Popen(
        [DOPPEL, "clone", "-n", "3", "--json", sleeping], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        # The filter is the last thing a process is given.
        confined = lambda: [c for c in children(p.pid) if "\nSeccomp:\t2\n" in open(f"/proc/{c}/status").read()]
        assert eventually(lambda: len(confined()) == 3)
        first = confined()
        seen = lambda kind: {os.readlink(f"/proc/{c}/ns/{kind}") for c in first}
        for kind in ("pid", "cgroup"):
            assert len(seen(kind)) == 3, kind
        for kind in ("mnt", "net", "ipc", "uts"):
            assert len(seen(kind)) == 1 and os.readlink(f"/proc/self/ns/{kind}") not in seen(kind), kind
        status = [open(f"/proc/{c}/status").read() for c in first]
        assert len({re.search(r"^Uid:.*$", s, re.M)[0] for s in status}) == 3
        assert all(re.search(r"^CapEff:\t0+$", s, re.M) and re.search(r"^Seccomp:\t2$", s, re.M) for s in status)
        for c in first:
            # An empty root that cannot be written, as in a domain that has its own.
            assert os.listdir(f"/proc/{c}/root") == [] and os.listdir(f"/proc/{c}/cwd") == []
            (mount,) = open(f"/proc/{c}/mounts").read().splitlines()
            assert mount.split()[2] == "tmpfs" and "ro" in mount.split()[3].split(","), mount
    finally:
        p.kill()
        p.wait()
        call([DOPPEL, "frozen", "rm", sleeping], b"", 20)


def children(pid):
    return [c for t in os.listdir(f"/proc/{pid}/task") for c in open(f"/proc/{pid}/task/{t}/children").read().split()]


def test_what_a_clone_costs_the_process_that_runs_it(frozen):
    """Two descriptors, no thread, and less than 20 KB of memory and page tables, so that one process can run 10,000."""
    sleeping = f"{frozen}-sleep2"
    call(
        [
            DOPPEL,
            "run",
            "--freeze-as",
            sleeping,
            "--in-memory",
            "--freeze-stop",
            "debian",
            "--",
            "sh",
            "-c",
            "echo freeze >/sys/power/state; echo up; exec sleep 1000",
        ],
        b"",
        60,
    ).ok()
    few, many = 10, 110
    costs = []

    def cost(p):
        status = dict(line.split(":", 1) for line in open(f"/proc/{p.pid}/status"))
        kib = sum(int(status[k].split()[0]) for k in ("RssAnon", "VmPTE"))
        return kib, len(os.listdir(f"/proc/{p.pid}/fd")), int(status["Threads"])

    def settled(p):
        """Threads that start clones are there from the first on, the reaper from the first end on; nothing moves any
        more."""
        before = cost(p)
        time.sleep(0.5)
        return cost(p) == before

    try:
        for n in (few, many):
            p = subprocess.Popen(
                [DOPPEL, "clone", "-n", str(n), "--warm", "--json", sleeping], stdout=subprocess.DEVNULL
            )
            try:
                assert eventually(lambda: len(children(p.pid)) == n and settled(p))
                costs.append(cost(p))
            finally:
                p.kill()
                p.wait()
    finally:
        call([DOPPEL, "frozen", "rm", sleeping], b"", 20)
    (kib, fds, threads) = (b - a for a, b in zip(*costs))
    assert kib <= 20 * (many - few) and fds == 2 * (many - few) and threads == 0, costs
