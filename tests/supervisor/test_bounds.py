"""Bounds of domains for which nothing was asked: one that eats memory is ended by its own, and its neighbour lives."""
import json
import os
import subprocess

import pytest
from conftest import DOPPEL, of_group

EATER = ["awk", 'BEGIN { s = "0123456789abcdef"; while (1) s = s s }']
BOUND = '[domains]\nmemory = "128m"\n'

pytestmark = pytest.mark.usefixtures("busybox")


def said(p):
    assert p.returncode == 0, (p.args, p.stderr)
    return p.stdout.decode().strip()


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_one_that_eats_memory_ends_alone(new_doppeld, kind):
    d = new_doppeld(config=BOUND).start()
    neighbour = said(d.cli("run", "-d", "--kind", kind, "busybox", "sleep", "1000"))
    eater = said(d.cli("run", "-d", "--kind", kind, "busybox", *EATER))
    assert said(d.cli("wait", eater)) == "137"
    assert said(d.cli("inspect", "--format", "{{.state}}", neighbour)) == "running"
    assert said(d.cli("exec", neighbour, "echo", "here")) == "here"


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_alone_too(binaries, kind, tmp_path):
    config = tmp_path / "doppeld.toml"
    config.write_text(BOUND)
    argv = [DOPPEL, "run", "--standalone", "--kind", kind, "busybox", "--", *EATER]
    p = subprocess.run(argv, env={**os.environ, "DOPPELD_CONFIG": str(config)}, capture_output=True, timeout=120)
    assert p.returncode == 137, (p.returncode, p.stderr)


def test_any_limit_has_a_default(new_doppeld):
    d = new_doppeld(config="[domains]\npids = 64\ncpu_weight = 50\ndisk_bytes = 1048576\n").start()

    def limits(*options):
        domain = said(d.cli("create", *options, "busybox", "true"))
        return json.loads(said(d.cli("inspect", domain)))[0]["config"]["resources"]

    # Of the disk: a para domain's files that are in memory have none of their own.
    assert limits() == {"pids": 64, "cpu_weight": 50, "disk_bytes": 1 << 20}
    assert limits("--no-persist") == {"pids": 64, "cpu_weight": 50}
    assert limits("--rm", "--pids-limit", "7", "--cpus", "0.5") == {"pids": 7, "cpu_weight": 50, "cpus": 0.5}
    assert limits("--kind", "paene", "--disk", "2m")["disk_bytes"] == 2 << 20
    assert limits("--kind", "paene")["disk_bytes"] == 1 << 20


def test_a_default_counts_alone_too(binaries, tmp_path):
    config = tmp_path / "doppeld.toml"
    forks = "for i in 1 2 3 4 5 6 7 8 9; do sleep 9 & done; echo all"
    argv = [DOPPEL, "run", "--standalone", "busybox", "sh", "-c", forks]
    env = {**os.environ, "DOPPELD_CONFIG": str(config)}
    for pids, enough in [(64, True), (5, False)]:
        config.write_text(f"[domains]\npids = {pids}\n")
        p = subprocess.run(argv, env=env, capture_output=True, timeout=60)
        assert (p.stdout == b"all\n") == enough, (pids, p.stdout, p.stderr)
    config.write_text("[domains]\ncpu_reservation = 0.5\n")
    p = subprocess.run(argv, env=env, capture_output=True, timeout=60)
    assert p.returncode == 125 and b"domains.cpu_reservation" in p.stderr, (p.returncode, p.stderr)


def test_what_it_cannot_have_is_not_shown(new_doppeld):
    d = new_doppeld(config=BOUND).start()
    assert said(d.cli("run", "--rm", "busybox", "awk", "/MemTotal/ { print $2 }", "/proc/meminfo")) == str(128 << 10)


def test_more_is_had_by_asking(new_doppeld):
    """A limit that was asked for counts, above the bound too."""
    d = new_doppeld(config=BOUND).start()
    fill = ["awk", 'BEGIN { s = "0123456789abcdef"; while (length(s) < 134217728) s = s s; print length(s) }']
    assert said(d.cli("run", "--rm", "--memory", "2g", "busybox", *fill)) == str(128 << 20)


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_no_bound_is_had_by_asking(new_doppeld, kind):
    d = new_doppeld(config=BOUND).start()
    fill = ["awk", 'BEGIN { s = "0123456789abcdef"; while (length(s) < 134217728) s = s s; print length(s) }']
    for word in ("0", "unlimited"):
        assert said(d.cli("run", "--rm", "--kind", kind, "--memory", word, "busybox", *fill)) == str(128 << 20)
    # Most tasks: para's guest kernel keeps to it, and the host's bound is above.
    bounded = said(d.cli("run", "-d", "--kind", kind, "--pids-limit", "64", "busybox", "sleep", "1000"))
    free = said(d.cli("run", "-d", "--kind", kind, "--memory", "0", "--pids-limit", "-1", "busybox", "sleep", "1000"))
    default = said(d.cli("run", "-d", "--kind", kind, "busybox", "sleep", "1000"))
    host = lambda name, *file: of_group(said(d.cli("inspect", "--format", "{{.pid}}", name)), *file)
    memory = lambda name: host(name, "memory", "memory.limit_in_bytes", "memory.max")
    tasks = lambda name: host(name, "pids", "pids.max", "pids.max")
    assert memory(default) == str(128 << 20)
    assert memory(free) == "max" or int(memory(free)) > 1 << 60, memory(free)
    assert int(tasks(bounded)) < int(tasks(default)) == int(tasks(free))
    for option in (["--memory", "0"], ["--pids-limit", "0"]):
        said(d.cli("update", *option, bounded))
    assert (memory(bounded), tasks(bounded)) == (memory(free), tasks(free))
    assert d.get(f"/v1/domains/{free}/stats").ok()["memory"].get("limit_bytes") is None
    refused = d.cli("run", "--rm", "--kind", kind, "--pids-limit", "1", "busybox", "true")
    assert refused.returncode == 125 and b"at least 2" in refused.stderr, refused.stderr


def test_a_clone_without_bound(new_doppeld):
    """A frozen image's own limit counts, unless none is asked for."""
    d = new_doppeld(config=BOUND).start()
    total = "awk '/MemTotal/ { print $2 }' /proc/meminfo"
    said(d.cli("run", "-d", "--name", "first", "--memory", "64m", "busybox", "sleep", "1000"))
    said(d.cli("freeze", "first", "bounded"))
    for options, most in (([], 64 << 10), (["--memory", "unlimited"], None)):
        clone = said(d.cli("clone", "-d", *options, "bounded"))
        shown = int(said(d.cli("exec", clone, "sh", "-c", total)))
        assert shown == most if most else shown > 128 << 10, (options, shown)


def test_no_bound_alone_too(binaries, tmp_path):
    config = tmp_path / "doppeld.toml"
    config.write_text(BOUND)
    argv = [
        DOPPEL,
        "run",
        "--standalone",
        "--memory",
        "unlimited",
        "busybox",
        "--",
        "awk",
        "/MemTotal/ { print $2 }",
        "/proc/meminfo",
    ]
    p = subprocess.run(argv, env={**os.environ, "DOPPELD_CONFIG": str(config)}, capture_output=True, timeout=60)
    assert p.returncode == 0 and int(p.stdout) > 128 << 10, (p.stdout, p.stderr)


def test_a_bound_that_is_none_is_refused(new_doppeld):
    d = new_doppeld(config='[domains]\nmemory = "much"\n').start(wait=False)
    assert d.process.wait(timeout=60) != 0 and "memory" in d.logged(), d.logged()


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_more_than_the_host_has_is_brought_down_and_said(new_doppeld, kind):
    d = new_doppeld().start()
    host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = lambda name: said(
        d.cli("inspect", "--format", "{{.config.resources.memory_bytes}} {{.config.resources.cpus}}", name)
    ).split()

    def brought_down(p):
        assert b"the host has" in p.stderr and p.stderr.count(b"warning") == 2, p.stderr
        memory, cpus = limits("big")
        assert int(memory) <= host and float(cpus) <= os.cpu_count()

    brought_down(
        d.cli(
            "run",
            "-d",
            "--kind",
            kind,
            "--name",
            "big",
            "--memory",
            "900t",
            "--cpus",
            "256",
            "busybox",
            "sleep",
            "1000",
        )
    )
    said(d.cli("update", "--memory", "64m", "--cpus", "0.5", "big"))
    assert limits("big") == [str(64 << 20), "0.5"]
    brought_down(d.cli("update", "--memory", "900t", "--cpus", "256", "big"))
    alone = subprocess.run(
        [DOPPEL, "run", "--standalone", "--kind", kind, "--memory", "900t", "--cpus", "256", "busybox", "true"],
        capture_output=True,
        timeout=60,
    )
    assert alone.returncode == 0 and alone.stderr.count(b"the host has") == 2, alone.stderr
