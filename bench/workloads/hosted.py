"""Hibernated clones of one image: what supervisor and keepers keep in memory for each, and its bytes on disk; how long
it takes to list and find them, and to wake one for a program in it, at Zipf's frequencies.

Memory is the pages of these processes that no file has (PSS) and their page tables, beyond what they had without
domains. A wake is a request for `true` in a domain: for one that hibernates, and for the same one again, which does not
by then.
"""
import concurrent.futures
import os
import pathlib
import random
import time

from harness.memory import memory_of
from harness.runtimes import Cannot

UNIT = "ns"
REPEATS = 1
ALSO = ("doppel-api",)
CLIENTS = 4
WAKES = 200


def measure(runtime, opt):
    if runtime.name != "doppel-api":
        raise Cannot(f"{runtime.name}: has no supervisor")
    count = int(os.environ.get("HOSTED", "100" if opt.quick else "2000"))
    supervisor = runtime.supervisor
    connection = supervisor.connection()
    made = connection.ask(
        "POST", "/v1/domains?start=true", {"image": "busybox", "name": "origin", "command": ["sleep", "1000000"]}
    )
    connection.ask("POST", "/v1/domains/origin/freeze", {"frozen": "hosted"})
    connection.ask("DELETE", f"/v1/domains/{made['domain']['id']}?force=true")
    before = memory(supervisor)
    size = store(supervisor)

    def lane(numbers):
        own = supervisor.connection()
        for i in numbers:
            own.ask("POST", "/v1/frozen/hosted/clone", {"name": f"hosted{i}"})
            own.ask("POST", f"/v1/domains/hosted{i}/hibernate", {})

    begun = time.perf_counter_ns()
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        for future in [pool.submit(lane, range(k, count, CLIENTS)) for k in range(CLIENTS)]:
            future.result()
    took = time.perf_counter_ns() - begun
    # Keepers that hold nothing end after a minute.
    settle(supervisor)
    connection = supervisor.connection()  # the first has been idle for too long
    more = {name: after - before[name] for name, after in memory(supervisor).items()}
    rows = {
        f"{count} hosted: cloned and hibernated, each": took / count,
        f"{count} hosted: memory, each": (sum(more.values()) * 1024 / count, "B"),
        f"{count} hosted: of it in the supervisor": (more["supervisor"] * 1024 / count, "B"),
        f"{count} hosted: on disk, each": ((store(supervisor) - size) / count, "B"),
        f"{count} hosted: list all": timed(connection, "/v1/domains?all=true"),
        f"{count} hosted: list 100": timed(connection, "/v1/domains?all=true&limit=100"),
        f"{count} hosted: find one": timed(connection, f"/v1/domains?all=true&name=hosted{count - 1}&limit=10"),
        f"{count} hosted: info": timed(connection, "/v1/info"),
    }
    cold, warm = wakes(connection, count)
    rows.update({
        "a program in a hibernated domain, median": at(cold, 0.5),
        "a program in a hibernated domain, 99 %": at(cold, 0.99),
        "the same in one that runs, median": at(warm, 0.5),
        "the same in one that runs, 99 %": at(warm, 0.99),
    })
    return rows


def wakes(connection, count):
    """Times of the first program in a domain that hibernates, and of a second one."""
    weights = [1 / (n + 1) for n in range(count)]
    chosen = random.Random(1).choices(range(count), weights, k=WAKES)
    cold, warm = [], []
    for i in chosen:
        for times in (cold, warm):
            begun = time.perf_counter_ns()
            made = connection.ask("POST", f"/v1/domains/hosted{i}/exec", {"command": ["true"]})
            connection.ask("GET", f"/v1/execs/{made['id']}/output")
            times.append(time.perf_counter_ns() - begun)
        connection.ask("POST", f"/v1/domains/hosted{i}/hibernate", {})
    return cold, warm


def at(times, share):
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def timed(connection, path):
    times = []
    for _ in range(5):
        begun = time.perf_counter_ns()
        connection.ask("GET", path)
        times.append(time.perf_counter_ns() - begun)
    return at(times, 0.5)


def memory(supervisor):
    """KiB of the supervisor, and of keepers and services."""

    def of(pids):
        _, own, tables = memory_of(pids)
        return own + tables

    mine = supervisor.process.pid
    rest = [pid for pid in supervisor.processes() if pid != mine]
    return {"supervisor": of([mine]), "keepers": of(rest)}


def settle(supervisor):
    deadline = time.monotonic() + 150
    while len(supervisor.processes()) > 2 and time.monotonic() < deadline:
        time.sleep(1)


def store(supervisor):
    """Bytes on disk of the supervisor's store. An image has its ancestors' files under names of its own: those are
    the same files."""
    found = {}
    for path in pathlib.Path(supervisor.dir / "store").rglob("*"):
        status = path.lstat()
        found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(found.values())
