"""Many domains at once, each with an address, a published port and its own web server (busybox httpd): how long
it takes until all are made and have answered, requests spread over them by Zipf's law beside the same over 100 of them
(bench/src/zipf.c), CPU time while nobody asks, and what the host has less of memory, all counted. LIVE=10000 says how
many.

Eight clients make them, and ask; all of that runs on the same CPUs.
"""
import concurrent.futures
import http.client
import os
import pathlib
import subprocess
import tempfile
import time

from harness.runtimes import Cannot, Failed

from workloads.packing import available

UNIT = "ns"
REPEATS = 1
ALSO = ("doppel-api",)
CLIENTS = 8
FEW = 100
FIRST_PORT = 10_000
SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src/zipf.c"


def measure(runtime, opt):
    if runtime.name != "doppel-api":
        raise Cannot(f"{runtime.name}: has no supervisor")
    count = int(os.environ.get("LIVE", "200" if opt.quick else "2000"))
    supervisor = runtime.supervisor
    before = available()

    def made(numbers):
        own = supervisor.connection()
        for i in numbers:
            own.ask("POST", "/v1/domains?start=true", wanted(i))

    def all_lanes(job):
        begun = time.perf_counter_ns()
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            for future in [pool.submit(job, range(k, count, CLIENTS)) for k in range(CLIENTS)]:
                future.result()
        return time.perf_counter_ns() - begun

    rows = {f"{count} live: made": all_lanes(made), f"{count} live: all have answered": all_lanes(answered)}
    rows[f"{count} live: memory, each"] = ((before - available()) / count, "KiB")
    rows.update(asked(count))
    begun, used, own_used = time.monotonic(), busy(), busy_of(supervisor)
    time.sleep(10)
    whole, own = busy() - used, busy_of(supervisor) - own_used
    seconds = time.monotonic() - begun
    rows[f"{count} live: CPU time while nobody asks"] = (whole / seconds * 100, "%")
    rows[f"{count} live: of it domains, keepers, services and supervisor"] = (own / seconds * 100, "%")

    def removed(numbers):
        own = supervisor.connection()
        for i in numbers:
            own.ask("DELETE", f"/v1/domains/live{i}?force=true")

    rows[f"{count} live: removed"] = all_lanes(removed)
    return rows


def wanted(i):
    ports = [{"port": 80, "host_address": "127.0.0.1", "host_port": FIRST_PORT + i}]
    return {
        "image": "busybox",
        "name": f"live{i}",
        "command": ["httpd", "-f", "-p", "80", "-h", "/etc"],
        "network": {"kind": "nat", "ports": ports},
        "files": {"persist": False},
    }


def answered(numbers):
    for i in numbers:
        own = http.client.HTTPConnection("127.0.0.1", FIRST_PORT + i, timeout=60)
        own.request("GET", "/passwd")
        if own.getresponse().status != 200:
            raise Failed(f"server {i} does not answer")
        own.close()


def asked(count):
    """Rates and times, in turns: few, all, few, all."""
    rows = {}
    with tempfile.TemporaryDirectory() as place:
        client = f"{place}/zipf"
        subprocess.run(["gcc", "-O2", "-pthread", "-o", client, SOURCE, "-lm"], check=True)
        found = {FEW: [], count: []}
        for n in (FEW, count) * 2:
            argv = [client, str(n), str(FIRST_PORT), "8", str(CLIENTS), "1"]
            found[n].append([float(word) for word in subprocess.check_output(argv).split()])
    for n, runs in found.items():
        rate, bad, median, worst = (sum(column) / len(runs) for column in zip(*runs, strict=True))
        if bad:
            raise Failed(f"{bad} requests to {n} servers were not answered")
        rows[f"requests to {n} of {count} live"] = (rate, "/s")
        rows[f"requests to {n} of {count} live, median"] = median * 1e6
        rows[f"requests to {n} of {count} live, 99 %"] = worst * 1e6
    return rows


def busy():
    """Seconds of CPU time that anybody has used."""
    user, nice, system, _idle, _iowait, irq, softirq = map(int, open("/proc/stat").readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def busy_of(supervisor):
    """Seconds of CPU time that the supervisor, its keepers and services and all domains have used: those that live."""
    parents, used = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            pid = int(entry.name)
            parents[pid] = int(fields[1])
            used[pid] = int(fields[11]) + int(fields[12])
    ours = set(supervisor.processes()) | supervisor.births()
    total = 0
    for pid in used:
        above = pid
        while above > 1 and above not in ours:
            above = parents.get(above, 0)
        total += used[pid] if above > 1 else 0
    return total / os.sysconf("SC_CLK_TCK")
