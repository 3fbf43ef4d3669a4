"""Memory of instances of a program, everything counted, each instance or launcher in a control group.

An amount is a dict in KiB: `own` (anonymous and shared-memory pages, memory files included, charged to the groups),
`kernel` (page tables, kernel stacks, slabs charged to them) and `files` (pages of files that are mapped, each counted
once however many processes map it). A memory file is charged to the group of whoever wrote its pages, so launchers
are counted with their instances.
"""
import os
import pathlib
import time
from collections.abc import Iterable
from typing import Any

ROOT = pathlib.Path("/sys/fs/cgroup")


class Group:
    """A control group of our own for what we start."""

    def __init__(self, name: str) -> None:
        self.v1 = (ROOT / "memory/memory.stat").exists()
        self.path = (ROOT / "memory" if self.v1 else ROOT) / f"doppel-bench-{os.getpid()}-{name}"
        self.path.mkdir(exist_ok=True)

    def enter(self) -> None:
        """For `preexec_fn`."""
        (self.path / "cgroup.procs").write_text("0")

    def remove(self) -> Any:
        for _ in range(50):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.1)


def group_of(pid: int) -> Any:
    """The memory group a process is in."""
    for line in open(f"/proc/{pid}/cgroup"):
        number, controllers, path = line.strip().split(":", 2)
        if "memory" in controllers.split(","):
            return ROOT / "memory" / path.lstrip("/")
        if number == "0" and (ROOT / path.lstrip("/") / "memory.stat").exists():
            return ROOT / path.lstrip("/")
    raise OSError(f"process {pid} is in no memory control group")


def charged(group: pathlib.Path) -> Any:
    """KiB charged to a group: programs' and kernel's."""
    stat = dict(line.split() for line in open(group / "memory.stat"))
    if (group / "memory.kmem.usage_in_bytes").exists():
        own, kernel = int(stat["rss"]) + int(stat["shmem"]), int((group / "memory.kmem.usage_in_bytes").read_text())
    else:
        own, kernel = int(stat["anon"]) + int(stat["shmem"]), int(stat["kernel"])
    return own >> 10, kernel >> 10


def amount(groups: Iterable[pathlib.Path]) -> dict[str, float]:
    """What all these groups and the processes in them take."""
    own = kernel = files = 0
    for g in set(groups):
        o, k = charged(g)
        own, kernel = own + o, kernel + k
        for pid in (g / "cgroup.procs").read_text().split():
            try:
                files += sum(int(x.split()[1]) for x in open(f"/proc/{pid}/smaps_rollup") if x.startswith("Pss_File:"))
            except OSError:
                pass  # it has just ended
    return {"own": own, "kernel": kernel, "files": files}


def total(a: dict[str, float]) -> float:
    return sum(a.values())
