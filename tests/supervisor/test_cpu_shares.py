"""CPUs are divided by weights and reservations, also where the host's scheduler does not keep to weights by itself."""
import contextlib
import os
import pathlib
import time

import pytest
from conftest import eventually, have_image, of_group

SECONDS = 4
WINDOWS = 5
UP = "print('up', flush=True)\n"
# Computes in one process, and in two.
ONE = UP + "while True: pass"
COMPUTE = "import os\n" + UP + "os.fork()\nwhile True: pass"
# 120 processes that sleep a little again and again: Linux lets those take nearly everything (docs/supervisor.md).
RESTLESS = (
    "import os, time\nfor _ in range(119):\n    if os.fork() == 0: break\nelse:\n    "
    + UP
    + "while True: time.sleep(0.0002)"
)


@pytest.fixture(scope="module", autouse=True)
def before_all_others():
    """The domains of this host together come before its other processes, so that these do not decide who gets how
    much."""
    roots = [
        pathlib.Path(f"/sys/fs/cgroup/{name}/doppel/{file}")
        for name, file in (("cpu", "cpu.shares"), ("", "cpu.weight"))
    ]
    found = [(file, file.read_text()) for file in roots if file.exists()]
    for file, weight in found:
        file.write_text(str(int(weight) * 100))
    yield
    for file, weight in found:
        file.write_text(weight)


@pytest.fixture
def d(supervisor):
    if not have_image("debian"):
        pytest.skip("no image debian: make test-images")
    if len(os.sched_getaffinity(0)) > 4:
        pytest.skip("this host has more CPUs than these loads fill")
    yield supervisor
    for line in supervisor.cli("ps", "-aq", "--no-trunc").stdout.decode().split():
        supervisor.cli("rm", "-f", line)


def used(d, *domains, fill=True):
    """CPUs that each has, by its CPU time in some seconds, when all have started and the arbiter has looked at them.
    They `fill` the CPUs: of some such times that counts in which others had the least of these."""
    for i in domains:
        eventually(lambda: d.cli("logs", i).stdout == b"up\n", "it has started")
    time.sleep(2)
    read = lambda: [(d.get(f"/v1/domains/{i}/stats").ok()["cpu_seconds"], time.monotonic()) for i in domains]
    fullest = []
    for _ in range(WINDOWS if fill else 1):
        before = read()
        time.sleep(SECONDS)
        got = [(b - a) / (till - since) for (a, since), (b, till) in zip(before, read())]
        fullest = max(fullest, got, key=sum)
        if sum(got) > 0.9 * len(os.sched_getaffinity(0)):
            break
    return fullest


def start(d, code, *options):
    p = d.cli("run", "-d", *options, "debian", "python3", "-c", code)
    assert p.returncode == 0, p.stderr
    return p.stdout.decode().strip()


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_a_restless_neighbour_gets_its_share_only(d, kind):
    if kind == "paene" and os.geteuid():
        pytest.skip("paene domains need root")
    restless = start(d, RESTLESS, "--kind", kind)
    victim = start(d, COMPUTE, "--kind", kind)
    got, others = used(d, victim, restless)
    # Ideally as much; 2 % of it without the arbiter.
    assert got > 0.6 * others, (got, others)


def affinities(d, domain):
    """CPUs that the tasks of a domain may run on."""
    pid = d.get(f"/v1/domains/{domain}").ok()["pid"]
    found = set()
    for task in of_group(pid, "cpu", "tasks", "cgroup.threads").split():
        with contextlib.suppress(ProcessLookupError):
            found.add(tuple(sorted(os.sched_getaffinity(int(task)))))
    return found


def wait_until_placed(d, domains):
    """Waits until each of these, which compute, has a CPU to run on. Where the host's other tasks want CPUs and get
    none, domains are held to less, and none is placed (docs/supervisor.md)."""
    placed = lambda i: {len(on) for on in affinities(d, i)} == {1}
    deadline = time.monotonic() + 60
    while not all(map(placed, domains)):
        if time.monotonic() > deadline:
            got = used(d, *domains)
            assert sum(got) < 0.9 * len(os.sched_getaffinity(0)), f"not placed, though they get {got}"
            pytest.skip(f"other tasks of this host want the CPUs: the domains get {sum(got):.2f}")
        time.sleep(0.02)


def test_weights_are_kept_between_cpus(d):
    cpus = len(os.sched_getaffinity(0))
    if cpus < 2:
        pytest.skip("for two CPUs")
    weights = [100 * w for w in range(1, 2 * cpus + 1)]
    domains = [start(d, ONE, "--cpu-weight", str(w)) for w in weights]
    # The lightest takes a while to start beside all others.
    wait_until_placed(d, domains)
    got = used(d, *domains)
    shares = [t / w for t, w in zip(got, weights)]
    # What others of the host take they take from one CPU more than from another.
    filled = sum(got) > 0.9 * cpus
    assert max(shares) < (1.2 if filled else 1.5) * min(shares), shares
    # Alone, it may run everywhere again, and weighs what it was promised.
    for i in domains[1:]:
        d.cli("rm", "-f", i)
    eventually(lambda: affinities(d, domains[0]) == {tuple(sorted(os.sched_getaffinity(0)))}, "free")
    pid = d.get(f"/v1/domains/{domains[0]}").ok()["pid"]
    eventually(lambda: of_group(pid, "cpu", "cpu.shares", "cpu.weight") in ("1024", "100"), "its weight")


def test_a_clone_of_a_placed_domain_runs_everywhere(d):
    cpus = len(os.sched_getaffinity(0))
    if cpus < 2:
        pytest.skip("for two CPUs")
    domains = [start(d, ONE) for _ in range(2 * cpus)]
    wait_until_placed(d, domains)
    frozen = d.cli("freeze", domains[0], "placed")
    assert frozen.returncode == 0, frozen.stderr
    # Nobody lets it free when it is alone.
    for i in domains:
        d.cli("rm", "-f", i)
    cloned = d.cli("clone", "-d", "placed")
    assert cloned.returncode == 0, cloned.stderr
    clone = cloned.stdout.decode().strip()
    eventually(lambda: affinities(d, clone) == {tuple(sorted(os.sched_getaffinity(0)))}, "free")


def test_a_reservation_comes_before_weights(d):
    cpus = len(os.sched_getaffinity(0))
    if cpus < 2:
        pytest.skip("for two CPUs")
    reserved = start(d, COMPUTE, "--cpu-reservation", str(0.7 * cpus))
    other = start(d, COMPUTE)
    got, others = used(d, reserved, other)
    # Ideally 7/3.
    assert got > 1.6 * others, (got, others)


def test_a_limit_of_its_own_stays(d):
    limited = start(d, RESTLESS, "--cpus", "0.3")
    victim = start(d, COMPUTE)
    got, others = used(d, limited, victim)
    # Where others of the host leave little, both have the same of it.
    assert got < 0.45 and others > 0.8 * got, (got, others)
    d.cli("rm", "-f", victim)
    assert used(d, limited, fill=False)[0] < 0.45
