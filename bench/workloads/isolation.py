"""Memory of one to ten isolated instances of a program: clones against the same program in namespaces (the paper's Fig.
5.2).

Each instance has answered a request and waits. Clones come from an image in memory, which counts with the first; what
is counted is in `harness.counted`. Namespaces: mount, PID, UTS, IPC and network, one set and one control group an
instance.
"""

import json
import os
import subprocess
import time

from harness import counted, paper
from harness.runtimes import Cannot, Failed

UNIT = "KiB"
REPEATS = 1
# How long an instance stays after its answer, and when it is looked at.
STAY, LOOK = 5.0, 3.2
IMAGE = "runtimes"

PYTHON = """
import asyncio, decimal, http.client, json, logging, os, re, sqlite3, time, urllib.request
import numpy
IN = os.path.exists("/sys/doppel/generation")
if IN: open("/sys/power/state", "w").write("freeze\\n")
data = numpy.arange(5000, dtype=float).reshape(100, 50)
values = numpy.linalg.svd(data + 1)[1]
db = sqlite3.connect(":memory:")
db.execute("create table t (k, v)")
db.executemany("insert into t values (?, ?)", enumerate(values.tolist()))
print("answer", json.dumps(round(db.execute("select max(v) from t").fetchone()[0])), flush=True)
time.sleep(STAY)
"""
NODE = """
const http = require("http"), fs = require("fs");
const server = http.createServer((q, r) => r.end(JSON.stringify({ url: q.url, words: q.url.split("/") })));
const get = (path) => new Promise((done, bad) => http.get({ host: "127.0.0.1", port: server.address().port, path, agent: false }, (r) => {
  let text = ""; r.on("data", (d) => (text += d)).on("end", () => done(text)); }).on("error", bad));
server.listen(0, "127.0.0.1", async () => {
  for (let i = 0; i < 50; i++) await get("/warm/" + i);
  if (fs.existsSync("/sys/doppel/generation")) fs.writeFileSync("/sys/power/state", "freeze\\n");
  console.log("answer " + JSON.parse(await get("/a/b/c")).words.length);
  setTimeout(() => process.exit(0), STAY * 1000);
});
"""  # noqa: E501
PROGRAMS = {
    "Python with numpy": (["python3", "-c", PYTHON.replace("STAY", str(STAY))], "answer 204154"),
    "Node.js server": (["node", "-e", NODE.replace("STAY", str(STAY))], "answer 4"),
}


def counts(opt):
    return (1, 2) if opt.quick else (1, 2, 3, 5, 7, 10)


def native_instances(runtime, command, n):
    """The amount of n instances in namespaces, and their answers."""
    groups = [counted.Group(f"ns{i}") for i in range(n)]
    argv = [
        "unshare",
        "--uts",
        "--ipc",
        "--net",
        "sh",
        "-c",
        'busybox ip link set lo up && exec "$0" "$@"',
        *runtime.argv(*command, image=IMAGE),
    ]
    procs = [
        subprocess.Popen(argv, preexec_fn=g.enter, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        for g in groups
    ]
    # They start one after another's CPU time; the last to answer is waited for.
    said = [p.stdout.readline().strip() for p in procs]
    time.sleep(0.3)
    got = counted.amount(g.path for g in groups)
    for p in procs:
        p.kill()
        p.wait()
    for g in groups:
        g.remove()
    return got, said


def clones(runtime, frozen, n):
    """The amount of n clones with the process that runs them, and their answers."""
    group = counted.Group("clones")
    p = subprocess.Popen(
        [runtime.path, "clone", "-n", str(n), "--json", frozen],
        preexec_fn=group.enter,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(LOOK)
    inside = [int(c) for c in open(f"/proc/{p.pid}/task/{p.pid}/children").read().split()]
    for t in os.listdir(f"/proc/{p.pid}/task"):
        inside += [int(c) for c in open(f"/proc/{p.pid}/task/{t}/children").read().split()]
    got = counted.amount([group.path, *(counted.group_of(c) for c in inside)])
    out, _ = p.communicate(timeout=60)
    group.remove()
    ends = [json.loads(line) for line in out.splitlines()]
    if any(e["exit_code"] for e in ends) or len(set(inside)) != n:
        raise Failed(
            f"doppel: {len(set(inside))} of {n} clones lived, {[e['stderr'][-200:] for e in ends if e['exit_code']]}"
        )
    return got, [e["stdout"].strip() for e in ends]


def measure(runtime, opt):
    if runtime.name not in ("native", "doppel"):
        raise Cannot(f"{runtime.name}: isolation compares namespaces and clones")
    rows = {}
    for name, (command, answer) in list(PROGRAMS.items())[: 1 if opt.quick else None]:
        frozen, image = f"bench-isolation-{os.getpid()}", 0
        if runtime.name == "doppel":
            p = subprocess.run(
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
                    *command,
                ],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120,
            )
            if p.returncode:
                raise Failed(f"doppel: {name} could not be frozen: {p.stderr[-300:]}")
            image = (
                json.loads(
                    next(
                        x
                        for x in subprocess.check_output(
                            [runtime.path, "frozen", "ls", "--json"], text=True
                        ).splitlines()
                        if f'"{frozen}"' in x
                    )
                )["used"]
                >> 10
            )
        try:
            per = {}
            for n in counts(opt):
                got, said = (
                    native_instances(runtime, command, n) if runtime.name == "native" else clones(runtime, frozen, n)
                )
                if said != [answer] * n:
                    raise Failed(f"{runtime.name}: {name} answered {said}")
                got["image"] = image
                per[n] = got
        finally:
            if runtime.name == "doppel":
                subprocess.run([runtime.path, "frozen", "rm", frozen], check=True)
        paper.keep("isolation", runtime.name, name, {str(n): a for n, a in per.items()})
        first, last = counts(opt)[0], counts(opt)[-1]
        rows[f"{name}: first instance"] = counted.total(per[first])
        rows[f"{name}: each further instance"] = (counted.total(per[last]) - counted.total(per[first])) / (last - first)
    return rows


def finish(results):
    paper.write(results)
