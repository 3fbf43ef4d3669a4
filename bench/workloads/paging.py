"""Memory that comes back: a program with 396 MiB of its own that uses 8 of them, in a domain with a target of 64 MiB.

How much its control group has in memory (page cache too) before, and 5 and 10 seconds after the target is set; how fast
it goes through its working set in the meantime and afterwards; and how fast through all that it has, from the disk.
"""
import os
import pathlib
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from harness.runtimes import Cannot, Failed

UNIT = "MiB"
REPEATS = 3
HAS, USES, TARGET = 396, 8, 64
PROGRAM = f"""
import mmap, os, sys, threading, time
m = mmap.mmap(-1, {HAS} << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for i in range({HAS}): m[i << 20:(i + 1) << 20] = os.urandom(1 << 20)
done = 0
def work():
    global done
    while True:
        for at in range(0, {USES} << 20, 65536): m[at:at + 65536] = m[at:at + 65536]
        done += {USES}
threading.Thread(target=work, daemon=True).start()
print("up", flush=True)
for line in sys.stdin:
    if line == "all\\n":
        begun = time.monotonic()
        for i in range(0, {HAS} << 20, 1 << 20): m[i:i + (1 << 20)]
        print({HAS} / (time.monotonic() - begun), flush=True)
    else:
        print(done, flush=True)
"""


def in_memory(pid: int) -> float:
    """MiB that the control group of a process has in memory."""
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        for file in (
            f"/sys/fs/cgroup/{controllers}{path}/memory.usage_in_bytes",
            f"/sys/fs/cgroup{path}/memory.current",
        ):
            if ("memory" in controllers.split(",") or number == "0") and os.path.exists(file):
                return int(pathlib.Path(file).read_text()) / (1 << 20)
    raise Failed("doppel: no control group counts memory")


def measure(runtime: Any, opt: Any) -> Iterator[tuple[str, float]]:
    if runtime.name != "doppel":
        raise Cannot(f"{runtime.name}: has no memory targets")
    name = f"bench-paging-{os.getpid()}"
    options = ["--rm", "-i", "--name", name, "--memory", "512m", "--memory-swap", "1g"]
    p = subprocess.Popen(
        [runtime.path, "run", *options, "debian", "--", "python3", "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def ask(what: str) -> float:
        p.stdin.write(what + "\n")
        p.stdin.flush()
        return float(p.stdout.readline())

    def rate(seconds: float) -> float:
        before, begun = ask("done"), time.monotonic()
        time.sleep(seconds)
        return (ask("done") - before) / (time.monotonic() - begun)

    try:
        if p.stdout.readline() != "up\n":
            raise Failed("doppel: the program does not start")
        children = f"/proc/{p.pid}/task/{p.pid}/children"
        first = int(pathlib.Path(children).read_text().split()[0])
        yield f"paging: in memory before, {HAS} MiB in use", in_memory(first)
        free = rate(2)
        yield "paging: through the working set in a second, without a target", free
        subprocess.run(
            [runtime.path, "debug", "memory", name, "--limit", "512m", "--target", f"{TARGET}m"],
            check=True,
            capture_output=True,
        )
        paged = rate(5)
        yield f"paging: in memory 5 s after a target of {TARGET} MiB", in_memory(first)
        yield "paging: through the working set in a second, in the first 5 s", paged
        yield "paging: through the working set in a second, in the next 5 s", rate(5)
        yield "paging: in memory 10 s after", in_memory(first)
        yield "paging: through all of it in a second, most of it out", ask("all")
    finally:
        p.kill()
        p.wait()
