"""gdb of the host on a running domain, with the commands of scripts/doppel_gdb.py for its guest threads."""

import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from conftest import DOPPEL, ROOT, Running, eventually
from test_panic import first_process

# Waits for a child, in a sleep, and for somebody who opens the other end of a pipe.
WAITING = "mkfifo /tmp/pipe; sleep 1000 & cat /tmp/pipe & echo up; wait"


@pytest.fixture
def domain() -> Iterator[Running]:
    running = Running("busybox", "sh", "-c", WAITING)
    yield running
    running.stop()


@pytest.fixture
def kernel() -> str:
    """The guest kernel that domains run, with its debug information."""
    if not shutil.which("gdb"):
        pytest.skip("gdb is not installed")
    built = list((ROOT / "target/kernel").glob("*/kernel/doppel-kernel"))
    if not built:
        pytest.skip("no guest kernel with debug information: make build")
    return str(built[0])


def gdb(kernel: str, pid: int, *commands: str) -> str:
    """What gdb says to these commands, attached to a process."""
    script = ["-x", str(ROOT / "scripts/doppel_gdb.py"), *(x for c in commands for x in ("-ex", c))]
    argv = ["gdb", "-nx", "-q", "-batch", "-iex", "set debuginfod enabled off", "-p", str(pid), *script, kernel]
    p = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert p.returncode == 0, p.stdout + p.stderr
    return p.stdout


def test_gdb_shows_guest_threads_as_the_kernel_does(domain: Running, kernel: str) -> None:
    expected: list[str] = []

    def all_wait() -> bool:
        shown = subprocess.run([DOPPEL, "debug", "stacks", domain.name], capture_output=True, text=True, check=True)
        expected[:] = [line for line in shown.stdout.splitlines() if not line.startswith(" ")]
        return all(line.split()[1] == "S" and "::" in line.split()[3] for line in expected)

    assert eventually(all_wait), expected
    assert [line.split()[2] for line in expected] == ["sh", "sleep", "cat"], expected
    pid = first_process(domain.process.pid)
    said = gdb(kernel, pid, "doppel threads")
    assert [line for line in said.splitlines() if re.match(r"\d+/\d+ ", line)] == expected, said
    # The domain goes on, and its first process has its own registers again.
    assert domain.exec("sh", "-c", "echo in >/tmp/pipe; echo out").ok() == "out\n"


def test_gdb_unwinds_a_guest_thread_that_waits(domain: Running, kernel: str) -> None:
    pid = first_process(domain.process.pid)
    said = gdb(kernel, pid, "doppel bt 3", "bt 1")
    calls = [line for line in said.splitlines() if line.startswith("#")]
    assert re.search(r"^\d+/3 S sleep \S*sleep", said, re.M), said
    assert any("clock_nanosleep" in call for call in calls), said
    assert calls[-1].startswith("#0 ") and "clock_nanosleep" not in calls[-1], f"its own registers again: {said}"
    everybody = gdb(kernel, pid, "doppel bt")
    assert [m[1] for m in re.finditer(r"^\d+/\d+ S (\w+) ", everybody, re.M)] == ["sh", "sleep", "cat"], everybody
    assert domain.exec("true").code == 0
