"""Neighbours that take all they can (Xen 4.4, Doppelgänger 5): fork bomb, memory hog, disk hog, CPU hogs.

A victim of two processes computes while each of them does what it can, both of equal weight on a machine of two CPUs:
its share is half of what it does alone. Then a victim that asks a server of its own every millisecond: how long its
answers take. Both are there already when the neighbour comes, the first computes, and are measured from two seconds
after that; how long another instance takes to start then is a row of its own. Starts are medians of five; shares are
medians of windows of ten seconds, four beside each neighbour and one alone after every second of them: the machine's
own speed changes by up to a tenth for some seconds, whatever runs on it. Neighbours have 256 MiB and 200 processes; the
host itself, which sets no limits to processes of one user, is not asked to bear them.
"""

import contextlib
import statistics
import subprocess
import time

from harness.runtimes import Cannot, Failed

UNIT = "%"
REPEATS = 1
HOGS = {"fork": "a fork bomb", "memory": "a memory hog", "disk": "a disk hog", "cpu": "CPU hogs"}
TARGETS = {f"victim beside {name}, of its share": 98 for name in HOGS.values()}


@contextlib.contextmanager
def hogging(runtime, what, seconds):
    """While a neighbour does its worst."""
    hog = runtime.limited(memory=256 << 20, pids=200)
    p = subprocess.Popen(
        hog.argv("/work", "hog", what, str(seconds)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        hog.clean()
        p.kill()
        p.wait()


def words(runtime, kind, seconds, *more, hog=None):
    """What a victim of this kind says, beside a hog if there is one."""
    ready = 2.0
    at = time.time() + ready + (2 if hog else 0)
    victim = subprocess.Popen(
        runtime.argv("/work", kind, f"{at:.3f}", str(seconds), *more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        time.sleep(ready)
        with hogging(runtime, hog, seconds + 3) if hog else contextlib.nullcontext():
            out, error = victim.communicate(timeout=60)
    finally:
        victim.kill()
        victim.wait()
    if victim.returncode:
        raise Failed(f"{runtime.name}: {kind} ended with {victim.returncode}: {error.strip()[-200:]}")
    if out == "late\n":
        raise Failed(f"{runtime.name}: a victim has not started in {ready:.0f} s")
    return out.split()


def started(runtime, hog=None):
    """How long an instance takes from its start to its end."""
    found = []
    with hogging(runtime, hog, 30) if hog else contextlib.nullcontext():
        time.sleep(2)
        for _ in range(5):
            begun = time.perf_counter_ns()
            runtime.run("/work", "units", "1")
            found.append(time.perf_counter_ns() - begun)
    return statistics.median(found)


def measure(runtime, opt):
    if runtime.name in ("native", "runsc", "bwrap"):
        raise Cannot(f"{runtime.name}: sets its neighbours no limits here")
    seconds, windows = (1, 1) if opt.quick else (10, 4)
    mine = runtime.limited(weight=100)
    computes = lambda hog=None: int(words(mine, "count", seconds, "2", "3", hog=hog)[0])
    serves = lambda hog=None: (float(words(mine, "serve", seconds, hog=hog)[1]), "ns")
    alone, beside, others = [computes()], {}, {}
    if not opt.quick:
        others["victim alone: 99th percentile of an answer"] = serves()
        others["an instance started and ended alone"] = (started(mine), "ns")
    for what, name in list(HOGS.items())[: 1 if opt.quick else None]:
        found = beside[f"victim beside {name}, of its share"] = []
        for _ in range(windows):
            done = computes(what)
            alone.append(computes())
            found.append(100 * done / (sum(alone[-2:]) / 4))
        if not opt.quick:
            others[f"victim beside {name}: 99th percentile of an answer"] = serves(what)
            others[f"an instance started and ended beside {name}"] = (started(mine, what), "ns")
    whole = statistics.median(alone)
    for done in alone:
        yield "victim alone, of its median", 100 * done / whole
    for row, found in beside.items():
        for share in found:
            yield row, share
    yield from others.items()
