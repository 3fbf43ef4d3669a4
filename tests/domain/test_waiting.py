"""Where threads wait: /proc/PID/wchan and /proc/PID/stack."""

import subprocess
from typing import Any

import pytest
from conftest import DOPPEL, Running, eventually

WAITERS = """
mkfifo /tmp/fifo
sleep 100 & sleeper=$!
cat /tmp/fifo & opener=$!
sleep 100 | cat >/dev/null & reader=$!
sleep 0.3
for pid in $sleeper $opener $reader $$; do
    echo "$pid $(cat /proc/$pid/wchan)"
    cat /proc/$pid/stack
    echo --
done
kill $sleeper
"""


def test_stacks_name_the_wait(doppel: Any) -> None:
    """They are the guest kernel's own functions, so that Linux has no like."""
    parts = doppel.run("sh", "-c", WAITERS).ok().split("--\n")
    for part, channel, calls in zip(
        parts,
        ["sleep_until", "fifo::open", "Pipe::read"],
        [["sleep_until", "clock_nanosleep"], ["fifo::open", "open_at"], ["Pipe::read", "table::dispatch"]],
        strict=False,
    ):
        head, *stack = part.splitlines()
        assert head.split()[1].endswith(channel), part
        names = [line.split()[1].split("+")[0] for line in stack]
        at = [next(i for i, name in enumerate(names) if name.endswith(call)) for call in calls]
        assert at == sorted(at), part
        assert not any("FnOnce" in name for name in names), part
        # All the way from where the program came in.
        assert names[-1].startswith("doppel_machine::"), part


def test_who_runs_waits_nowhere(doppel: Any) -> None:
    assert doppel.run("sh", "-c", "cat /proc/self/wchan /proc/self/stack").ok() == "0"


def test_stacks_of_a_domain_from_outside() -> None:
    domain = Running("busybox", "sh", "-c", "sleep 1000 & echo up; while :; do :; done")
    try:
        # It may not have begun to sleep.
        assert eventually(lambda: stacks_of(domain.name).get("sleep", "R")[0] == "S")
        threads = stacks_of(domain.name)
        sleeper, loop = threads["sleep"], threads["sh"]
        assert sleeper[1].endswith("sleep_until"), sleeper
        assert any("clock_nanosleep" in call for call in sleeper[2]), sleeper
        # One that computes has no place in the kernel.
        assert loop == ("R", "-", []), loop
    finally:
        domain.stop()


@pytest.mark.parametrize(
    ("how", "calls"),
    [
        ([], ["read", "inner", "outer", "main", "_start"]),
        # Through the frame that the kernel built for a handler.
        (["signal"], ["read", "inner", "outer", "handler", "raise", "signalled", "main", "_start"]),
    ],
)
def test_calls_of_a_program(need: Any, how: list[str], calls: list[str]) -> None:
    need("blocked")
    domain = Running("domain-tests", "/t/blocked", *how)
    try:
        assert eventually(lambda: stacks_of(domain.name).get("blocked", "R")[1].endswith("Pipe::read"))
        stack = stacks_of(domain.name)["blocked"][2]
    finally:
        domain.stop()
    # Outermost are the program's, behind the kernel's own.
    program = [call for call in stack if not call.startswith("[<0>]")]
    assert stack[-len(program) :] == program, stack
    names = [call.split()[1].split("+")[0] for call in program if " " in call]
    at = [next(i for i, name in enumerate(names) if name.endswith(call)) for call in calls]
    assert at == sorted(at) and all(call.startswith("blocked") for call in program), stack


def test_stacks_of_none() -> None:
    argv = [DOPPEL, "debug", "stacks", "nobody-of-this-name"]
    shown = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert shown.returncode != 0 and "nobody-of-this-name" in shown.stderr, shown


def stacks_of(name: str) -> dict[str, tuple[str, str, list[str]]]:
    """State, wait channel and calls of each thread, by its name."""
    shown = subprocess.run([DOPPEL, "debug", "stacks", name], capture_output=True, text=True, check=True).stdout
    threads: dict[str, tuple[str, str, list[str]]] = {}
    calls: list[str] = []
    for line in shown.splitlines():
        if line.startswith(" "):
            calls.append(line.strip())
        else:
            _, state, comm, channel = line.split(" ")
            calls = []
            threads[comm] = (state, channel, calls)
    return threads
