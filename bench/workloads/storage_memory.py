"""Memory of the storage service of 100 domains with a volume each, and of 10,000 open files: of one domain, and of
100.

Counted is what the service and the keeper that starts it have more of: pages of their own and shared ones in part
(PSS, without those of files), which has the channels and what is known of files, and page tables. What the host's
kernel keeps of its own files (the service holds at most 512 of a domain open), and what the domains' kernels do, is
not the service's.
"""
import base64
import contextlib
import pathlib
import time
from collections.abc import Iterator
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


class Domains:
    """Domains of a supervisor of our own, each with a volume; `hold` gives files to the next one."""

    def __init__(self, doppel: str) -> None:
        self.supervisor = Supervisor(doppel)
        self.count = 0

    def ask(self, *what: Any) -> Any:
        return self.supervisor.connection().ask(*what)

    def start(self, files: int) -> str:
        """A domain that opens so many files: its name."""
        self.count += 1
        name = f"holds{self.count}"
        self.ask(
            "POST",
            "/v1/domains?start=true",
            {
                "image": OWN,
                "name": name,
                "command": ["/storage", "hold", "/mnt", str(files)],
                "files": {"mounts": [{"type": "volume", "source": name, "target": "/mnt"}]},
            },
        )
        return name

    def hold(self, names: list[str]) -> None:
        """Waits until these have opened theirs."""
        end = time.monotonic() + 60
        for name in names:
            while b"held" not in (said := self.log(name)):
                if time.monotonic() > end:
                    raise Failed(f"doppel: {name} does not hold its files: {said.decode()[-200:]}")
                time.sleep(0.02)

    def log(self, name: str) -> bytes:
        return b"".join(
            base64.b64decode(line["data"])
            for line in self.ask("GET", f"/v1/domains/{name}/logs")
            if line["type"] in ("stdout", "stderr")
        )

    def remove(self, names: list[str]) -> None:
        for name in names:
            self.ask("DELETE", f"/v1/domains/{name}?force=true")

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
        _, own, tables = memory_of(keepers | {pid for pid in storage_services() if parent(pid) in keepers})
        return own, tables


def storage_services() -> list[int]:
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        # It may have just ended.
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and b"storage-service" in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def parent(pid: int) -> int:
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def measure(runtime: Any, opt: Any) -> Iterator[tuple[str, float]]:
    if runtime.name != "doppel":
        raise Cannot(f"{runtime.name}: has no storage service")
    domains = Domains(runtime.path)
    try:
        # What all share, and what one that has ended leaves.
        first = domains.start(0)
        domains.hold([first])
        before = domains.memory()
        yield "storage service and keeper: with one domain", before
        one = domains.start(FILES)
        domains.hold([one])
        # One that holds no file is what a further domain takes.
        held = domains.memory()
        domains.remove([one])
        empty = [domains.start(0) for _ in range(DOMAINS)]
        domains.hold(empty)
        each = (domains.memory() - before) / DOMAINS
        yield f"storage service and keeper: each of {DOMAINS} further domains with a volume", each
        yield FILE.format(ONE), (held - before - each) / FILES
        domains.remove(empty)
        many = [domains.start(FILES // DOMAINS) for _ in range(DOMAINS)]
        domains.hold(many)
        yield FILE.format(MANY), (domains.memory() - before - each * DOMAINS) / FILES
    finally:
        domains.supervisor.close()
