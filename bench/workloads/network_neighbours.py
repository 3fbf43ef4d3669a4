"""What a domain's network notices of others: of a network service that is killed every second, on its own shard and on
another; of domains on its shard that flood; of one that writes what it likes into its channel.

A client on the host sends a stream to a server in the domain, or asks it, and counts in slices of 100 ms. After a kill
the slices that the recovery falls into are compared with those of the same connection that nothing disturbs. A flood
takes a CPU whatever it does with it, and there may be two, so its neighbour is compared with one beside a busy loop. A
domain's program cannot reach its channel: the guest kernel is played by services/net/examples/byzantine.rs there.
"""

import os
import pathlib
import signal
import socket
import statistics
import subprocess
import threading
import time

from harness.api import Supervisor
from harness.runtimes import OWN, Cannot, Failed, Native

UNIT = "%"
REPEATS = 3
KINDS = {"stream": "sink", "requests": "echo"}
TARGETS = {f"{kind} while another shard's service is replaced, of undisturbed": 95 for kind in KINDS}
SLICE = 100_000_000
# Nanoseconds after a kill in which the service is surely replaced, and in which all is surely as before.
RECOVERY, CALM = 30_000_000, 250_000_000
# Of the host's loopback as domains see it: nobody calls back.
HOST, CLOSED = "10.88.0.1", 9
HOGS = {
    "a busy loop": ["/net", "burn"],
    "a flood of datagrams": ["/net", "flood", "udp", HOST, "PORT"],
    "connections without an end": ["/net", "flood", "tcp", HOST, str(CLOSED)],
}
EXAMPLE = "examples/byzantine"


class Domains:
    """A supervisor with two shards, and a server on each: `ports` and shards by name."""

    def __init__(self, doppel):
        self.supervisor = Supervisor(doppel, "--network-shards", "2")
        self.ports, self.shards = {}, {}
        try:
            for name in ("red", "blue"):
                made, self.shards[name] = self.make(
                    name, ["/net", "serve", "80"], ports=[{"port": 80, "host_address": "127.0.0.1"}]
                )
                self.ports[name] = str(made["network"]["ports"][0]["host_port"])
            if len(set(self.shards.values())) != 2:
                raise Failed("doppel: both networks are on one shard")
        except BaseException:
            self.close()
            raise

    def ask(self, *what):
        return self.supervisor.connection().ask(*what)

    def services(self):
        return {s["shard"]: s for s in self.ask("GET", "/v1/services") if s["kind"] == "network"}

    def make(self, name, command, **network):
        """Starts a domain on a network of its own name: it, and its shard."""
        before = self.services()
        body = {"image": OWN, "name": name, "command": command, "network": {"kind": "nat", "name": name, **network}}
        made = self.ask("POST", "/v1/domains?start=true", body)["domain"]
        [shard] = [n for n, s in self.services().items() if s["domains"] > before.get(n, {}).get("domains", 0)]
        return made, shard

    def kill_service(self, shard):
        """When it was killed."""
        pid = self.services()[shard].get("pid")
        killed = time.monotonic_ns()
        if pid is None:
            raise Failed("doppel: the service has not been replaced within a second")
        os.kill(pid, signal.SIGKILL)
        return killed

    def close(self):
        for name in self.ports:
            self.ask("DELETE", f"/v1/domains/{name}?force=true")
        self.supervisor.close()


def slices(native, kind, port, ms):
    """Beginnings of slices, and what was done in each; the first is not counted."""
    out = native.run("/net", "slices", KINDS[kind], port, str(ms), timeout=ms / 1000 + 60)
    return [(int(begun), float(done)) for begun, done, _ in (line.split() for line in out.splitlines())][1:]


def dip(found, kills):
    """The median slice of a recovery, in percent of the median slice that nothing disturbs."""
    hit, calm = [], []
    for begun, done in found:
        since = [begun - k for k in kills]
        if any(-SLICE < s < RECOVERY for s in since):
            hit.append(done)
        elif not any(-SLICE < s < CALM for s in since):
            calm.append(done)
    if not hit or not calm or not statistics.median(calm):
        raise Failed(f"doppel: {len(hit)} slices of a recovery and {len(calm)} others")
    return 100 * statistics.median(hit) / statistics.median(calm)


def killed_every_second(native, domains, kind, name, shard, count):
    """What a domain's client finds while that shard's service is killed."""
    found, failed = [], []

    def watch():
        try:
            found.extend(slices(native, kind, domains.ports[name], 1000 * count + 500))
        except Failed as e:
            failed.append(e)

    client = threading.Thread(target=watch)
    client.start()
    kills = []
    try:
        for _ in range(count):
            # Not in step with the slices.
            time.sleep(0.97)
            kills.append(domains.kill_service(shard))
    finally:
        client.join()
    if failed:
        raise failed[0]
    return dip(found, kills)


def beside_hogs(native, domains, ms):
    """The medians of a neighbour on the shard of each hog, by its name."""
    rows = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
        ear.bind(("127.0.0.1", 0))
        port = str(ear.getsockname()[1])
        for what, command in HOGS.items():
            command = [port if c == "PORT" else c for c in command]
            _, shard = domains.make("hog", command, allow=[f"{HOST}:{port}/udp", f"{HOST}:{CLOSED}/tcp"])
            try:
                name = next(n for n, s in domains.shards.items() if s == shard)
                time.sleep(0.5)
                rows[what] = {
                    kind: statistics.median(done for _, done in slices(native, kind, domains.ports[name], ms))
                    for kind in KINDS
                }
            finally:
                domains.ask("DELETE", "/v1/domains/hog?force=true")
    return rows


def byzantine(example, quick):
    """What a neighbour of a byzantine domain gets, of what one beside a busy loop gets."""
    p = subprocess.run([example, "2" if quick else "9"], capture_output=True, text=True, timeout=300)
    if p.returncode:
        raise Failed(f"doppel: {example}: {p.stderr[-300:]}")
    return 100 * float(p.stdout.split()[-1])


def measure(runtime, opt):
    if runtime.name != "doppel":
        raise Cannot(f"{runtime.name}: no network service of its own")
    native = Native(runtime.roots)
    count, ms = (2, 500) if opt.quick else (10, 3000)
    rows = {}
    domains = Domains(runtime.path)
    try:
        own, other = domains.shards["red"], domains.shards["blue"]
        for kind in list(KINDS)[: 1 if opt.quick else None]:
            for shard, whose in ((other, "another shard's service"), (own, "its own service")):
                rows[f"{kind} while {whose} is replaced, of undisturbed"] = killed_every_second(
                    native, domains, kind, "red", shard, count
                )
        alone = {
            kind: statistics.median(done for _, done in slices(native, kind, domains.ports["red"], ms))
            for kind in KINDS
        }
        beside = beside_hogs(native, domains, ms)
    finally:
        domains.close()
    busy = beside.pop("a busy loop")
    for kind in KINDS:
        rows[f"{kind} beside a busy loop, of alone"] = 100 * busy[kind] / alone[kind]
        for what, got in beside.items():
            rows[f"{kind} beside {what}, of that beside a busy loop"] = 100 * got[kind] / busy[kind]
    example = pathlib.Path(runtime.path).parent / EXAMPLE
    if example.exists():
        rows["stream beside a byzantine channel, of that beside a busy loop"] = byzantine(example, opt.quick)
    return rows
