#!/usr/bin/env python3
"""Compares Doppel with the host itself, runc and gVisor's runsc: `make bench`.

    bench/run.py [DOPPEL] [--repeats N] [--starts N] [--only TEXT] [--skip RUNTIME]...

Workloads are those of src/micro.c (which times itself), the start of a whole command, and the memory
of an idle domain. Repeats of the runtimes are interleaved, so that a slow minute of the machine hits
all of them; the table shows medians, spreads (half the distance between the quartiles) and the ratio
to native. Results go to bench/results/ as JSON and Markdown. Runtimes that are absent are left out.
"""
import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
WORK = HERE / "work"
RESULTS = HERE / "results"
ROOTFS = WORK / "rootfs"
IMAGE = "bench"


def median(values):
    return statistics.median(values) if values else None


def spread(values):
    if len(values) < 4:
        return (max(values) - min(values)) / 2 if values else None
    q = statistics.quantiles(values, n=4)
    return (q[2] - q[0]) / 2


class Native:
    name = "native"

    def argv(self, *command):
        return [str(ROOTFS / command[0].lstrip("/")), *command[1:]]

    def clean(self):
        pass


class Doppel(Native):
    name = "doppel"

    def __init__(self, path):
        self.path = path

    def argv(self, *command):
        return [self.path, "run", "--rm", IMAGE, "--", *command]


class Oci(Native):
    """runc or runsc, on a minimal bundle."""

    def __init__(self, name, *options):
        self.name, self.options, self.count = name, options, 0
        self.bundle = WORK / name
        self.bundle.mkdir(parents=True, exist_ok=True)
        subprocess.run(["runc", "spec"], cwd=self.bundle, capture_output=True)
        self.config = json.loads((self.bundle / "config.json").read_text())
        self.config["process"]["terminal"] = False
        self.config["root"] = {"path": str(ROOTFS), "readonly": False}
        self.id = None

    def argv(self, *command):
        self.config["process"]["args"] = list(command)
        (self.bundle / "config.json").write_text(json.dumps(self.config))
        self.count += 1
        self.id = f"bench-{os.getpid()}-{self.count}"
        return [self.name, *self.options, "run", "--bundle", str(self.bundle), self.id]

    def clean(self):
        subprocess.run([self.name, *self.options, "kill", self.id, "KILL"], capture_output=True)
        time.sleep(0.2)
        subprocess.run([self.name, *self.options, "delete", "--force", self.id], capture_output=True)


def prepare(doppel):
    """Builds the programs and the root file system; value: the runtimes present."""
    for d in ("bin", "tmp", "proc", "sys", "dev", "etc"):
        (ROOTFS / d).mkdir(parents=True, exist_ok=True)
    (ROOTFS / "tmp").chmod(0o1777)
    subprocess.run(["gcc", "-O2", "-static", "-pthread", "-Wall", "-o", ROOTFS / "micro", HERE / "src/micro.c"], check=True)
    shutil.copy("/bin/busybox", ROOTFS / "bin/busybox")
    runtimes = [Native()]
    if doppel and os.path.exists(doppel):
        subprocess.run([doppel, "image", "rm", IMAGE], capture_output=True)
        subprocess.run([doppel, "image", "import", ROOTFS, IMAGE], check=True, stdout=subprocess.DEVNULL)
        runtimes.append(Doppel(doppel))
    if shutil.which("runc"):
        runtimes.append(Oci("runc"))
        if shutil.which("runsc"):
            runtimes.append(Oci("runsc", "--platform=systrap", "--network=none", "--ignore-cgroups"))
    return runtimes


def run(runtime, *command, timeout=300):
    p = subprocess.run(runtime.argv(*command), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    return p.returncode, p.stdout, p.stderr


def micro(runtimes, repeats, only, notes):
    """{workload: {runtime: [ns, ...]}}"""
    out = {}
    for k in range(repeats):
        for r in runtimes:
            try:
                code, text, err = run(r, "/micro", "-n", "5", *only)
            except subprocess.TimeoutExpired:
                notes.append(f"{r.name}: micro did not end")
                continue
            if code:
                notes.append(f"{r.name}: micro ended with {code}: {err.strip()[-200:]}")
            for line in text.splitlines():
                name, _, value = line.rpartition(": ")
                try:
                    out.setdefault(name, {}).setdefault(r.name, []).append(float(value))
                except ValueError:
                    notes.append(f"{r.name}: {line}")
        print(f"  repeat {k + 1} of {repeats} done", file=sys.stderr, flush=True)
    return out


def starts(runtimes, count, notes):
    """Wall time in ms of a whole `busybox true`."""
    out = {r.name: [] for r in runtimes}
    for k in range(count + 1):
        for r in runtimes:
            argv = r.argv("/bin/busybox", "true")
            t = time.perf_counter()
            p = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            t = (time.perf_counter() - t) * 1000
            if p.returncode:
                notes.append(f"{r.name}: true ended with {p.returncode}: {p.stderr.strip()[-200:]}")
            elif k:  # the first warms the caches
                out[r.name].append(t)
    return out


def tree(pid):
    """All descendants of a process."""
    children = {}
    for p in os.listdir("/proc"):
        if p.isdigit():
            try:
                children.setdefault(int(open(f"/proc/{p}/stat").read().rsplit(") ", 1)[1].split()[1]), []).append(int(p))
            except OSError:
                pass
    found, todo = [], [pid]
    while todo:
        more = children.get(todo.pop(), [])
        found += more
        todo += more
    return found


def memory_of(pids):
    """PSS, the part of it that is no file's page, and page tables (KiB) of processes."""
    pss = own = tables = 0
    for p in pids:
        try:
            rollup = [x.split() for x in open(f"/proc/{p}/smaps_rollup")]
            pss += sum(int(x[1]) for x in rollup if x[0] == "Pss:")
            own += sum(int(x[1]) for x in rollup if x[0] in ("Pss_Anon:", "Pss_Shmem:"))
            tables += sum(int(x.split()[1]) for x in open(f"/proc/{p}/status") if x.startswith("VmPTE:"))
        except OSError:
            pass
    return pss, own, tables


def cgroup_bytes(pid):
    """Memory charged to the control group of a process, or None when it has none of its own."""
    own = open("/proc/self/cgroup").readlines()
    for line in open(f"/proc/{pid}/cgroup"):
        number, controllers, path = line.strip().split(":", 2)
        if path == "/" or line in own:
            continue
        if "memory" in controllers.split(","):
            return int(open(f"/sys/fs/cgroup/memory{path}/memory.usage_in_bytes").read())
        if number == "0" and os.path.exists(f"/sys/fs/cgroup{path}/memory.current"):
            return int(open(f"/sys/fs/cgroup{path}/memory.current").read())
    return None


def idle(runtimes, notes):
    """Memory of a domain whose only process sleeps, 1 s after its start."""
    out = {}
    for r in runtimes:
        p = subprocess.Popen(r.argv("/bin/busybox", "sleep", "1000"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(1.5)
        if p.poll() is not None:
            notes.append(f"{r.name}: sleep ended with {p.returncode}: {p.stderr.read().decode()[-200:]}")
            continue
        if r.name == "native":
            inside, launcher = [p.pid], []
        else:
            # runsc's sandbox is not below its launcher in every version: take those of its name too.
            inside, launcher = tree(p.pid), [p.pid]
            if r.name == "runsc":
                for q in os.listdir("/proc"):
                    if q.isdigit() and int(q) not in inside + launcher:
                        try:
                            if r.id in open(f"/proc/{q}/cmdline").read():
                                inside += [int(q), *tree(int(q))]
                        except OSError:
                            pass
        inside = sorted(set(inside))
        pss, own, tables = memory_of(inside)
        lp, _, lt = memory_of(launcher)
        out[r.name] = {"processes": len(inside), "pss_kib": pss, "own_kib": own, "page_tables_kib": tables, "launcher_kib": lp + lt,
                       "cgroup_kib": (cgroup_bytes(inside[-1]) or 0) // 1024 if inside else 0}
        p.terminate()
        time.sleep(0.1)
        r.clean()
        p.kill()
        p.wait()
    return out


def human(ns):
    return f"{ns:.1f} ns" if ns < 1000 else f"{ns / 1000:.2f} µs" if ns < 1e6 else f"{ns / 1e6:.2f} ms"


def table(data, names):
    lines = ["| operation | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]

    def row(title, per, show):
        base = median(per.get("native", []))
        cells = []
        for n in names:
            v = per.get(n)
            if not v:
                cells.append("–")
                continue
            ratio = f" ({median(v) / base:.2f}×)" if n != "native" and base else ""
            cells.append(f"{show(median(v))} ±{100 * spread(v) / median(v):.0f} %{ratio}")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")

    for title, per in data["micro"].items():
        row(title, per, human)
    if data["start_ms"]:
        row("cold start of `busybox true`", data["start_ms"], lambda v: f"{v:.2f} ms")
    if data["idle"]:
        for key, title in (("pss_kib", "idle: PSS of its processes"), ("own_kib", "idle: of this, no file's pages"), ("page_tables_kib", "idle: their page tables"),
                           ("cgroup_kib", "idle: charged to its cgroup"), ("launcher_kib", "idle: launcher (PSS + page tables)")):
            lines.append(f"| {title} | " + " | ".join(f"{data['idle'][n][key]} KiB" if n in data["idle"] else "–" for n in names) + " |")
    return "\n".join(lines)


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("doppel", nargs="?", default=str(HERE.parent / "target/release/doppel"))
    ap.add_argument("--repeats", type=int, default=5)
    ap.add_argument("--starts", type=int, default=20)
    ap.add_argument("--only", action="append", default=[], help="a workload's name; may be repeated")
    ap.add_argument("--skip", action="append", default=[], help="a runtime to leave out; may be repeated")
    opt = ap.parse_args()
    runtimes = [r for r in prepare(opt.doppel) if r.name not in opt.skip]
    names, notes = [r.name for r in runtimes], []
    data = {"date": time.strftime("%Y-%m-%d %H:%M"), "host": f"{platform.release()}, {os.cpu_count()} CPUs",
            "load": os.getloadavg()[0], "micro": micro(runtimes, opt.repeats, opt.only, notes),
            "start_ms": {} if opt.only else starts(runtimes, opt.starts, notes), "idle": {} if opt.only else idle(runtimes, notes)}
    data["notes"] = sorted(set(notes))
    text = (f"Medians of {opt.repeats} interleaved runs (starts: {opt.starts}), Linux {data['host']}, {data['date']}; "
            f"load {data['load']:.1f} before.\n\n" + table(data, names) + "\n" + "".join(f"\n- {n}" for n in data["notes"]))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "latest.json").write_text(json.dumps(data, indent=1))
    (RESULTS / "latest.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
