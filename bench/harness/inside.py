"""Wall time of commands, taken inside a runtime so that its own start does not count.

`timed` prepares with one shell script, then runs another some times with a shell and takes the best wall time of
its `python3` measuring them. The image must hold sh and python3.
"""
from typing import Any

TIMER = """
import os, subprocess, sys, time
prepare, before, count, *command = sys.argv[1:]
null = subprocess.DEVNULL
def sh(script):
    p = subprocess.run(["sh", "-ec", script], stdin=null, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if p.returncode:
        sys.exit("setting up failed: " + p.stdout.decode(errors="replace")[-500:])
if prepare:
    sh(prepare)
best = None
for i in range(int(count)):
    if before:
        sh(before)
    t = time.perf_counter_ns()
    p = subprocess.run(command, stdin=null, stdout=null)
    t = time.perf_counter_ns() - t
    if p.returncode:
        sys.exit(f"{command[0]} ended with {p.returncode}")
    best = t if best is None else min(best, t)
print(best)
"""


def timed(
    runtime: Any,
    *command: Any,
    image: str = "debian",
    prepare: str = "",
    before: str = "",
    count: int = 5,
    timeout: float = 300,
) -> float:
    """Nanoseconds of the quickest of `count` runs of `command`; `before` is a script run untimed before each."""
    out = runtime.run(
        "/usr/bin/python3", "-c", TIMER, prepare, before, str(count), *command, image=image, timeout=timeout
    )
    return float(out.split()[-1])
