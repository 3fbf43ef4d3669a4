"""Memory of processes on the host."""
import os
from collections.abc import Iterable
from typing import Any


def tree(pid: int) -> list[int]:
    """All descendants of a process."""
    children: dict[int, list[int]] = {}
    for p in os.listdir("/proc"):
        if p.isdigit():
            try:
                children.setdefault(int(open(f"/proc/{p}/stat").read().rsplit(") ", 1)[1].split()[1]), []).append(
                    int(p)
                )
            except OSError:
                pass
    found, todo = [], [pid]
    while todo:
        more = children.get(todo.pop(), [])
        found += more
        todo += more
    return found


def named(text: str) -> set[int]:
    """Processes with `text` in their command line, and all below them."""
    found = set()
    for p in os.listdir("/proc"):
        if p.isdigit():
            try:
                if text in open(f"/proc/{p}/cmdline").read():
                    found |= {int(p), *tree(int(p))}
            except OSError:
                pass
    return found


def memory_of(pids: Iterable[int]) -> Any:
    """PSS, the part of it that is no file's page, and page tables (KiB) of processes."""
    pss = own = tables = 0
    for p in pids:
        try:
            rollup = [x.split() for x in open(f"/proc/{p}/smaps_rollup")]
            pss += sum(int(x[1]) for x in rollup if x[0] == "Pss:")
            own += sum(int(x[1]) for x in rollup if x[0] in ("Pss_Anon:", "Pss_Shmem:"))
            tables += sum(int(x.split()[1]) for x in open(f"/proc/{p}/status") if x.startswith("VmPTE:"))
        except OSError:
            pass
    return pss, own, tables


def cgroup_bytes(pid: int) -> int:
    """Memory charged to the control group of a process, or 0 when it has none of its own."""
    own = open("/proc/self/cgroup").readlines()
    for line in open(f"/proc/{pid}/cgroup"):
        number, controllers, path = line.strip().split(":", 2)
        if path == "/" or line in own:
            continue
        if "memory" in controllers.split(","):
            return int(open(f"/sys/fs/cgroup/memory{path}/memory.usage_in_bytes").read())
        if number == "0" and os.path.exists(f"/sys/fs/cgroup{path}/memory.current"):
            return int(open(f"/sys/fs/cgroup{path}/memory.current").read())
    return 0
