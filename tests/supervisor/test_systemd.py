"""`doppeld` as a service of systemd's; only where that is process 1 and the units are installed, as
scripts/test-cgroup2 has it."""

import os
import pathlib
import subprocess
import time

import pytest
from conftest import DOPPEL, eventually

pytestmark = pytest.mark.skipif(
    pathlib.Path("/proc/1/comm").read_text() != "systemd\n"
    or not pathlib.Path("/etc/systemd/system/doppeld.service").exists(),
    reason="no doppeld is installed as a service",
)

ROOT = pathlib.Path("/sys/fs/cgroup")


def cli(*argv):
    p = subprocess.run([DOPPEL, *argv], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert p.returncode == 0, (argv, p.stderr)
    return p.stdout.decode().strip()


def systemctl(*argv):
    subprocess.run(["systemctl", *argv], check=True, timeout=60)


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_domains_and_their_groups_survive_systemd(busybox, kind):
    """It and systemd look after one hierarchy: neither takes the other's controllers away."""
    systemctl("start", "doppeld.socket")
    name = cli(
        "run",
        "-d",
        "--kind",
        kind,
        "--memory",
        "64m",
        "--cpus",
        "0.5",
        busybox,
        "sh",
        "-c",
        "while :; do sleep 1; done",
    )
    pid = cli("inspect", "--format", "{{.pid}}", name)
    group = ROOT / pathlib.Path(f"/proc/{pid}/cgroup").read_text().strip().removeprefix("0::/")
    limits = lambda: [(group / f).read_text() for f in ("memory.max", "cpu.max")]
    before = limits()
    # systemd goes through all of its groups, makes some with and without the same controllers, and ends the service.
    systemctl("daemon-reload")
    subprocess.run(
        ["systemd-run", "-q", "-p", "CPUWeight=50", "-p", "MemoryMax=64M", "sleep", "1"], check=True, timeout=60
    )
    time.sleep(3)
    systemctl("restart", "doppeld.service")
    assert limits() == before
    assert cli("exec", name, "echo", "here") == "here"
    assert name in cli("ps", "-q", "--no-trunc")
    cli("update", "--cpus", "0.2", name)
    assert limits()[1] == "20000 100000\n"
    cli("rm", "-f", name)
    eventually(lambda: not group.exists(), "its group has ended")


def test_the_arbiter_is_a_real_time_thread(busybox):
    """Domains that starve others must not starve it."""
    systemctl("start", "doppeld.socket")
    name = cli("run", "-d", busybox, "sleep", "1000")

    def policies():
        tasks = (task for p in pathlib.Path("/proc").glob("[0-9]*") for task in p.glob("task/[0-9]*"))
        for task in tasks:
            try:
                if (task / "comm").read_text() == "arbiter\n":
                    yield os.sched_getscheduler(int(task.name)) & ~os.SCHED_RESET_ON_FORK
            except OSError:
                pass

    assert os.SCHED_RR in eventually(lambda: list(policies()), "there is an arbiter")
    cli("rm", "-f", name)
