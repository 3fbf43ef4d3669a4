"""What a domain's stream and requests have beside a domain of their shard that floods datagrams, opens and abandons
sockets, or is removed while it holds connections that nobody reads: of what they have beside a busy loop, which takes a
CPU as well.

The victim's client is on the host or in another domain of its network. All is on one shard of one service. Windows of
the hogs are interleaved, and each goes over several of what a hog does again and again; a connection is held through
all of it.

What is removed is filled before the window and removed in it, beside the busy loop: domains that start and fill the
buffers of 2,000 connections (page faults for a gigabyte) do other work than a removal. Who abandons sockets sleeps and
wakes, and takes both CPUs by turns where the busy loop keeps one. What that costs the victim without any network is
seen beside the same program on its own loopback, which has rows of its own, and is the measure of others.
"""

import base64
import os
import socket
import statistics
import sys
import threading
import time

from harness.api import Supervisor
from harness.runtimes import OWN, Cannot, Failed, Native

UNIT = "%"
REPEATS = 1
KINDS = {"stream": "sink", "requests": "echo"}
WAYS = {"": "red", " between domains": "pink"}
HOST, CLOSED, DEAF = "10.88.0.1", "9", "80"
SOCKETS, UNREAD = "8000", "2000"
BUSY, ABANDONED, OWN_SOCKETS = "a busy loop", "8,000 sockets abandoned", "8,000 sockets of its loopback abandoned"
# Commands, and whether another domain of the hog's network takes what it sends; HOST and PORT are a socket's of the
# host.
HOGS = {
    BUSY: (["/net", "burn"], False),
    "datagrams to a full socket": (["/net", "flood", "udp", HOST, "PORT"], False),
    "datagrams to a closed port": (["/net", "flood", "udp", HOST, CLOSED], False),
    "datagrams to a domain": (["/net", "flood", "udp", "EAR", DEAF], True),
    ABANDONED: (["/net", "abandon", HOST, "PORT", SOCKETS], False),
    OWN_SOCKETS: (["/net", "abandon", "127.0.0.1", CLOSED, SOCKETS], False),
    "2,000 unread connections removed": (["/net", "fill", "EAR", DEAF, UNREAD], True),
}
TARGETS = {
    f"{kind}{way} beside {hog}": 90 for kind in KINDS for way in WAYS for hog in HOGS if hog not in (BUSY, OWN_SOCKETS)
}


class Table:
    """A supervisor, and the victim with its client in another domain."""

    def __init__(self, doppel, ear):
        self.supervisor, self.ear = Supervisor(doppel), str(ear)
        try:
            red = self.make("red", "red", ["/net", "serve", "80"], ports=[{"port": 80, "host_address": "127.0.0.1"}])
            self.port = str(red["network"]["ports"][0]["host_port"])
            self.address = red["network"]["ip4"]
            self.held = socket.create_connection(("127.0.0.1", int(self.port)), timeout=30)
            self.held.sendall(b"e")
        except BaseException:
            self.close()
            raise

    def close(self):
        """Domains outlive their supervisor."""
        try:
            self.remove(*(d["id"] for d in self.ask("GET", "/v1/domains")))
        finally:
            self.supervisor.close()

    def ask(self, *what):
        return self.supervisor.connection().ask(*what)

    def make(self, name, net, command, **network):
        body = {"image": OWN, "name": name, "command": command, "network": {"kind": "nat", "name": net, **network}}
        return self.ask("POST", "/v1/domains?start=true", body)["domain"]

    def remove(self, *names):
        for name in names:
            self.ask("DELETE", f"/v1/domains/{name}?force=true")

    def starts(self):
        [service] = [s for s in self.ask("GET", "/v1/services") if s["kind"] == "network"]
        return service["starts"]

    def check(self, what):
        """The connection that is held is there."""
        self.held.sendall(b"x")
        if self.held.recv(1) != b"x":
            raise Failed(f"doppel: a connection was lost beside {what}")

    def hog(self, command, has_ear, name="hog"):
        """Starts a hog: the names of its domains."""
        names = [name]
        if has_ear:
            ear = self.make("ear", "hogs", ["/net", "deaf", DEAF])["network"]["ip4"]
            command = [ear if c == "EAR" else c for c in command]
            names.append("ear")
        command = [self.ear if c == "PORT" else c for c in command]
        self.make(name, "hogs", command, allow=[f"{HOST}:{self.ear}/udp", f"{HOST}:{CLOSED}/udp"])
        return names

    def log(self, name):
        return b"".join(
            base64.b64decode(line["data"])
            for line in self.ask("GET", f"/v1/domains/{name}/logs")
            if line["type"] == "stdout"
        ).decode()

    def removal(self, command):
        """Fills a hog's connections: a thread that removes it once the window has begun."""
        names = self.hog(command, True)
        end = time.monotonic() + 60
        while "full" not in self.log("hog"):
            if time.monotonic() > end:
                raise Failed("doppel: the hog's connections are not full")
            time.sleep(0.02)
        thread = threading.Timer(0.2, self.remove, names)
        thread.start()
        return thread

    def window(self, native, kind, way, ms):
        """What is done in a second."""
        if way == "red":
            out = native.run("/net", "slices", KINDS[kind], self.port, str(ms), timeout=ms / 1000 + 30)
        else:
            self.make(way, "red", ["/net", "slices", KINDS[kind], f"{self.address}:80", str(ms)])
            self.ask("POST", f"/v1/domains/{way}/wait")
            out = self.log(way)
            self.remove(way)
        done = [float(line.split()[1]) for line in out.splitlines()]
        return statistics.fmean(done[1:]) * 10

    def beside(self, native, hog, windows, ms):
        command, _ = HOGS[hog]
        removes = command[1] == "fill"
        names = self.hog(*HOGS[BUSY], name="busy") if removes else self.hog(*HOGS[hog])
        try:
            time.sleep(0.5)
            for kind, way in windows:
                removal = self.removal(command) if removes else None
                windows[kind, way].setdefault(hog, []).append(self.window(native, kind, WAYS[way], ms))
                if removal:
                    removal.join()
                self.check(hog)
        finally:
            self.remove(*names)


def measure(runtime, opt):
    if runtime.name != "doppel":
        raise Cannot(f"{runtime.name}: no network service of its own")
    native = Native(runtime.roots)
    rounds, ms = (1, 600) if opt.quick else (5, 1200)
    hogs = os.environ.get("HOGS")
    hogs = [h for h in HOGS if not hogs or h == BUSY or any(w in h for w in hogs.split(","))]
    windows = {(kind, way): {} for way in WAYS for kind in KINDS}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
        ear.bind(("127.0.0.1", 0))
        table = Table(runtime.path, ear.getsockname()[1])
        try:
            starts = table.starts()
            for n in range(rounds):
                for hog in hogs if n % 2 == 0 else reversed(hogs):
                    table.beside(native, hog, windows, ms)
            if table.starts() != starts:
                raise Failed("doppel: the service was replaced")
        finally:
            table.close()
    rows = {}
    for (kind, way), found in windows.items():
        middle = {hog: statistics.median(values) for hog, values in found.items()}
        print(f"    {kind}{way}: " + ", ".join(f"{hog} {value:.4g}" for hog, value in middle.items()), file=sys.stderr)
        rows |= {
            f"{kind}{way} beside {hog}": 100 * value / middle[BUSY] for hog, value in middle.items() if hog != BUSY
        }
        if {ABANDONED, OWN_SOCKETS} <= middle.keys():
            row = f"{kind}{way} beside {ABANDONED}, to those beside {OWN_SOCKETS.removeprefix('8,000 ')}"
            rows[row] = 100 * middle[ABANDONED] / middle[OWN_SOCKETS]
    return rows
