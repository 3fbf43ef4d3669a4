"""Page sharing after the checkpoint: memory over time while clones are added (the paper's Fig. 5.3), and how often the
keys of different pages are equal at each hash level (Table 5.2).

As in the paper's example, instances of one application come one after the other: clones of a warm Python that import
numpy, build tables that are the same in all and some that are not, and go on writing a little. All are clones of one
`doppel clone --share`, so the later ones begin their work when their turn comes.
"""
import json
import os
import subprocess
import time

from harness.runtimes import Cannot, Failed

UNIT = "KiB"
REPEATS = 3
IMAGE = "runtimes"
PROGRAM = """
import os, random, time
open("/sys/power/state", "w").write("freeze\\n")
read = lambda name: open("/sys/doppel/" + name).read().split()
began, (every, last) = time.monotonic(), [float(x) for x in read("args")]
me = int(read("clone_index")[0])
time.sleep((me - 1) * every)
import numpy, json, sqlite3, decimal, http.client, email.message, xml.dom.minidom, unittest
same = numpy.random.default_rng(7).random(1 << 20)
table = {i: str(i) * 3 for i in range(60000)}
own = numpy.random.default_rng(int.from_bytes(os.urandom(8), "little")).random(1 << 17)
hot, right = bytearray(1 << 16), float(same.sum())
while time.monotonic() - began < last:
    for at in range(0, len(hot), 4096):
        hot[at] = random.randrange(256)
    time.sleep(0.05)
assert float(same.sum()) == right and table[59999] == "59999" * 3
print("right")
"""
_over_time, _collisions = [], []


def stats(path, names):
    p = subprocess.run(
        [path, "stats", "--json", *names], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    return [json.loads(line) for line in p.stdout.splitlines()]


def measure(runtime, opt):
    if runtime.name != "doppel":
        raise Cannot(f"{runtime.name}: sharing among clones is Doppel's")
    n, every, last = (2, 2.0, 5.0) if opt.quick else (4, 7.0, 30.0)
    frozen = f"bench-sharing-{os.getpid()}"
    made = subprocess.run(
        [
            runtime.path,
            "run",
            "--rm",
            "--freeze-as",
            frozen,
            "--in-memory",
            "--freeze-stop",
            IMAGE,
            "--",
            "python3",
            "-c",
            PROGRAM,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if made.returncode:
        raise Failed(f"doppel: the program could not be frozen: {made.stderr[-300:]}")
    series, sharing = [], None
    try:
        argv = [
            runtime.path,
            "clone",
            "--share",
            "--json",
            "-n",
            str(n),
            "--name",
            frozen,
            "--arg",
            f"{every} {last}",
            frozen,
        ]
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        began = time.monotonic()
        while p.poll() is None:
            rows = stats(runtime.path, [f"{frozen}-{i + 1}" for i in range(n)])
            if len(rows) == n and rows[0]["sharing"]:
                sharing = rows[0]["sharing"]
                private, saved = (sum(r[k] for r in rows) for k in ("private_bytes", "saved_bytes"))
                series.append({
                    "seconds": round(time.monotonic() - began, 2),
                    "used_mib": (private + sharing["file_bytes"]) / (1 << 20),
                    "without_sharing_mib": (private + sum(r["shared_bytes"] for r in rows)) / (1 << 20),
                    "saved_mib": saved / (1 << 20),
                })
            time.sleep(0.25)
        out, err = p.communicate(timeout=60)
    finally:
        subprocess.run([runtime.path, "frozen", "rm", frozen], capture_output=True)
    if p.returncode or out.count("right") != n or not series:
        raise Failed(f"doppel: sharing clones ended with {p.returncode}: {err[-300:]}{out[-300:]}")
    _over_time[:] = series
    _collisions.append({
        **{f"H{i + 1}": level["frequency"] for i, level in enumerate(sharing["levels"])},
        "overall": sharing["collisions_overall"],
    })
    best = max(series, key=lambda s: s["saved_mib"])
    return {
        f"{n} sharing clones: memory of their own": best["used_mib"] * 1024,
        "the same, had they not shared": best["without_sharing_mib"] * 1024,
    }


def finish(results):
    if _over_time:
        (results / "sharing.json").write_text(
            json.dumps({"over_time": _over_time, "collisions": _collisions}, indent=1) + "\n"
        )
        from harness import paper

        paper.write(results)
