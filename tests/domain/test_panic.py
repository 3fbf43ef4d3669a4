"""A panic of the guest kernel: what it says, and how the domain ends."""

import os
import re
import signal
import subprocess
from pathlib import Path

from conftest import DOPPEL, Running


def first_process(command: int) -> int:
    """The process of a command's domain that runs nothing but the guest kernel."""
    todo = [command]
    while todo:
        pid = Path("/proc", str(todo.pop()))
        if re.search(r"^NSpid:.*\t1$", (pid / "status").read_text(), re.M):
            return int(pid.name)
        for children in pid.glob("task/*/children"):
            todo.extend(map(int, children.read_text().split()))
    raise AssertionError(f"no domain of process {command}")


def test_a_panic_says_where_and_what_was_before() -> None:
    """A fault signal from the host hits the kernel in a host call, as a fault of its own would."""
    domain = Running("busybox", "sh", "-c", "echo up; exec sleep 1000")
    try:
        subprocess.run([DOPPEL, "debug", "events", "--level", "info", domain.name], check=True)
        domain.exec("sh", "-c", "exit 41")
        os.kill(first_process(domain.process.pid), signal.SIGSEGV)
        out, _ = domain.process.communicate(timeout=30)
    finally:
        domain.stop()
    words = out.decode()
    assert domain.process.returncode == 125, words
    head, *dump = words[words.index("guest kernel panic: ") :].splitlines()
    assert head.startswith("guest kernel panic: panicked at guest/machine/src/trap/"), words
    assert dump[0].startswith("signal 11 in the guest kernel: rip 0x"), words
    # From the host call in which it waited to where its thread began.
    calls = [m[1] for line in dump if (m := re.fullmatch(r"  0x[0-9a-f]+ (\S.*)\+0x[0-9a-f]+", line))]
    assert calls[0] == "doppel_machine::host::gate", words
    assert "doppel_kernel::domain::boot::init_loop" in calls, words
    assert calls[-1] == "doppel_machine::cpu::vcpu_main", words
    events = [line for line in dump if line.startswith("  event ")]
    assert events and events[-1].endswith("process.exit: exits with 41"), words
    assert dump[-1].startswith(f"doppel: domain {domain.name} ended: guest kernel panic"), words
