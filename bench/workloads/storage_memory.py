"""Memory of the storage service of 100 domains with a volume each, and of 10,000 open files: of one domain, and of
100.

Counted is what the service and the keeper that starts it have more of: pages of their own and shared ones in part
(PSS, without those of files), which has the channels and what is known of files, and page tables. What the host's
kernel keeps of its own files (the service holds at most 512 of a domain open), and what the domains' kernels do, is
not the service's.
"""
import base64
import concurrent.futures
import time
from collections.abc import Callable, Iterator
from typing import Any

from harness.api import Supervisor
from harness.memory import memory_of
from harness.runtimes import OWN, Cannot, Failed

UNIT = "KiB"
REPEATS = 1
DOMAINS, FILES = 100, 10_000
FILE = "storage service: an open file of {}"
ONE, MANY = f"one domain's {FILES:,}", f"{DOMAINS} domains' {FILES // DOMAINS}"
TARGETS = {FILE.format(whose): 1 for whose in (ONE, MANY)}


CLIENTS = 4


class Domains:
    """Domains of a supervisor of our own, each with a volume."""

    def __init__(self, doppel: str) -> None:
        self.supervisor = Supervisor(doppel)
        self.count = 0

    def ask(self, *what: Any) -> Any:
        return self.supervisor.connection().ask(*what)

    def each(self, job: Callable[[str], None], names: list[str]) -> None:
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(job, names))

    def start(self, count: int, files: int) -> list[str]:
        """So many domains that have opened so many files each: their names."""
        names = [f"holds{self.count + i}" for i in range(count)]
        self.count += count

        def begin(name: str) -> None:
            body = {
                "image": OWN,
                "name": name,
                "command": ["/storage", "hold", "/mnt", str(files)],
                # A layer of its own would be the service's, too.
                "files": {"persist": False, "mounts": [{"type": "volume", "source": name, "target": "/mnt"}]},
            }
            self.ask("POST", "/v1/domains?start=true", body)

        self.each(begin, names)
        end = time.monotonic() + 60
        for name in names:
            while b"held" not in (said := self.log(name)):
                if time.monotonic() > end:
                    raise Failed(f"doppel: {name} does not hold its files: {said.decode()[-200:]}")
                time.sleep(0.02)
        return names

    def log(self, name: str) -> bytes:
        return b"".join(
            base64.b64decode(line["data"])
            for line in self.ask("GET", f"/v1/domains/{name}/logs")
            if line["type"] in ("stdout", "stderr")
        )

    def remove(self, names: list[str]) -> None:
        self.each(lambda name: self.ask("DELETE", f"/v1/domains/{name}?force=true"), names)

    def memory(self) -> int:
        """KiB of the storage service and its keeper, once they change no more."""
        last = -1
        for _ in range(40):
            now = sum(self.parts())
            if abs(now - last) < 8:
                break
            last = now
            time.sleep(0.25)
        return now

    def parts(self) -> tuple[int, int]:
        """KiB of own and shared pages, and of page tables."""
        keepers = set(self.supervisor.processes()) - {self.supervisor.process.pid}
        services = {s["pid"] for s in self.ask("GET", "/v1/services") if s["kind"] == "storage"}
        _, own, tables = memory_of(keepers | services)
        return own, tables


def measure(runtime: Any, opt: Any) -> Iterator[tuple[str, float]]:
    if runtime.name != "doppel":
        raise Cannot(f"{runtime.name}: has no storage service")
    domains = Domains(runtime.path)
    try:
        # What all share.
        domains.start(1, 0)
        before = domains.memory()
        yield "storage service and keeper: with one domain", before
        one = domains.start(1, FILES)
        held = domains.memory()
        domains.remove(one)
        # Those that hold no file are what a further domain takes.
        empty = domains.start(DOMAINS, 0)
        each = (domains.memory() - before) / DOMAINS
        yield f"storage service and keeper: each of {DOMAINS} further domains with a volume", each
        yield FILE.format(ONE), (held - before - each) / FILES
        domains.remove(empty)
        domains.start(DOMAINS, FILES // DOMAINS)
        yield FILE.format(MANY), (domains.memory() - before - each * DOMAINS) / FILES
    finally:
        domains.supervisor.close()
