"""The network service domain is killed while clients call a server: how long until the next call is answered, and
answered calls over time (as VirtuOS Fig. 13). Nothing to compare it with: nobody else's network can be killed alone.
"""
import os
import pathlib
import signal
import socket
import statistics
import threading
import time

from harness import svg
from harness.runtimes import OWN, Cannot, Failed

from workloads.network import Server

UNIT = "ns"
REPEATS = 1
MEDIAN = "network service killed, until the next answer"
LAST = f"{MEDIAN}, 99th percentile"
# Of a timeline: milliseconds of a bin, and bins before and after the kill.
BIN, BEFORE, AFTER = 5, 10, 30
_bins = []


def service_of(pid, kind="network"):
    """The service of this kind among a command's children."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            if f"{kind}-service".encode() in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    return None


def call(port):
    """A connection, a request and its answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as s:
        s.sendall(b"e?")
        if s.recv(1) != b"?":
            raise ConnectionError("no answer")


def measure(runtime, opt):
    if runtime.name != "doppel":
        raise Cannot(f"{runtime.name}: no network service of its own to kill")
    kills = 8 if opt.quick else 200
    took, bins = [], [0] * (BEFORE + AFTER)
    with Server(runtime, "/net", "serve", "PORT", image=OWN) as server:
        answers, over = [], threading.Event()

        def caller():
            while not over.is_set():
                try:
                    call(server.port)
                except OSError:
                    continue
                answers.append(time.monotonic_ns())

        thread = threading.Thread(target=caller)
        thread.start()
        try:
            for _ in range(kills):
                time.sleep(2 * AFTER * BIN / 1e3)
                service = service_of(server.process.pid)
                if service is None:
                    raise Failed("doppel: no network service")
                killed = time.monotonic_ns()
                os.kill(service, signal.SIGKILL)
                while True:
                    try:
                        call(server.port)
                        break
                    except OSError:
                        if time.monotonic_ns() - killed > 30e9:
                            raise Failed("doppel: no answer after 30 s") from None
                took.append(time.monotonic_ns() - killed)
                time.sleep(AFTER * BIN / 1e3)
                for t in answers:
                    at = (t - killed) // (BIN * 1_000_000) + BEFORE
                    if 0 <= at < len(bins):
                        bins[int(at)] += 1
                answers.clear()
        finally:
            over.set()
            thread.join()
    per_second = 1000 / BIN / kills
    _bins[:] = [(BIN * i, n * per_second) for i, n in enumerate(bins)]
    return {MEDIAN: statistics.median(took), LAST: sorted(took)[int(len(took) * 0.99) - 1]}


def finish(results):
    """Plots answered calls around a kill, the mean over all kills."""
    if _bins:
        title = f"Calls answered around a kill of the network service (at {BIN * BEFORE} ms)"
        svg.plot(results / "recovery.svg", title, "milliseconds", "calls a second", {"one caller": list(_bins)})
