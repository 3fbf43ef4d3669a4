"""Clones of a warm Python against starting it anew, and against gVisor's checkpoint and restore.

The program imports some modules; what is measured is the time from the call until its first output. Natively and in
runc it is started anew. Doppel freezes it after the imports and calls clones of it: out of a pool of ready ones
(`doppel clone --repeat`), or without (a new `doppel clone` each time). runsc restores a checkpoint of it.
Memory of an idle clone counts everything: its memory files, private pages, page tables, kernel stacks and the host
kernel's own objects.
"""
import json
import os
import re
import shutil
import subprocess
import threading
import time

from harness import paper
from harness.inside import timed
from harness.memory import tree
from harness.runtimes import WORK, Failed

UNIT = "ns"
REPEATS = 1
MODULES = (
    "import argparse, datetime, decimal, hashlib, http.client, json, logging, os, random, re, sys, time, urllib.parse"
)
PYTHON = "/usr/bin/python3"
COLD = MODULES + "\nprint('hello', flush=True)"
# A clone answers and lives on for as long as its argument says.
WARM = (
    MODULES
    + """
with open('/sys/power/state', 'w') as f:
    f.write('freeze\\n')
print('hello', flush=True)
args = open('/sys/doppel/args').read().split()
time.sleep(float(args[0]) if args else 0)
"""
)
# Says so when it is warm, then a dot every 2 ms: the first one after a restore is its first output.
DOTS = (
    MODULES
    + """
os.write(1, b'warm')
while True:
    time.sleep(0.002)
    os.write(1, b'.')
"""
)


def measure(runtime, opt):
    rows = measured(runtime, opt)
    paper.keep("ways", runtime.name, rows["warm Python to first output"])
    return rows


def measured(runtime, opt):
    if runtime.name == "doppel":
        return doppel(runtime, opt)
    if runtime.name == "runsc":
        return {"warm Python to first output": restored(runtime)}
    once = timed(runtime, PYTHON, "-c", COLD, count=5 if opt.quick else 20)
    rows = {"warm Python to first output": once}
    if runtime.name == "native" and not opt.quick:
        rows["100 warm Pythons, until all have answered"] = together(runtime, 100)
    return rows


def together(runtime, count):
    """Nanoseconds until `count` programs started at once have all answered."""
    script = (
        "import subprocess, sys\np = [subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE) for _ in "
        f"range({count})]\nfor x in p: x.stdout.read(1)"
    )
    return timed(runtime, PYTHON, "-c", script, PYTHON, "-c", COLD, count=1)


def doppel(runtime, opt):
    image = f"bench-clone-{os.getpid()}"
    made = subprocess.run(
        [runtime.path, "run", "--freeze-as", image, "--in-memory", "--freeze-stop", "debian", "--", PYTHON, "-c", WARM],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    try:
        return clones(runtime.path, image, opt)
    except Failed as e:
        raise Failed(f"{e}; freezing said: {made.stderr[-200:]}") from None
    finally:
        subprocess.run([runtime.path, "frozen", "rm", image], capture_output=True)


def clones(path, image, opt):
    count = 30 if opt.quick else 300
    pool = first_outputs(called(path, image, "--repeat", str(count)))
    alone = sorted(first_outputs(called(path, image, "--json"))[0] for _ in range(5 if opt.quick else 20))
    warm = first_outputs(called(path, image, "-n", "100", "--warm", "--json"))
    cold = first_outputs(called(path, image, "-n", "100", "--json"))
    rows = {
        "warm Python to first output": pool[len(pool) // 2],
        "the same, 99th percentile": pool[len(pool) * 99 // 100],
        "the same without a pool": alone[len(alone) // 2],
        "100 warm Pythons, until all have answered": warm[-1],
        "the same without making them ready first": cold[-1],
        **memory(path, image, 20 if opt.quick else 100),
    }
    if not opt.quick:
        # A Python that ends takes ten times the time its answer took, from those that have not answered yet.
        stay = ("-n", "100", "--json", "--arg", "1")
        rows["100 warm Pythons that live on, until all have answered"] = first_outputs(
            called(path, image, *stay, "--warm")
        )[-1]
        rows["100 that live on, without making them ready first"] = first_outputs(called(path, image, *stay))[-1]
        ends = called(path, image, "-n", "1000", "--warm", "--json", "--arg", "30")
        alive = max(e["first_output_ms"] for e in ends) < min(e["ended_ms"] for e in ends)
        if len(ends) != 1000 or not alive:
            raise Failed("doppel: 1,000 clones were not alive at once")
        rows["1,000 clones alive at once, until all have answered"] = first_outputs(ends)[-1]
    return rows


def called(path, image, *options):
    """What `doppel clone` says of each clone, after checking that all have answered."""
    p = subprocess.run(
        [path, "clone", *options, image], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )
    ends = [json.loads(line) for line in p.stdout.splitlines()]
    if p.returncode or not ends or any(e["stdout"] != "hello\n" for e in ends):
        raise Failed(f"doppel: clone {' '.join(options)} ended with {p.returncode}: {p.stderr.strip()[-200:]}")
    return ends


def first_outputs(ends):
    """Nanoseconds from the call to the first output, in order."""
    return sorted(e["first_output_ms"] * 1e6 for e in ends)


def kernel_memory():
    """KiB of the host kernel's own objects and stacks."""
    info = dict(line.split(":") for line in open("/proc/meminfo"))
    return int(info["SUnreclaim"].split()[0]), int(info["KernelStack"].split()[0])


def memory(path, image, count):
    """KiB that a clone adds that is ready and waits."""
    before = kernel_memory()
    # The first of two calls lives for a while; the rest of the pool waits meanwhile.
    p = subprocess.Popen(
        [path, "clone", "--repeat", "2", "-n", str(count), "--arg", "5", image], stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while len(tree(p.pid)) < 2 * count and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1)
        after = kernel_memory()
        parts = {"memory files": 0, "private pages": 0, "page tables": 0}
        # The called one does not count: it is the first that was made.
        pids = sorted(tree(p.pid))[2:]
        files = set()
        for pid in pids:
            parts["private pages"] += sum(
                int(x.split()[1]) for x in open(f"/proc/{pid}/smaps_rollup") if x.startswith("Pss_Anon:")
            )
            parts["page tables"] += sum(
                int(x.split()[1]) for x in open(f"/proc/{pid}/status") if x.startswith("VmPTE:")
            )
            for fd in "012":
                st = os.stat(f"/proc/{pid}/fd/{fd}")
                if st.st_ino not in files:
                    files.add(st.st_ino)
                    parts["memory files"] += st.st_blocks // 2
    finally:
        p.kill()
        p.wait()
    n = len(pids) / 2
    rows = {f"idle clone: {name}": (total / n, "KiB") for name, total in parts.items()}
    rows["idle clone: kernel objects"] = (max(0, after[0] - before[0]) / count, "KiB")
    rows["idle clone: kernel stacks"] = (max(0, after[1] - before[1]) / count, "KiB")
    rows["idle clone, all counted"] = (sum(v for v, _ in rows.values()), "KiB")
    return rows


def restored(runtime):
    """Nanoseconds from `runsc restore` to the first output."""
    image = WORK / "runsc-checkpoint"
    shutil.rmtree(image, ignore_errors=True)
    image.mkdir(parents=True)
    tool = [runtime.name, *runtime.options]
    p = subprocess.Popen(
        runtime.argv(PYTHON, "-u", "-c", DOTS, image="debian"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    drain = None
    try:
        if p.stdout.read(4) != b"warm":
            raise Failed("runsc: the program did not start")
        drain = threading.Thread(target=p.stdout.read, daemon=True)
        drain.start()
        saved = subprocess.run(
            [*tool, "checkpoint", f"--image-path={image}", runtime.id], capture_output=True, text=True, timeout=60
        )
        if saved.returncode:
            raise Failed(f"runsc: checkpoint: {saved.stderr.strip()[-200:]}")
    finally:
        runtime.clean()
        p.kill()
        p.wait()
    best = None
    for _ in range(5):
        runtime.count += 1
        runtime.id = f"bench-{os.getpid()}-{runtime.count}"
        t = time.perf_counter_ns()
        p = subprocess.Popen(
            [*tool, "restore", f"--image-path={image}", "--bundle", str(runtime.bundle), runtime.id],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        first = p.stdout.read(1)
        t = time.perf_counter_ns() - t
        runtime.clean()
        p.kill()
        said = p.stderr.read().decode(errors="replace")
        p.wait()
        if not first:
            raise Failed("runsc: restore: " + re.sub(r"\s+", " ", said)[-200:])
        best = t if best is None else min(best, t)
    return best


def finish(results):
    paper.write(results)
