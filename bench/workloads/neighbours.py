"""Neighbours that take all they can (Xen 4.4, Doppelgänger 5): fork bomb, memory hog, disk hog, CPU hogs.

A victim of two processes computes beside each of them, both of equal weight on a machine of two CPUs: its share is half
of what it does alone. And a victim that asks a server of its own every millisecond: how long its answers take. Neighbours
have 256 MiB and 200 processes; the host itself, which sets no limits to processes of one user, is not asked to bear them.
"""
import subprocess
import time

from harness.runtimes import Cannot
from harness.together import ahead, outputs

UNIT = "%"
REPEATS = 1
HOGS = {"fork": "a fork bomb", "memory": "a memory hog", "disk": "a disk hog", "cpu": "CPU hogs"}
TARGETS = {f"victim beside {name}, of its share": 98 for name in HOGS.values()}


def beside(runtime, what, seconds, victim):
    """What a victim says beside a hog."""
    hog = runtime.limited(memory=256 << 20, pids=200)
    p = subprocess.Popen(hog.argv("/work", "hog", what, str(seconds + 4)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        return victim()
    finally:
        hog.clean()
        p.kill()
        p.wait()


def measure(runtime, opt):
    if runtime.name in ("native", "runsc", "bwrap"):
        raise Cannot(f"{runtime.name}: sets its neighbours no limits here")
    seconds = 1 if opt.quick else 3
    mine = runtime.limited(weight=100)
    computes = lambda: int(outputs([mine], ["/work", "count", f"{ahead(1):.3f}", str(seconds), "2"])[0])  # noqa: E731
    serves = lambda: float(outputs([mine], ["/work", "serve", f"{ahead(1):.3f}", str(seconds)])[0].split()[1])  # noqa: E731
    alone = computes()
    rows = {} if opt.quick else {"victim alone: 99th percentile of an answer": (serves(), "ns")}
    for what, name in list(HOGS.items())[: 1 if opt.quick else None]:
        rows[f"victim beside {name}, of its share"] = 100 * beside(runtime, what, seconds, computes) / (alone / 2)
        if opt.quick:
            continue
        rows[f"victim beside {name}: 99th percentile of an answer"] = (beside(runtime, what, seconds, serves), "ns")
    return rows
