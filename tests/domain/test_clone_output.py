"""What clones of one command print: each line behind the clone's name, as it comes."""
import os
import subprocess
import time
from collections.abc import Iterator

import pytest
from conftest import DOPPEL, call

# Each clone says a line and half of another; the first one goes on and ends.
PROGRAM = """
read n < /sys/doppel/clone_index
echo first $n
echo other $n >&2
printf half
[ $n = 1 ] || exec sleep 1000
sleep 0.5
printf '%s\\nlast' $n
"""


def made(program: str) -> str:
    """The name of a frozen image of a program that freezes itself."""
    name = f"lines-{os.getpid()}"
    argv = [DOPPEL, "run", "--standalone", "--freeze-as", name, "--in-memory", "--freeze-stop"]
    call([*argv, "busybox", "sh", "-c", f"echo freeze > /sys/power/state\n{program}"], b"", 60).ok()
    return name


@pytest.fixture
def removed() -> Iterator[None]:
    yield
    call([DOPPEL, "frozen", "rm", f"lines-{os.getpid()}"], b"", 20).ok()


def test_lines_come_while_clones_run(removed: None) -> None:
    frozen = made(PROGRAM)
    argv = [DOPPEL, "clone", "-n", "2", "--name", frozen, frozen]
    p = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stdout and p.stderr
    try:
        out, err = ({stream.readline() for _ in range(2)} for stream in (p.stdout, p.stderr))
        assert out == {f"{frozen}-{n}: first {n}\n".encode() for n in (1, 2)}
        assert err == {f"{frozen}-{n}: other {n}\n".encode() for n in (1, 2)}
        # A line that has begun waits for its end, or its clone's.
        assert p.stdout.readline() == f"{frozen}-1: half1\n".encode()
        assert p.stdout.readline() == f"{frozen}-1: last\n".encode()
        # The second one still runs.
        assert p.poll() is None
    finally:
        p.kill()
        p.wait()


def test_many_lines_are_all_there(removed: None) -> None:
    """More than a ring, a pipe or what was once kept of a clone holds, by two at once, to a reader that is slow."""
    frozen = made("exec sleep 1000")
    lines = 800_000
    # In the clone beside what was frozen.
    argv = [DOPPEL, "clone", "-n", "2", "--name", frozen, frozen, "seq", str(lines)]
    p = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert p.stdout
    time.sleep(1)
    out = p.stdout.read().decode().splitlines()
    assert p.wait(60) == 0
    for n in (1, 2):
        prefix = f"{frozen}-{n}: "
        said = [line.removeprefix(prefix) for line in out if line.startswith(prefix)]
        assert said == [str(i) for i in range(1, lines + 1)]
