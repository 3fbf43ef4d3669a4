#!/usr/bin/env python3
"""Freezes, clones and ends domains again and again and looks for leaks: part of `make soak`.

    tests/soak_freezer.py [DOPPEL] [--cycles N] [--seconds N] [--at-once N] [--json FILE]

A cycle freezes a domain that lives through all of them, makes two clones, each of which answers and ends, asks the
domain whether it is still there, and removes the image. The domain is a Python interpreter in one of `PYTHON_EVERY`
cycles and a shell in the others. One in `DEEP_EVERY` cycles starts from a frozen image instead: clones go on from it,
one freezes itself as a new image, and a clone of that answers. Several cycles run at once, each with domains of its
own. Every answer is checked. Afterwards there must be as many processes, control groups, sockets, identities,
files of the store, of /dev/shm and of /tmp and memory files as before, and no less memory available (that of
programs counted as available: the host may do other things, and ours are counted by number) but for the slack; the
processes that run the domains frozen all the time must have as many descriptors and as much memory.
"""
import argparse
import concurrent.futures
import fcntl
import json
import os
import pathlib
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "domain"))
import store  # noqa: E402, F401
from conftest import domain_cgroups  # noqa: E402

PYTHON_EVERY = 8
DEEP_EVERY = 20
CLONES = 2
# The first cycles fill caches of this host's and of the runtime.
WARM_UP = 60
# Available memory changes with what else the host does; a leak of a page a cycle would be 40 MB in 10,000.
SLACK_BYTES = 48 << 20
SHELL = (
    'echo freeze >/sys/power/state; echo "clone $(cat /sys/doppel/generation) $(cat /sys/doppel/args)"; [ "$(cat '
    '/sys/doppel/generation)" != 1 ] || echo freeze >/sys/power/state 2>/dev/null; echo "end $(cat '
    '/sys/doppel/generation)"'
)
PYTHON = """
import json, random
def freeze():
    try:
        open("/sys/power/state", "w").write("freeze\\n")
    except PermissionError:
        pass
def read(name): return open("/sys/doppel/" + name).read().strip()
freeze()
print("clone", read("generation"), read("args"), flush=True)
if read("generation") == "1": freeze()
print("end", read("generation"), flush=True)
"""
KINDS = {"shell": ("busybox", ["sh", "-c", SHELL]), "python": ("debian", ["python3", "-c", PYTHON])}


class Leaking(Exception):
    """A cycle that went wrong."""


class Soak:
    def __init__(self, doppel):
        self.doppel, self.tag, self.done, self.clones = doppel, f"soak-{os.getpid()}", 0, 0
        self.count = threading.Lock()
        self.residents = {kind: queue.SimpleQueue() for kind in RESIDENTS}

    def call(self, *argv, stdin=subprocess.DEVNULL):
        p = subprocess.run([self.doppel, *argv], stdin=stdin, capture_output=True, text=True, timeout=120)
        if p.returncode:
            raise Leaking(f"{argv[:3]}: exit code {p.returncode}: {p.stderr[-300:]}{p.stdout[-300:]}")
        return p.stdout

    def prepare(self):
        for kind, (image, command) in KINDS.items():
            self.call(
                "run",
                "--rm",
                "--freeze-as",
                f"{self.tag}-{kind}",
                "--in-memory",
                "--freeze-stop",
                image,
                "--",
                *command,
            )

    def cycle(self, k):
        if k % DEEP_EVERY == 0:
            clones = self.deep(k)
        else:
            kind = "python" if k % PYTHON_EVERY == 0 else "shell"
            resident = self.residents[kind].get()
            try:
                clones = self.shallow(k, resident)
            finally:
                self.residents[kind].put(resident)
        with self.count:
            self.done += 1
            self.clones += clones

    def shallow(self, k, resident):
        image = f"{self.tag}-c{k}"
        self.call("freeze", "--in-memory", resident.name, image)
        self.answers("-n", str(CLONES), "--arg", str(k), image, n=CLONES, said=f"clone 1 {k}\n")
        resident.ask(f"still {k}")
        self.call("frozen", "rm", image)
        return CLONES

    def answers(self, *options, n, said):
        ends = [json.loads(line) for line in self.call("clone", "--json", *options).splitlines()]
        if len(ends) != n or any(e["exit_code"] or e["stdout"] != said for e in ends):
            raise Leaking(f"clones said {ends} instead of {said!r}")

    def deep(self, k):
        kind = "python" if k % (2 * DEEP_EVERY) == 0 else "shell"
        frozen, again = f"{self.tag}-{kind}", f"{self.tag}-{kind}-{k}"
        # Two at once that may not freeze themselves, and one that may.
        self.answers("-n", "2", "--arg", str(k), frozen, n=2, said=f"clone 1 {k}\nend 1\n")
        self.answers("--arg", str(k), "--freeze-as", again, frozen, n=1, said=f"clone 1 {k}\nend 1\n")
        self.answers(again, n=1, said="end 2\n")
        self.call("frozen", "rm", again)
        return 4

    def remove(self):
        for kind in KINDS:
            self.call("frozen", "rm", f"{self.tag}-{kind}")


# Read lines until their input ends, as it does at once in a clone.
RESIDENTS = {
    "shell": (
        "busybox",
        [
            "sh",
            "-c",
            'while read -r l; do echo "$l"; done; read -r g </sys/doppel/generation; read -r a </sys/doppel/args; echo '
            '"clone $g $a"',
        ],
    ),
    "python": (
        "debian",
        [
            "python3",
            "-uc",
            "import sys, json, random\nfor l in sys.stdin: print(l, end='')\nr = lambda n: open('/sys/doppel/' + "
            "n).read().strip()\nprint('clone', r('generation'), r('args'))",
        ],
    ),
}


class Resident:
    """A domain that lives through all cycles and is frozen again and again."""

    def __init__(self, soak, kind, k):
        self.name = f"{soak.tag}-{kind}{k}"
        image, command = RESIDENTS[kind]
        self.process = subprocess.Popen(
            [soak.doppel, "run", "--rm", "-i", "--name", self.name, image, "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ask("hello")

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != line + "\n":
            raise Leaking(f"{self.name} does not answer")

    def state(self):
        status = open(f"/proc/{self.process.pid}/status").read().splitlines()
        return {
            "residents: descriptors": len(os.listdir(f"/proc/{self.process.pid}/fd")),
            "residents: KiB": next(int(x.split()[1]) for x in status if x.startswith("RssAnon")),
        }

    def end(self):
        self.process.stdin.close()
        self.process.wait(30)


def below(path):
    return [pathlib.Path(d) / f for d, _, names in os.walk(path) for f in names]


def dead_sockets(run):
    """Socket files nobody listens on."""
    alive = {line.split()[-1] for line in open("/proc/net/unix")}
    return [f for f in below(run / "holders") if f.suffix == ".sock" and str(f) not in alive]


def dead_identities(run):
    """Processes that are gone and still noted, and their ids and names."""
    found = []
    for f in below(run / "holders"):
        try:
            with open(f) as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.append(f)
        except OSError:
            pass
    dead = {f.name for f in found}
    for f in below(run / "ids") + below(run / "names"):
        try:
            found += [f] if os.readlink(f) in dead or not (run / "holders" / os.readlink(f)).exists() else []
        except OSError:
            pass
    return found


def dead_groups():
    """Control groups of domains without a process."""
    found = []
    for g in domain_cgroups():
        try:
            found += [] if open(f"{g}/cgroup.procs").read() else [g]
        except OSError:
            pass
    return found


def state(doppel, tag):
    """What could leak, counted so that other domains of this host do not count."""
    mine, memfds = 0, set()
    doppel = os.path.realpath(doppel)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            exe = os.readlink(f"/proc/{pid}/exe")
            # A guest kernel is a file of the store or a memory file; other programs of ours may be built or tested.
            if exe != doppel and not re.search(r"/guest-kernel-\w+$|memfd:doppel-kernel", exe):
                continue
            # A domain's process is below this doppel, or below one that is gone and so is our affair.
            up, above = pid, exe
            while up not in ("0", "1") and not os.path.basename(above).startswith("doppel"):
                up = open(f"/proc/{up}/stat").read().rsplit(") ", 1)[1].split()[1]
                above = os.readlink(f"/proc/{up}/exe") if up not in ("0", "1") else ""
            mine += above in ("", doppel)
            for fd in os.scandir(f"/proc/{pid}/fd") if exe == doppel else ():
                if "memfd:doppel" in os.readlink(fd.path):
                    memfds.add(os.stat(fd.path).st_ino)
        except OSError:
            pass
    store, run, shm = pathlib.Path(os.environ["DOPPEL_STORE"]), pathlib.Path("/run/doppel"), os.statvfs("/dev/shm")
    ours = lambda path: sum(tag in str(f) or f.name.startswith(".") for f in below(path))
    memory = {x.split(":")[0]: int(x.split()[1]) for x in open("/proc/meminfo")}
    return {
        "processes": mine,
        "memory files": len(memfds),
        "control groups without a process": len(dead_groups()),
        "sockets nobody listens on": len(dead_sockets(run)),
        "identities nobody holds": len(dead_identities(run)),
        "files of the store": ours(store / "frozen") + ours(store / "tmp"),
        "files in /dev/shm": ours("/dev/shm"),
        "/dev/shm KiB": shm.f_frsize * (shm.f_blocks - shm.f_bfree) >> 10,
        "files in /tmp": len([f for f in os.listdir(tempfile.gettempdir()) if "doppel" in f]),
        "MemAvailable KiB": memory["MemAvailable"],
        "MemAvailable + AnonPages KiB": memory["MemAvailable"] + memory["AnonPages"],
        "Shmem KiB": memory["Shmem"],
        "SUnreclaim KiB": memory["SUnreclaim"],
    }


def leaks(before, after):
    found = []
    for k in before:
        if k == "MemAvailable KiB":
            continue  # also what programs of others allocate
        grown = before[k] - after[k] if k.startswith("Mem") else after[k] - before[k]
        if grown > ((SLACK_BYTES >> 10) if k.endswith("KiB") else 0):
            found.append(f"{k}: {before[k]} to {after[k]}")
    return found


def settled(take, before=None):
    """The state once what has ended is gone."""
    now = take()
    for _ in range(300):
        if before is not None and not leaks(before, now):
            break
        time.sleep(0.2)
        now = take()
        if before is None:
            break
    return now


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("doppel", nargs="?", default=str(HERE.parent / "target/release/doppel"))
    ap.add_argument("--cycles", type=int, default=10_000)
    ap.add_argument("--seconds", type=float, default=1e9, help="stop earlier, and say how many there were")
    ap.add_argument("--at-once", type=int, default=2)
    ap.add_argument("--json", help="write the figures to this file too")
    opt = ap.parse_args()
    soak, bad = Soak(opt.doppel), []
    soak.prepare()
    residents = [Resident(soak, kind, k) for kind in RESIDENTS for k in range(opt.at_once)]
    for r in residents:
        soak.residents["python" if "python" in r.name else "shell"].put(r)

    def take():
        mine = [r.state() for r in residents]
        return {**state(soak.doppel, soak.tag), **{k: sum(m[k] for m in mine) for k in mine[0]}}

    for k in range(WARM_UP):
        soak.cycle(k)
    time.sleep(1)
    before = settled(take)
    began = time.monotonic()
    soak.done = soak.clones = 0
    with concurrent.futures.ThreadPoolExecutor(opt.at_once) as pool:
        flying, k = set(), WARM_UP
        while k < WARM_UP + opt.cycles and time.monotonic() - began < opt.seconds and not bad:
            flying.add(pool.submit(soak.cycle, k))
            k += 1
            if len(flying) > 2 * opt.at_once:
                ready, flying = concurrent.futures.wait(flying, return_when=concurrent.futures.FIRST_COMPLETED)
                bad += [str(f.exception()) for f in ready if f.exception()]
            if k % 500 == 0:
                print(f"  {soak.done} cycles in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        bad += [str(f.exception()) for f in flying if f.exception()]
    took = time.monotonic() - began
    after = settled(take, before)
    for r in residents:
        r.end()
    soak.remove()
    bad += leaks(before, after)
    print(f"{soak.done} cycles ({soak.clones} clones) in {took:.0f} s, {opt.at_once} at once\n")
    print("| | before | after |\n|---|---:|---:|")
    for key in before:
        print(f"| {key} | {before[key]} | {after[key]} |")
    print("\nfreezer soak: " + ("; ".join(bad) if bad else "ok"))
    if opt.json:
        pathlib.Path(opt.json).write_text(
            json.dumps(
                {
                    "cycles": soak.done,
                    "clones": soak.clones,
                    "seconds": took,
                    "before": before,
                    "after": after,
                    "bad": bad,
                },
                indent=1,
            )
        )
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
