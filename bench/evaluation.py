#!/usr/bin/env python3
"""Writes docs/EVALUATION.md, bench/results/summary.md and their plots: the papers' tables and figures, with what was measured beside the papers' own
figures.

    bench/evaluation.py RESULTS.json[:WORKLOAD,...]... [--machine RESULTS.json]...

Of a file all workloads are taken, or those that are named; of a row that is in several files the last one's. What has not
been measured is said to be missing. Of runs on several machines the means of areas and the targets are compared.
"""
import argparse
import json
import pathlib
import re
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from harness import report, summary, svg  # noqa: E402

# Beside native Linux, ours and the others: names of runtimes and how they are shown.
KINDS = {"doppel": "para", "paene": "paene", "runc": "runc", "runsc": "gVisor", "bwrap": "bubblewrap"}

# Xen, Tables 3-5: (row, Linux UP in µs, Xen in µs).
PROCESSES = [
    ("getppid", 0.45, 0.46), ("write 1 B", 0.50, 0.50), ("stat", 1.28, 1.22), ("open+close", 1.92, 1.88), ("lmbench: select, 100 TCP sockets", 5.70, 5.69),
    ("lmbench: signal install", 0.68, 0.69), ("signal to self", 2.49, 1.75), ("fork+exit+wait", 110, 198), ("fork+exec+wait", 530, 768), ("lmbench: fork+exec sh -c", 4000, 4800),
]
SWITCHES = [
    ("lmbench: context switch, 2 processes", 0.77, 1.97), ("lmbench: context switch, 2 with 16 KB", 0.91, 2.22), ("lmbench: context switch, 2 with 64 KB", 1.06, 2.67),
    ("lmbench: context switch, 8 with 16 KB", 1.03, 3.07), ("lmbench: context switch, 8 with 64 KB", 24.3, 28.7), ("lmbench: context switch, 16 with 16 KB", 3.61, 7.08),
    ("lmbench: context switch, 16 with 64 KB", 37.6, 39.4),
]
FILES = [
    ("lmbench: file create, empty", 32.1, 32.5), ("lmbench: file delete, empty", 6.08, 5.86), ("lmbench: file create, 10 KB", 66.0, 68.2), ("lmbench: file delete, 10 KB", 12.5, 13.6),
    ("lmbench: mmap 8 MB of a file, touched", 68.0, 139), ("lmbench: protection fault", 1.06, 1.40), ("page fault", 1.42, 2.73),
]
# The para/paene study, Table 2: (row, Linux, PLK (paene), XenLinux in MB/s).
BANDWIDTHS = [
    ("bandwidth: memory copy", 597.70, 583.08, 729.12), ("bandwidth: memory write", 834.60, 795.22, 1038.00), ("bandwidth: memory read", 2237.14, 1910.02, 1933.02),
    ("bandwidth: pipe", 1993.80, 1906.32, 2294.30), ("bandwidth: AF_UNIX", 2838.82, 2768.52, 2668.70), ("bandwidth: file reread", 1739.16, 1656.12, 1809.22),
    ("bandwidth: mmap reread", 2241.82, 1922.36, 1942.62),
]
WINDOWS = ["bandwidth: TCP, window 4 KB", "bandwidth: TCP, window 16 KB", "bandwidth: TCP, window 64 KB", "bandwidth: TCP, window 256 KB", "bandwidth: TCP"]
# Xen, Fig. 3: (what, row, Xen relative to Linux, better is more).
PROGRAMS = [
    ("computing (SPEC INT2000)", "Python, fannkuch 8", 1.00), ("building (Linux 2.4.21)", "compile 50 C files, make -j2", 0.97), ("database, read (OSDB-IR)", "PostgreSQL, read-only", 0.92),
    ("database, transactions (OSDB-OLTP)", "PostgreSQL, TPC-B", 0.95), ("files (dbench)", "files: dbench, 1 client", 0.96), ("web (SPEC WEB99)", "nginx, 1 KB", 0.99), ("network files (no figure)", "files: tbench, 1 client over TCP", ""),
]
# Xen, Table 6: MTU and direction, Xen relative to Linux; and the para/paene study's Table 3, for 128 KB windows at 1500.
MTUS = [("1500: TX", 897 / 897, "0.97"), ("1500: RX", 897 / 897, "0.94"), ("500: TX", 516 / 602, ""), ("500: RX", 467 / 544, "")]
# Xen, Fig. 4 (SPEC WEB99) and Fig. 5 (OSDB-IR): all together, Xen relative to Linux, and to one instance of Xen.
WEBS = {1: "0.84", 2: "0.92", 4: "1.01", 8: "1.08", 16: "0.99"}
BASES = {1: "1", 2: "318 / 158 = 2.01", 4: "289 / 158 = 1.83", 8: "282 / 158 = 1.78"}
APACHE = [1, 4, 16, 64, 256, 1024]
# Where ours are slower than native by a tenth and more: why, as far as it is known.
NOTEWORTHY = 0.9
REASONS = {
    "doppel": [
        (r"^published|^TCP, MTU|^packing: .*request", "Client, service domain and domain share the two CPUs, and a byte is copied once more; a connection from outside is two, one of the service's and one of the domain's (docs/services.md)."),
        (r"fork|exec|spawn|CMake|compile|ssh connections", "A process of a domain is one of the host: fork is the host's of all its mappings, and a second process has to be set up beside it (docs/architecture.md)."),
        (r"^sysbench mutex", "The run lasts 20 to 40 ms: whether the host's scheduler spreads its eight threads over both CPUs meanwhile (some 460 a second) or not (some 230) is chance, in all runtimes and natively."),
        (r"context switch|round trip|PostgreSQL|databases|OLTP|tbench", "A process that waits for another spins for up to 60 µs, if its last waits were short; if the other wakes in time, both stay awake, and a round trip takes 1.2 to 1.7 µs. If not, both sleep and are woken through the host, 20 µs each, until several short waits let them spin again (guest/algo `park::Window`). Nobody spins while more processes are awake than there are CPUs: there each answer is a wake-up and a sleep by futex, which does not tell the host's scheduler, as its own pipes and sockets do, that the waker is about to sleep. Which of these makes a database slower is a guess."),
        (r"^cold start", "A start makes a sandbox, its processes and its kernel's memory; native is one exec."),
        (r"protection fault", "A fault is a signal of the host first, and the guest kernel's handler makes the domain's of it: two frames, and two returns."),
    ],
    "paene": [
        (r"^published|^TCP, MTU|^packing: .*request", "Packets pass a helper process that ends their connections with a TCP/IP of its own, and then the network service (docs/paene.md)."),
        (r"^cold start", "A start makes namespaces, control groups and mounts; native is one exec."),
        (r"^hosting: (4|8|16) web", "Each instance is a control group, while natively all are in one: the host's scheduler balances groups between CPUs less well than tasks. Measured natively with a group for each, as times what one group for all does: 4 web servers 0.82, 8 0.64, 16 0.68. runc's containers lose likewise."),
        (r"context switch|round trip|bandwidth: pipe", "Whether the two ends are on one CPU or on two is chance, as the spreads say: waking another CPU costs 15 µs."),
        (r"^(getppid|read 1 B|write 1 B|pipe write|lmbench: signal install|stress-ng (futex|signal)|sysbench threads)", "Each of the host's calls passes the seccomp filter (Docker's list), which runc's and bubblewrap's instances have none of here: 41 ns in `getppid`, on the machine of most rows. Of stress-ng and sysbench, which make many calls, it is a guess."),
        (r"^(?!lmbench|bandwidth).*(open|stat|files:|git|rsync|SQLite|pread|pwrite|PostgreSQL)", "Its root is an overlay over the image, where runc has a plain directory here. Measured apart: natively on an overlay, open+close took 1.9 and pread of 4 KB 1.4 times as long as without; in the domain's own /dev/shm both took as long as natively."),
    ],
}
WRITES = [("64 B", 64), ("512 B", 512), ("4 KB", 4096), ("16 KB", 16384), ("64 KB", 65536), ("256 KB", 262144)]
CROWDS = [("lmbench: fork, exit, wait: 1 process", "52"), ("lmbench: fork, exit, wait: 8 at once, each", ""), ("lmbench: fork, exit, wait: 32 at once, each", "about 8")]


class Results:
    def __init__(self, paths):
        self.rows, self.units, self.targets, self.workloads = {}, {}, {}, {}
        self.about, self.notes, self.machines = [], [], []
        for path in paths:
            path, _, only = path.partition(":")
            data = json.loads(pathlib.Path(path).read_text())
            workload = data.get("workloads", {})
            taken = set(only.split(",") if only else workload.values())
            self.rows.update({row: per for row, per in data["rows"].items() if not only or workload[row] in taken})
            self.units.update(data["units"])
            self.targets.update(data["targets"])
            self.workloads.update(workload)
            # "FAILED: WORKLOAD: …"; what an earlier run says of the same workload is past.
            self.notes = [n for n in self.notes if n.split(": ")[1] not in taken] + [n for n in data["notes"] if not only or n.split(": ")[1] in taken]
            machine = data.get("machine", "").split(";")[0]
            self.machines.append(machine)
            about = [machine, f"load {data['load']:.1f} before", f"Linux {data['host']}", "short runs" if data["quick"] else "", only.replace(",", ", ")]
            self.about.append(f"{data['date']} ({'; '.join(x for x in about if x)})")
        self.kinds = [k for k in KINDS if any(k in per for per in self.rows.values())]

    def median(self, row, kind):
        values = self.rows.get(row, {}).get(kind)
        return statistics.median(values) if values else None

    def shown(self, row, kind):
        return report.cell(self.rows[row], kind, self.units[row]) if self.median(row, kind) is not None else "not yet"

    def ratio(self, row, kind, better_is_more=False):
        """How often native's time, or what part of native's rate."""
        r = report.ratio(self.rows.get(row, {}), kind)
        if r is None:
            return "not yet"
        if better_is_more and not report.UNITS[self.units[row]][1]:
            r = 1 / r
        return f"{r:.2f}"

    def table(self, head, rows, paper, better_is_more=False):
        """A row each: native's figure, ratios of the kinds, and the paper's ratios."""
        lines = ["| " + " | ".join([head, "native", *(KINDS[k] for k in self.kinds), *paper]) + " |", "|---|" + "---:|" * (1 + len(self.kinds) + len(paper))]
        for title, row, *figures in rows:
            ratios = [self.ratio(row, k, better_is_more) for k in self.kinds]
            lines.append("| " + " | ".join([title, self.shown(row, "native"), *ratios, *(f if isinstance(f, str) else f"{f:.2f}" for f in figures)]) + " |")
        return "\n".join(lines) + "\n"


def short(row):
    return row.removeprefix("lmbench: ").removeprefix("bandwidth: ")


def plot(results, name, title, x_label, y_label, points):
    """`points`: [(x, row)]; a line for each kind that has them all."""
    lines = {}
    for kind in ["native", *results.kinds]:
        line = [(x, results.median(row, kind)) for x, row in points]
        if all(y is not None for _, y in line):
            lines[KINDS.get(kind, kind)] = line
    if not points or not lines:
        return ""
    svg.plot(HERE / "results" / f"{name}.svg", title, x_label, y_label, lines)
    return f"\n![](../bench/results/{name}.svg)\n"


def machines(runs):
    """The summary's areas and targets, by machine."""
    areas = [summary.by_area(one.rows, one.units, one.workloads) for one in runs]
    kinds = [k for k in ("doppel", "paene", "runsc") if k in runs[0].kinds]
    lines = ["| area | " + " | ".join(f"{KINDS[k]}, {'abcdefgh'[i]}" for k in kinds for i in range(len(runs))) + " |", "|---|" + "---:|" * (len(kinds) * len(runs))]
    for area in areas[0]:
        means = [summary.mean(one.get(area, {}).get(k)) for k in kinds for one in areas]
        lines.append(f"| {area} | " + " | ".join("–" if m is None else f"{m:.2f}" for m in means) + " |")
    named = []
    for letter, one in zip("abcdefgh", runs):
        targets = []
        for kind in summary.OURS:
            met, missed = summary.verdicts(one.rows, one.units, one.targets, kind)
            targets.append(f"{KINDS[kind]} meets {len(met)} targets and misses {len(missed)}" + "".join(f"; {m}" for m in missed))
        natively = f"getppid natively {one.shown('getppid', 'native')}, `stat` {one.shown('stat', 'native')}"
        named.append(f"- {letter}: {natively}; {one.about[0]}. " + ". ".join(targets) + ".")
    return "\n".join([*named, "", *lines]) + "\n"


def text(r, runs):
    latencies = lambda rows: [(short(row), row, xen / linux) for row, linux, xen in rows]  # noqa: E731
    webs = [n for n in (1, 2, 4, 8, 16) if f"hosting: {n} web servers, all requests" in r.rows]
    bases = [n for n in (1, 2, 4, 8, 16) if f"hosting: {n} databases, all transactions" in r.rows]
    computes = [n for n in (1, 2, 4, 8, 16, 32, 64, 128) if f"compute: {n} at once" in r.rows]
    neighbours = [row for row in r.rows if row.startswith(("victim", "an instance started"))]
    parts = [f"""# Evaluation

**[The summary on one page](../bench/results/summary.md)**: areas, targets met and missed, the worst ratios.

Written by `bench/evaluation.py` from what `make bench` measured: {"; ".join(r.about)}. What stands in for the papers'
programs is named; "not yet" is what has not been measured or built.

**Method.** Every workload runs in all runtimes in turn, and that several times: a slow minute of the machine hits all. Figures
are medians; a table's columns are ratios to native in the same run. The programs are the same files everywhere (an image,
unpacked for the runtimes that want a directory). The machine has two CPUs, which are a virtual machine's: waking another CPU
costs about 15 µs, and the host's own calls are slower than bare metal's, which flatters ratios of what makes no host call.
*para* is a domain with the guest kernel, *paene* one over the host's kernel. **The papers' figures are of their machines, of
2003 to 2013, relative to Linux there: only the shape compares.**

## Processes, context switches, files, virtual memory (Xen Tables 3-5, the para/paene study's Table 1)

Times, as multiples of native's.
"""]
    parts.append(r.table("processes", latencies(PROCESSES), ["Xen 2003"]))
    parts.append("""Calls are served in the domain, by a patched jump; fork copies page tables by the host's fork and pays for a second process'
set-up (docs/architecture.md).
""")
    parts.append(r.table("context switch", latencies(SWITCHES), ["Xen 2003"]))
    parts.append("""As in lmbench the pipe's own cost is taken off. Processes of a domain are processes of the host: with a CPU for each, the waiting one
sees the byte before it sleeps, and there is no switch. With more of them than CPUs, each hop wakes a process by a futex, where
Linux's pipe hands over on the same CPU. Until 2026-11-24 wake-ups were made under the queue's lock, and the woken one, which then runs at
once in its waker's place, waited for it. Measured apart, quiet, medians of five (a byte to and fro over AF_UNIX; round trips a second natively,
before, now): a pair on one CPU 110,000, 22,000, 167,000; on two CPUs, two pairs 208,000, 41,000, 298,000, four 181,000, 90,000, 205,000,
eight 167,000, 122,000, 184,000; but one pair, which spins, 22,000, 1,037,000 and now 593,000 (370,000 to 1,050,000; why it varies more is not known).
""")
    parts.append(r.table("files, virtual memory", latencies(FILES), ["Xen 2003"]))
    parts.append("Files are on the file system of shared memory (`/dev/shm`) everywhere.\n\n## Bandwidths (the para/paene study's Table 2)\n\nRates, as parts of native's.\n")
    parts.append(r.table("bandwidth", [(short(row), row, plk / linux, xen / linux) for row, linux, plk, xen in BANDWIDTHS], ["PLK (paene) 2005", "XenLinux 2005"]))
    parts.append("""## TCP by window (Xen Table 6, the para/paene study's Table 3)

Over loopback (MTU 65536), both ends in the instance, sockets' buffers of this size.
""")
    parts.append(r.table("loopback TCP", [(short(row), row) for row in WINDOWS], []))
    parts.append("""By MTU: the server in the instance and the client each in a network namespace of the host, between them a pair of virtual cards that
pass on packets of at most the MTU one by one (no segmentation offload, as the papers' cards had none). TX is from the instance. Doppel publishes the
server's port there; the others have that namespace as their host's network.

""")
    parts.append(r.table("TCP, 64 KB writes, MTU", [(name, f"TCP, MTU {name}", xen, study) for name, xen, study in MTUS], ["Xen 2003", "XenLinux 2005 (PLK 1.00)"]))
    parts.append("""The packets are the host's work whoever asked for them, on two CPUs that client, server and service domain share: para's data goes through
one more process than native's, and through one more copy.

""")
    parts.append("Through the network service domain, from the host into a domain (native: the host's loopback; gVisor and runc with the host's network):\n")
    published = [row for row in r.rows if row.startswith("published")]
    parts.append(r.table("published", [(re.sub("^published(: |, )", "", row), row) for row in published], []))
    parts.append("## Programs relative to native (Xen Fig. 3)\n\nRates, or 1 / times: more is better.\n")
    parts.append(r.table("workload", [(f"{what}: {row}", row, xen) for what, row, xen in PROGRAMS], ["Xen 2003"], better_is_more=True))
    parts.append("""dbench and tbench are Debian's, with the load file they come with; its files are on a file system in memory here, and were on a disk there.

## Databases and web servers by load (VirtuOS Figs. 7-8, 11-12)

sysbench's OLTP over TCP loopback, all data in memory, MariaDB for MySQL; VirtuOS: 1.00 to 1.16 of native's rate, its clients on other machines.

""")
    parts.append(r.table("OLTP, transactions", [(row.removeprefix("OLTP: "), row) for row in sorted((x for x in r.rows if x.startswith("OLTP")), key=threads)], []))
    parts.append("Apache 2 of single-threaded processes under `ab`, eight connections that are kept; VirtuOS: 0.8 to 1.0 below 16 KB, 1.0 from there on, where its network was full.\n")
    parts.append(r.table("objects of", [(f"{k} KB", f"Apache, {k} KB") for k in APACHE], []))
    parts.append("""## Many at once (Xen Figs. 4-6)

SPEC WEB99 is nginx with its wrk in each instance, OSDB is PostgreSQL with pgbench, SPEC CINT is a loop.

""")
    parts.append(r.table("all rates together", [*((short(row), row, WEBS[n]) for n in webs for row in [f"hosting: {n} web servers, all requests"]), *((short(row), row, "") for n in bases for row in [f"hosting: {n} databases, all transactions"]), *((short(row), row, "") for n in computes for row in [f"compute: {n} at once"])], ["Xen 2003"]))
    parts.append(grown(r, bases))
    parts.append(plot(r, "hosting", "Web servers at the same time", "servers", "requests a second, all", [(n, f"hosting: {n} web servers, all requests") for n in webs]))
    parts.append(plot(r, "compute", "Instances that compute", "instances", "units a second, all", [(n, f"compute: {n} at once") for n in computes]))
    parts.append(plot(r, "hosting-databases", "Databases at the same time", "databases", "transactions a second, all", [(n, f"hosting: {n} databases, all transactions") for n in bases]))
    splits = [row for row in r.rows if "of the ideal split" in row]
    parts.append("\nHow near the shares are to the weights' (100 %: exactly; the one that is farthest off counts). Xen: within 4 % for OSDB-IR of weights 1 to 8.\n\n" + values(r, splits))
    parts.append("""## Antisocial neighbours (Xen 4.4, the para/paene study's 5)

A victim of two processes beside a neighbour of the same weight: what it gets of its share (half the machine) from two seconds after
the neighbour comes, how long a server of its own takes to answer, and how long another instance takes to start and end then. Xen and
VServer name no figures beyond "isolated" and, for Linux, that the machine had to be rebooted.

""" + values(r, neighbours) + """
More than 100 % is what a neighbour does not use. On Linux 6.18 tasks that sleep and wake all the time, as those of a fork bomb at its
limit do, starve others of the same weight, in plain control groups too; domains are held to their shares by the keeper's arbiter,
which also places those that compute so that weights are kept between CPUs (docs/supervisor.md); runc's containers are left to
the host's scheduler. The machine's own speed changes by up to 10 % for some seconds, whatever runs on it: shares are medians of
four windows of ten seconds beside each neighbour, each against those alone just before and after it; starts are medians of five.

""")
    parts.append("## System calls by buffer size, creation of processes (VirtuOS Figs. 3-5)\n\nWrites to a file, as parts of native's rate; VirtuOS: about 1.0 up to 32 KB, 0.8 beyond.\n")
    parts.append(r.table("writes by", [(n, f"bandwidth: file write by {n}") for n, _ in WRITES], []))
    parts.append("Processes that are made, end, and are waited for; times as multiples of native's:\n")
    parts.append(r.table("processes", [(short(row), row, paper) for row, paper in CROWDS], ["VirtuOS 2013"]))
    parts.append("""## Packing (the para/paene study's 4.1, Denali 4.3)

The study packed 1,024 VServers with Apache, and 80 Xen domains of 48 MB, into 4 GB; Denali served Zipf-distributed requests from
10,000 paged VMs, and without paging from about 1,000.

Memory of a further instance is what the host has less of, all counted: launchers, supervisor, kernel (free pages that
CPUs keep on lists of their own are not in `MemAvailable`; they are added). How many would fit is a calculation: what was available, over what one takes. Requests come from the host, a connection each, four at a time, to the servers by Zipf's law.

""" + values(r, [row for row in r.rows if row.startswith("packing")]) + """
Of instances alone, in parts, and of clones:

""" + values(r, [row for row in r.rows if row.startswith(("idle", "1000 servers", "1,000 clones", "supervisor and keeper"))]))
    parts.append("""`tests/supervisor/test_networked_domains.py` (`make soak`) has 1,000 domains, each a web server with an address and a published port of its
own, answer 20,000 requests distributed by Zipf's law.

A request to a domain goes through the network service (para) or its relay (paene), each with a connection of its own, where the others' servers
listen on the host: that is the difference of their latencies.

## Where para and paene are slower than native, and why

""" + losses(r) + (f"""
## How much depends on the machine

As times native's speed, the geometric means of the summary's areas. a and b are of code before 2026-11-24, whose guest kernel made
wake-ups through the host under its queues' locks (docs/architecture.md); what that costs was measured apart (Processes, above).

{machines(runs)}
The dearer the host's calls are, the more is won by not making them. Where other guests take much of the machine (`steal`: 5 % of b's busy time), whatever
wakes another CPU is slow and uncertain.
""" if runs else "") + """
## Not yet

Disk-bound databases and file servers, more domains than memory holds (Denali's paging), clients on other machines.
""")
    return "\n".join(parts)


def losses(r):
    """Rows in which ours are slower than native, by reason."""
    parts = []
    for kind, reasons in REASONS.items():
        found = {}
        for row, per in r.rows.items():
            speed = summary.speed(per, r.units[row], kind)
            if speed is not None and speed < NOTEWORTHY:
                why = next((text for pattern, text in reasons if re.search(pattern, row)), "Not known.")
                found.setdefault(why, []).append((speed, row))
        parts.append(f"**{KINDS[kind]}**: as times native's speed.\n" if found else f"**{KINDS[kind]}**: nowhere by more than a tenth.\n")
        for why, rows in sorted(found.items(), key=lambda f: f[0] == "Not known."):
            parts.append(f"- {why} " + "; ".join(f"{row} {speed:.2f}" for speed, row in sorted(rows)) + ".")
        parts.append("")
    return "\n".join(parts)


def threads(row):
    name, _, n = row.rpartition(": ")
    return name, int(n)


def grown(r, bases):
    """All databases together against one, as Xen's Fig. 5 has them."""
    if len(bases) < 2:
        return ""
    kinds = [k for k in ["native", *r.kinds] if r.median("hosting: 1 databases, all transactions", k)]
    of = lambda n, k: r.median(f"hosting: {n} databases, all transactions", k)  # noqa: E731
    lines = ["All databases together, as a multiple of one:\n", "| databases | " + " | ".join(KINDS.get(k, k) for k in kinds) + " | Xen 2003 (OSDB-IR) |", "|---|" + "---:|" * (len(kinds) + 1)]
    lines += [f"| {n} | " + " | ".join(f"{of(n, k) / of(1, k):.2f}" if of(n, k) else "not yet" for k in kinds) + f" | {BASES.get(n, '')} |" for n in bases]
    return "\n".join(lines) + "\n"


def values(r, rows):
    if not rows:
        return "not yet\n"
    kinds = [k for k in ["native", *KINDS, "doppel-api"] if any(k in r.rows[row] for row in rows)]
    lines = ["| | " + " | ".join(KINDS.get(k, k) for k in kinds) + " |", "|---|" + "---:|" * len(kinds)]
    lines += ["| " + " | ".join([row, *(r.shown(row, k) if k in r.rows[row] else "–" for k in kinds)]) + " |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("results", nargs="+")
    ap.add_argument("--machine", action="append", default=[], help="a whole run on a machine, to compare; may be repeated")
    opt = ap.parse_args()
    found = Results(opt.results)
    page = text(found, [Results([path]) for path in opt.machine])
    (HERE.parent / "docs/EVALUATION.md").write_text(re.sub("\n{3,}", "\n\n", page))
    about = ["Measured " + "; ".join(found.about) + ". All figures: [docs/EVALUATION.md](../../docs/EVALUATION.md)."]
    plot_of = HERE / "results/summary.svg"
    (HERE / "results/summary.md").write_text(summary.page(about, found.rows, found.units, found.targets, found.workloads, found.notes, plot_of))
