"""A service domain is killed while a program of a domain writes a file and another one serves a client (VirtuOS Fig.
13).

As there, the network service goes while `dd` writes; and the storage service while a client outside the domain
receives. Both count in slices of 100 ms what they have done, and their longest pause. What another one's service
costs them is the second after a kill, of the one before (the paper's figure is by seconds); how soon their own one
is back is their longest pause then. Files of a volume wait in the domain's memory, so that `dd` may notice nothing;
into a directory of the host each of its writes is a request. Nothing to compare it with: nobody else's services can
be killed alone.
"""
import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

from harness.place import Place
from harness.runtimes import OWN, Cannot, Failed, Native

from workloads.network import Server
from workloads.network_neighbours import SLICE
from workloads.recovery import service_of

UNIT = "%"
REPEATS = 1
KINDS = {"volume": "volume", "directory": "host directory"}
STREAM = "network stream"
# Milliseconds in which a service is to be back.
BACK = 100
# Nanoseconds after a kill in which a pause is its.
AFTER = 500_000_000
SECOND = 1_000_000_000
DISTURBED = "{} while the {} service is killed, of undisturbed"
RETURNED = "{} service killed: {} goes on within {} ms, of all times"
TARGETS = {DISTURBED.format(f"dd on a {kind}", "network"): 95 for kind in KINDS.values()}
TARGETS |= {DISTURBED.format(STREAM, "storage"): 95, RETURNED.format("network", STREAM, BACK): 100}
TARGETS |= {RETURNED.format("storage", f"dd on a {kind}", BACK): 100 for kind in KINDS.values()}
BOTH = '/net serve PORT & exec /storage flow /mnt "$0"'

# When a slice began, what was done in it, and the longest pause that ended in it.
Slice = tuple[int, float, float]


def parsed(text: str) -> list[Slice]:
    """All but the first, which is not whole."""
    lines = [line.split() for line in text.splitlines()]
    return [(int(begun), float(done), float(pause)) for begun, done, pause in lines][1:]


def watched(runtime: Any, native: Any, service: str, count: int) -> tuple[list[Slice], list[Slice], list[int]]:
    """What `dd` and a client have done while a service is killed so many times, and when that was."""
    ms = 2000 * count + 1500
    received: list[str] = []

    def receive(port: int) -> None:
        received.append(native.run("/net", "slices", "source", str(port), str(ms), timeout=ms / 1000 + 60))

    command = ["/bin/busybox", "sh", "-c", BOTH, str(ms + 500)]
    with Server(runtime, *command, image=OWN, out=subprocess.PIPE) as server:
        client = threading.Thread(target=receive, args=[server.port])
        client.start()
        kills = []
        try:
            time.sleep(0.3)
            for _ in range(count):
                # Not in step with the slices.
                time.sleep(1.97)
                pid = service_of(server.process.pid, service)
                if pid is None:
                    raise Failed(f"doppel: the {service} service has not been replaced within two seconds")
                kills.append(time.monotonic_ns())
                os.kill(pid, signal.SIGKILL)
            wrote = server.process.stdout.read().decode()
        finally:
            client.join()
    if not received:
        raise Failed("doppel: the client has failed")
    return parsed(wrote), parsed(received[0]), kills


def second(found: list[Slice], kills: list[int]) -> float:
    """What is done in the second after a kill, of that before, in percent; the median."""
    ratios = []
    for kill in kills:
        # The slice in which it is counts as after it.
        after = [done for begun, done, _ in found if -SLICE < begun - kill < SECOND - SLICE]
        before = [done for begun, done, _ in found if -SECOND <= begun - kill <= -SLICE]
        if not after or not before or not sum(before):
            raise Failed(f"doppel: {len(before)} slices before a kill and {len(after)} after it")
        ratios.append(100 * statistics.fmean(after) / statistics.fmean(before))
    return statistics.median(ratios)


def pauses(found: list[Slice], kills: list[int]) -> list[float]:
    """The longest one after each kill."""
    return [max(pause for begun, _, pause in found if -SLICE < begun - kill < AFTER) for kill in kills]


def calm(found: list[Slice], kills: list[int]) -> float:
    """The longest pause that no kill has made."""
    return max(pause for begun, _, pause in found if not any(-SLICE < begun - kill < AFTER for kill in kills))


def measure(runtime: Any, opt: Any) -> Iterator[tuple[str, Any]]:
    if runtime.name != "doppel":
        raise Cannot(f"{runtime.name}: has no services to kill")
    count = 3 if opt.quick else 20
    for kind, shown in KINDS.items():
        for service in ("network", "storage"):
            with Place(runtime, kind) as at:
                wrote, received, kills = watched(at, Native(runtime.roots), service, count)
            mine, other = (f"dd on a {shown}", wrote), (STREAM, received)
            if service == "network":
                mine, other = other, mine
            elif kind == "directory":
                other = (f"{STREAM} beside dd on a {shown}", received)
            name, found = other
            yield DISTURBED.format(name, service), second(found, kills)
            name, found = mine
            if service == "network" and kind == "directory":
                name = f"{name} beside dd on a {shown}"
            after = pauses(found, kills)
            yield RETURNED.format(service, name, BACK), 100 * sum(p <= BACK * 1e6 for p in after) / count
            yield f"{service} service killed: pause of {name}, median", (statistics.median(after), "ns")
            yield f"{service} service killed: pause of {name}, longest", (max(after), "ns")
            yield f"{name}, longest pause without a kill", (calm(found, kills), "ns")
