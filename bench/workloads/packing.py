"""How many instances fit (the para/paene study's 4.1, Denali 4.3): memory of a further idle instance and of a further
web server that answers, from what the host has less of while many are there, everything counted: launchers, supervisor,
kernel. And latencies of requests from the host that are spread over the servers by Zipf's law, a connection each.

Doppel's domains are made through its supervisor, the others' instances each by its own command. How many would fit is
a calculation: the memory that the host had available, over what one took.
"""

import concurrent.futures
import os
import pathlib
import random
import re
import socket
import statistics
import subprocess
import time

from harness.network import free_port, on_host
from harness.runtimes import OWN, Doppel, Failed, Oci

UNIT = "KiB"
REPEATS = 1
# Of each runtime as many as let its memory stand out of what else changes, and start in bearable time: in quick runs,
# in full ones.
COUNTS = {
    "native": (50, 500),
    "doppel": (50, 2000),
    "paene": (20, 200),
    "runc": (4, 60),
    "runsc": (2, 20),
    "bwrap": (20, 200),
}
SLEEP = ["/bin/busybox", "sh", "-c", "echo up; exec /bin/busybox sleep 100000"]
CLIENTS = 4
# KiB by which what is available changes in half a second where nothing happens.
CALM = 512
# KiB of the smallest process there is: its page tables and stacks.
LEAST = 30


def free():
    """KiB the host could give. Free pages that CPUs keep for themselves (hundreds of MiB, given back over minutes) are
    not counted in what it says is available."""
    said = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemAvailable:"))
    kept = re.findall(r"^ +count: +(\d+)$", pathlib.Path("/proc/zoneinfo").read_text(), re.MULTILINE)
    return said + sum(map(int, kept)) * (os.sysconf("SC_PAGE_SIZE") >> 10)


def available():
    """What the host could give, once it has calmed down: what the last workload left is freed for some seconds."""
    now = None
    for _ in range(20):
        seen, last = [], now
        for _ in range(5):
            time.sleep(0.1)
            seen.append(free())
        now = statistics.median(seen)
        if last is not None and abs(now - last) < CALM:
            break
    return now


class Instances:
    """Instances of a runtime: `add` makes one, `close` ends them all. `ports` are those of the servers."""

    def __init__(self, runtime):
        self.runtime, self.ports, self.started, self.ids = runtime, [], [], []

    def serve(self, port, root=""):
        return ["/bin/busybox", "httpd", "-f", "-p", port, "-h", f"{root}/www"]

    def add(self, serving):
        port = free_port() if serving else None
        runtime = on_host(self.runtime) if serving else self.runtime
        root = self.runtime.roots.of(OWN) if runtime.name == "native" else ""
        argv = runtime.argv(*(self.serve(f"127.0.0.1:{port}", root) if serving else SLEEP))
        if isinstance(runtime, Oci):
            # Without a launcher that stays.
            argv.insert(argv.index("run") + 1, "--detach")
            p = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60
            )
            if p.returncode:
                raise Failed(f"{runtime.name}: instance {len(self.ids)} ended with {p.returncode}")
            self.ids.append((runtime, runtime.id))
            self.runtime.count = runtime.count
        else:
            p = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if serving else subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self.started.append(p)
            # Who is killed in the middle of its start may leave something.
            if not serving and p.stdout.readline() != b"up\n":
                raise Failed(f"{runtime.name}: instance {len(self.started)} did not start")
        if serving:
            self.ports.append(port)

    def close(self):
        for p in self.started:
            p.kill()
        for p in self.started:
            p.communicate()
        for runtime, name in self.ids:
            runtime.id = name
            runtime.clean()


class Domains(Instances):
    """Those of the supervisor."""

    def __init__(self, runtime):
        super().__init__(runtime)
        self.connection = runtime.api.supervisor.connection()

    def add(self, serving):
        body = {
            "image": OWN,
            "kind": "paene" if self.runtime.name == "paene" else "para",
            "command": self.serve("80") if serving else SLEEP,
        }
        if serving:
            body["network"] = {"kind": "nat", "ports": [{"port": 80, "host_address": "127.0.0.1"}]}
        made = self.connection.ask("POST", "/v1/domains?start=true", body)["domain"]
        self.ids.append(made["id"])
        if serving:
            self.ports.append(made["network"]["ports"][0]["host_port"])

    def close(self):
        for name in self.ids:
            self.connection.ask("DELETE", f"/v1/domains/{name}?force=true")


def get(port):
    """Nanoseconds until an answer was whole."""
    t = time.perf_counter_ns()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as s:
        s.sendall(b"GET /page HTTP/1.0\r\n\r\n")
        got = b""
        while part := s.recv(1 << 16):
            got += part
    t = time.perf_counter_ns() - t
    if not got.startswith(b"HTTP/1.") or b" 200 " not in got.split(b"\r\n")[0] or len(got) < 2258:
        raise OSError(f"a wrong answer: {got[:60]}")
    return t


def answer(port):
    """Waits until a server answers."""
    end = time.monotonic() + 30
    while True:
        try:
            return get(port)
        except OSError as e:
            if time.monotonic() > end:
                raise Failed(f"a server does not answer: {e}") from None
            time.sleep(0.02)


def measure(runtime, opt):
    count = COUNTS[runtime.name][0 if opt.quick else 1]
    for serving, name in (False, "idle"), (True, "answering"):
        these = (Domains if isinstance(runtime, Doppel) else Instances)(runtime)
        try:
            these.add(serving)  # what all share
            for port in these.ports:
                answer(port)
            before = None if opt.quick else available()
            for _ in range(count):
                these.add(serving)
            for port in these.ports:
                answer(port)
            # Of a few it does not stand out of what else changes.
            each = (before - available()) / count if before else 0
            if each > LEAST:
                yield f"packing: a further {name} instance", each
                yield f"packing: {name} instances that would fit (calculated)", (before / each, "n")
            elif before:
                raise Failed(
                    f"{runtime.name}: {count} {name} instances took {each:.0f} KiB each: the machine was not quiet"
                )
            yield f"packing: {name} instances held at once", (count + 1, "n")
            if serving:
                yield from zipf(these.ports, 300 if opt.quick else 5000)
        finally:
            these.close()


def zipf(ports, requests):
    dice = random.Random(20)
    wanted = dice.choices(ports, [1 / (rank + 1) for rank in range(len(ports))], k=requests)
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        begun = time.monotonic()
        took = sorted(pool.map(get, wanted))
        rate = requests / (time.monotonic() - begun)
    yield "packing: requests by Zipf's law", (rate, "/s")
    yield "packing: a request, median", (took[len(took) // 2], "ns")
    yield "packing: a request, 99th percentile", (took[len(took) * 99 // 100], "ns")
