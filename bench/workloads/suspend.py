"""Suspend and resume of a minimal, a medium and a heavy set-up (the paper's Fig. 5.1 and Table 5.1), and waking from
disk.

Suspend is `doppel freeze` of a running domain with the image in memory, as the command reports it; resume is
`doppel clone --json`, from the command's start to the clone's first output.
"""

import json
import os
import pathlib
import select
import subprocess
import time

from harness import counted, paper
from harness.runtimes import Cannot, Failed

UNIT = "ns"
REPEATS = 1
STAY = 3
MINIMAL = (
    'echo freeze >/sys/power/state; echo here; [ "$(cat /sys/doppel/generation)" = 0 ] && sleep 1000; [ -z '
    f'"$(cat /sys/doppel/args)" ] || sleep {STAY}'
)
HEAVY = f"""
import os, subprocess, time
import numpy, asyncio, http.server, sqlite3
server = 'require("http").createServer((q, r) => r.end("x")).listen(8000, () => console.log("up"))'
node = subprocess.Popen(["node", "-e", server], stdout=subprocess.PIPE)
node.stdout.readline()
shells = [subprocess.Popen(["sh", "-c", "while read x; do :; done"], stdin=subprocess.PIPE) for _ in range(4)]
data = numpy.frombuffer(os.urandom(150 << 20), dtype=numpy.uint8)
open("/sys/power/state", "w").write("freeze\\n")
print("here", flush=True)
read = lambda name: open("/sys/doppel/" + name).read().strip()
if read("generation") == "0": time.sleep(1000)
if read("args"): time.sleep({STAY})
os._exit(0)
"""
MEDIUM = f"""
import os, time
data = os.urandom(17 << 20)
open("/sys/power/state", "w").write("freeze\\n")
print("here", flush=True)
read = lambda name: open("/sys/doppel/" + name).read().strip()
if read("generation") == "0": time.sleep(1000)
if read("args"): time.sleep({STAY})
"""
# What the targets are about: how long a domain of 20 MB stands still, and how fast much memory is saved. Written to all
# the time, a page a millisecond.
BUSY = """
import os, time
data = bytearray(os.urandom(%d << 20))
print("here", flush=True)
i = 0
while True:
    i = (i + 4096 * 97) %% len(data)
    data[i] ^= 1
    time.sleep(0.001)
"""
SETUPS = {
    "minimal: a shell": ("busybox", ["sh", "-c", MINIMAL]),
    "medium: Python, 20 MB": ("debian", ["python3", "-c", MEDIUM]),
    "heavy: Python with 150 MiB, Node.js, 4 shells": ("runtimes", ["python3", "-c", HEAVY]),
}
SLEEPER = """
import os, time
ballast = os.urandom(44 << 20)
print("ready", flush=True)
last = time.monotonic()
while True:
    time.sleep(0.001)
    now = time.monotonic()
    if now - last > 0.2: print("awake", flush=True)
    last = now
"""


class Tool:
    def __init__(self, path):
        self.path = path

    def call(self, *argv):
        p = subprocess.run([self.path, *argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        if p.returncode:
            raise Failed(f"doppel {argv[0]}: {p.stderr[-300:]}")
        return p.stdout

    def start(self, *argv):
        return subprocess.Popen(
            [self.path, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )


def memory_of_clones(tool, frozen, n):
    group = counted.Group("suspend")
    argv = [tool.path, "clone", "-n", str(n), "--json", "--arg", "stay", frozen]
    p = subprocess.Popen(argv, preexec_fn=group.enter, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    time.sleep(STAY * 0.6)
    inside = [
        int(c)
        for t in os.listdir(f"/proc/{p.pid}/task")
        for c in open(f"/proc/{p.pid}/task/{t}/children").read().split()
    ]
    if len(inside) != n:
        raise Failed(f"doppel: {len(inside)} of {n} clones live")
    got = counted.amount([group.path, *(counted.group_of(c) for c in inside)])
    p.wait()
    group.remove()
    return got


def setup(tool, name, image, command, repeats):
    """Measures a set-up; value: suspend and resume latencies in ms."""
    tag = f"bench-suspend-{os.getpid()}"
    # Both freezes, the program's own for resuming and those from outside, are of the same domain at rest.
    p = tool.start("run", "--rm", "--name", tag, "--freeze-as", tag, "--in-memory", image, "--", *command)
    try:
        if p.stdout.readline() != "here\n":
            raise Failed(f"doppel: {name} did not start: {p.stderr.read()[-300:]}")
        time.sleep(0.3)
        reports = []
        for _ in range(repeats):
            reports.append(json.loads(tool.call("freeze", "--json", "--in-memory", tag, f"{tag}-o")))
            tool.call("frozen", "rm", f"{tag}-o")
    finally:
        p.kill()
        p.communicate()
    try:
        resumes = [json.loads(tool.call("clone", "--json", tag))["first_output_ms"] for _ in range(repeats)]
        about = json.loads(tool.call("frozen", "inspect", tag))
        few, many = memory_of_clones(tool, tag, 1), memory_of_clones(tool, tag, 11)
    finally:
        tool.call("frozen", "rm", tag)
    tables = 560 + 32 * about["segments"] + about["data_bytes"] // (1 << 20) * 8
    result = {
        "image_kib": about["data_bytes"] >> 10,
        "processes": about["processes"],
        "segments": about["segments"],
        "tables_kib": -(-tables // 4096) * 4,
        "stop_ms": [r["stop_us"] / 1000 for r in reports],
        "pause_ms": [r["pause_us"] / 1000 for r in reports],
        "suspend_ms": [r["total_us"] / 1000 for r in reports],
        "resume_ms": resumes,
        "resume_kib": {k: (many[k] - few[k]) / 10 for k in few},
    }
    paper.keep("setups", name, result)
    return result["suspend_ms"], resumes


def running(tool, mib, repeats):
    """Reports of freezes of a domain that has so many MiB and goes on."""
    tag = f"bench-busy-{os.getpid()}"
    p, reports = tool.start("run", "--rm", "--name", tag, "debian", "--", "python3", "-c", BUSY % mib), []
    try:
        if p.stdout.readline() != "here\n":
            raise Failed(f"doppel: a domain of {mib} MiB did not start: {p.stderr.read()[-300:]}")
        for _ in range(repeats):
            time.sleep(0.3)
            reports.append(json.loads(tool.call("freeze", "--json", "--in-memory", tag, f"{tag}-o")))
            tool.call("frozen", "rm", f"{tag}-o")
    finally:
        p.kill()
        p.communicate()
    return reports


def line_within(p, seconds):
    if not select.select([p.stdout], [], [], seconds)[0]:
        raise Failed("doppel: the domain says nothing")
    return p.stdout.readline()


def wakes(tool, repeats):
    """Latencies of waking a domain of 50 MB, in ms."""
    name = f"bench-sleeper-{os.getpid()}"
    file = pathlib.Path(os.environ.get("DOPPEL_STORE", "/var/lib/doppel")) / f"frozen/{name}.asleep.frozen"
    touched = file.with_suffix(".touched")
    p, found = tool.start("run", "--rm", "--name", name, "debian", "--", "python3", "-c", SLEEPER), {}
    try:
        if line_within(p, 20) != "ready\n":
            raise Failed("doppel: the sleeper did not start")
        for kind, cold, options in [
            ("first, to learn", False, []),
            ("cached, with prefetch", False, []),
            ("cached, without", False, ["--no-prefetch"]),
            ("cold, with prefetch", True, []),
            ("cold, without", True, ["--no-prefetch"]),
        ]:
            for _ in range(1 if "learn" in kind else repeats):
                tool.call("hibernate", name)
                p.communicate(timeout=20)
                time.sleep(0.3)
                with open(file) as f:
                    os.fsync(f.fileno())
                    if cold:
                        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                began = time.perf_counter()
                p = tool.start("wake", *options, name)
                line = line_within(p, 20)
                took = (time.perf_counter() - began) * 1000
                if line != "awake\n":
                    raise Failed(f"doppel: woke with {line!r} {p.stderr.read()[-300:]}")
                time.sleep(1.3)  # the working set is recorded
                size = file.stat().st_blocks / 2048
                pages = sum(
                    int(b, 16) - int(a, 16) for _, a, b in (x.split() for x in touched.read_text().splitlines()[1:])
                )
                w = found.setdefault(kind, {"ms": [], "image_mib": size, "working_set_kib": pages >> 10})
                w["ms"].append(took)
    finally:
        p.kill()
        p.communicate()
        for _ in range(50):  # until its last process is gone
            if (
                not file.exists()
                or subprocess.run([tool.path, "frozen", "rm", f"{name}.asleep"], capture_output=True).returncode == 0
            ):
                break
            time.sleep(0.1)
    for kind, w in found.items():
        if "learn" not in kind:
            paper.keep("wake", kind, w)
    return {k: w["ms"] for k, w in found.items() if "learn" not in k}


def median(values):
    return sorted(values)[len(values) // 2]


def measure(runtime, opt):
    if runtime.name != "doppel":
        raise Cannot(f"{runtime.name}: suspend and resume are Doppel's")
    tool, rows, repeats = Tool(runtime.path), {}, 2 if opt.quick else 11
    for name, (image, command) in list(SETUPS.items())[: 1 if opt.quick else None]:
        suspend, resume = setup(tool, name, image, command, repeats)
        rows[f"suspend, {name}"], rows[f"resume, {name}"] = median(suspend) * 1e6, median(resume) * 1e6
    if opt.quick:
        return rows
    small, large = running(tool, 17, 3 * repeats), running(tool, 510, repeats)
    pauses = {
        "20 MB": [r["stop_us"] + r["pause_us"] for r in small],
        "512 MB": [r["stop_us"] + r["pause_us"] for r in large],
    }
    rows["20 MB domain: pause"], rows["20 MB domain: longest pause"] = (
        median(pauses["20 MB"]) * 1e3,
        max(pauses["20 MB"]) * 1e3,
    )
    rows["512 MB domain: pause"] = median(pauses["512 MB"]) * 1e3
    # Until the image is complete, the stop included.
    speeds = [r["bytes"] / r["total_us"] for r in large]
    rows["freeze throughput of 512 MB dirty memory"] = (median(speeds), "MB/s")
    paper.keep(
        "running",
        {"pause_ms": {k: [us / 1000 for us in v] for k, v in pauses.items()}, "gb_per_s": [s / 1000 for s in speeds]},
    )
    for kind, values in wakes(tool, 7).items():
        rows[f"wake of 50 MB, {kind}"] = median(values) * 1e6
    return rows


def finish(results):
    paper.write(results)
