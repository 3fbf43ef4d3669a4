"""1,000 domains made through the supervisor, each a small web server; that all of them answer, and what they take.

Memory is what the supervisor and its keeper have more of than without domains, a domain; pages that they share with
the domains counted in part (PSS), and their page tables.
"""
import concurrent.futures
import time

from harness.memory import memory_of
from harness.runtimes import Cannot, Failed

UNIT = "ns"
REPEATS = 1
ALSO = ("doppel-api",)
CLIENTS = 8
SERVE = ["sh", "-c", "echo served by $(hostname) >/index.html; exec busybox httpd -f -p 127.0.0.1:80 -h /"]
FETCH = ["sh", "-c", "until busybox wget -q -O - http://127.0.0.1/index.html 2>/dev/null; do sleep 0.01; done"]


def measure(runtime, opt):
    if runtime.name != "doppel-api":
        raise Cannot(f"{runtime.name}: has no supervisor")
    count = 100 if opt.quick else 1000
    supervisor = runtime.supervisor
    before = sum_of(supervisor)
    times = {}

    def stage(name, job):
        t = time.perf_counter_ns()
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            lanes = [pool.submit(lane, job, range(k, count, CLIENTS)) for k in range(CLIENTS)]
            for future in lanes:
                future.result()
        times[f"{count} servers: {name}"] = time.perf_counter_ns() - t

    def lane(job, numbers):
        connection = supervisor.connection()
        for i in numbers:
            job(connection, i)

    def ask(connection, i):
        exec_ = connection.ask("POST", f"/v1/domains/many{i}/exec", {"command": FETCH, "timeout_seconds": 60})["id"]
        last = connection.ask("GET", f"/v1/execs/{exec_}/output")[-1]
        if last.get("exit_code") != 0:
            raise Failed(f"server {i} does not answer: {last}")

    stage(
        "made and started",
        lambda c, i: c.ask(
            "POST", "/v1/domains?start=true", {"image": "busybox", "name": f"many{i}", "command": SERVE}
        ),
    )
    stage("all have answered", ask)
    more = sum_of(supervisor) - before
    stage("removed", lambda c, i: c.ask("DELETE", f"/v1/domains/many{i}?force=true"))
    return {
        **times,
        f"{count} servers: supervisor and keeper, a domain": (more / count, "KiB"),
        "supervisor and keeper without domains": (before, "KiB"),
    }


def sum_of(supervisor):
    pss, _, tables = memory_of(supervisor.processes())
    return pss + tables
