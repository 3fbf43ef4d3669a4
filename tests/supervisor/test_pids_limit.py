"""--pids-limit bounds processes and threads of a para domain: its guest kernel refuses more before it copies
anything."""

import time

import pytest
from conftest import have_image

LIMIT = 20
COUNT = f"""
import os, signal, sys, threading
def shown(name):
    return open("/sys/fs/cgroup/pids." + name).read().strip()
def more(make):
    made = 0
    try:
        while made <= {LIMIT}:
            make()
            made += 1
    except (OSError, RuntimeError) as e:
        return made, getattr(e, "errno", str(e))
    sys.exit("no limit")
stop = threading.Event()
pids = []
def process():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    pids.append(pid)
print(shown("max"), *more(process), shown("current"))
for pid in pids:
    os.kill(pid, signal.SIGKILL)
print(shown("current"))  # they are zombies
for pid in pids:
    os.waitpid(pid, 0)
print(shown("current"), *more(lambda: threading.Thread(target=stop.wait).start()), shown("current"))
stop.set()
"""
BOMB = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.001)
"""


@pytest.fixture
def d(supervisor):
    if not have_image("debian"):
        pytest.skip("no image debian: make test-images")
    yield supervisor
    for line in supervisor.cli("ps", "-aq", "--no-trunc").stdout.decode().split():
        supervisor.cli("rm", "-f", line)


def eventually(check):
    deadline = time.monotonic() + 30
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_processes_and_threads(d):
    p = d.cli("run", "--rm", "--pids-limit", str(LIMIT), "debian", "python3", "-c", COUNT)
    assert p.returncode == 0, p.stderr
    processes, zombies, threads = (line.split() for line in p.stdout.decode().splitlines())
    assert processes == [str(LIMIT), str(LIMIT - 1), "11", str(LIMIT)]
    assert zombies == [str(LIMIT)]
    assert threads[:2] == ["1", str(LIMIT - 1)] and threads[-1] == str(LIMIT), threads


def test_changed_while_it_runs(d):
    show = "while :; do cat /sys/fs/cgroup/pids.max; sleep 0.05; done"
    assert d.cli("run", "-d", "--name", "p", "debian", "sh", "-c", show).returncode == 0
    eventually(lambda: d.cli("logs", "--tail", "1", "p").stdout == b"max\n")
    assert d.cli("update", "--pids-limit", "33", "p").returncode == 0
    eventually(lambda: d.cli("logs", "--tail", "1", "p").stdout == b"33\n")


def test_a_bomb_is_removed(d):
    """Also by a command that needs a process in it: what the operator runs is not refused."""
    made = d.cli("run", "-d", "--pids-limit", "60", "debian", "python3", "-c", BOMB)
    bomb = made.stdout.decode().strip()
    time.sleep(1)
    top = d.cli("top", bomb)
    assert top.returncode == 0 and top.stdout.count(b"\n") > 1, top
    assert d.get(f"/v1/domains/{bomb}/stats").json["pids"] <= 2 * 60 + 16
    assert d.cli("rm", "-f", bomb).returncode == 0
