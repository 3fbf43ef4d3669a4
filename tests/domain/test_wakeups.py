"""Waiting and waking: nothing is lost, an idle domain costs no CPU time."""
import os
import pathlib
import time

import pytest
from conftest import descendants, eventually


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_wakeup_is_lost(place, programs, seed):
    """Tokens passed among threads of many processes, with SIGKILL in between (progs/wakestorm.c)."""
    assert place.run("/t/wakestorm", str(seed), "4", timeout=90).ok().startswith("ok: ")


def cpu_seconds(pids):
    """CPU time of processes."""
    total = 0
    for pid in pids:
        f = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
        total += int(f[11]) + int(f[12])
    return total / os.sysconf("SC_CLK_TCK")


def test_an_idle_domain_costs_no_cpu_time(domain):
    """Neither threads that wait for ever nor those that just had short waits keep spinning."""
    warm = "for i in 1 2 3 4 5 6 7 8 9; do echo $i | cat | cat > /dev/null; done; echo ready; sleep 1000 | sleep 1000"
    p = domain.start("sh", "-c", warm, image="busybox")
    try:
        assert p.stdout.readline() == b"ready\n"
        assert eventually(lambda: len(descendants(p.pid)) >= 4), "init, the shell and two programs"

        def idle():
            pids = sorted(descendants(p.pid))
            try:
                before = cpu_seconds(pids)
                time.sleep(2)
                used = cpu_seconds(pids) - before
            except FileNotFoundError:
                return False  # one of the first commands was about to end
            return sorted(descendants(p.pid)) == pids and used <= 0.02
        # On a busy machine they take a while to get to their waits.
        assert eventually(idle)
    finally:
        p.kill()
        p.wait()


def switches(pids):
    """How often the host's threads of processes have gone to sleep."""
    files = [f for pid in pids for f in pathlib.Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(
        int(line.split()[1]) for f in files for line in f.read_text().splitlines() if line.startswith("voluntary_")
    )


def test_whoever_is_woken_finds_no_lock_taken(domain, programs):
    """On one CPU a process that is woken runs in place of its waker at once: the waker then holds no lock that it
    needs."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        p = domain.start("/t/pingpong", "20000")
    finally:
        os.sched_setaffinity(0, allowed)
    try:
        assert p.stdout.readline() == b"done\n"
        # Each of the two waits once a round.
        assert 20000 <= switches(descendants(p.pid)) <= 50000
    finally:
        p.kill()
        p.wait()
