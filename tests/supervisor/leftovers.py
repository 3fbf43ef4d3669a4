"""What a supervisor's keepers have of this host: processes, control groups, identities, names.

All of a keeper's domains have ids of its blocks (docs: host/domain/src/registry/mod.rs), so that others' are told
apart.
"""
import json
import pathlib
import re
import time
from collections.abc import Iterable
from typing import Any

from processes import words

HIERARCHIES = pathlib.Path("/sys/fs/cgroup")
RUNTIME = pathlib.Path("/run/doppel")
BLOCK = 64


def of_any_kind(pid: int) -> list[int]:
    """Process ids of a process' children."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(p) for p in task.read_text().split()]
        except OSError:
            pass  # the thread has ended
    return found


def children(pid: int) -> Any:
    """A keeper's children but for its services, which wait for the next domain."""
    return [p for p in of_any_kind(pid) if not is_service(p) and b"storage-service" not in words(p)]


def services(supervisor: Any) -> Any:
    """Process ids of the network services that a supervisor's keepers have written down, and that live."""
    found = []
    for path in sorted(supervisor.runtime.glob("**/kept/network/*")):
        try:
            found.append(json.loads(path.read_text())["process"]["pid"])
        except (OSError, ValueError):
            pass  # it is going, or is being written
    return [p for p in found if is_service(p)]


def is_service(pid: int) -> bool:
    return b"network-service" in words(pid)


def links(part: str, keeper: int) -> Any:
    """Names of the links to a keeper, /run/doppel/ids or names."""
    found = []
    for link in (RUNTIME / part).glob("*"):
        try:
            if re.fullmatch(rf"{keeper}-\d+", str(link.readlink())):
                found.append(link.name)
        except OSError:
            pass  # it is no longer there
    return found


def groups(blocks: Iterable[Any]) -> Any:
    """Control groups of domains of these blocks, in whatever hierarchy."""
    parents = [HIERARCHIES / "doppel", *HIERARCHIES.glob("*/doppel")]
    names = {g.name for parent in parents for g in parent.glob("d[0-9]*")}
    number = lambda name: int(re.match(r"d(\d+)", name)[1])
    return [n for n in names if str(number(n) // BLOCK) in blocks]


def of(supervisor: Any) -> Any:
    """All there is."""
    keepers = supervisor.keepers()
    blocks = [b for k in keepers for b in links("ids", k)]
    return {
        "processes": [p for k in keepers for p in children(k)],
        "groups": groups(blocks),
        "names": [n for k in keepers for n in links("names", k)],
        "directories": [p.name for p in (supervisor.store / "domains").glob("*")],
        # A keeper keeps the block it is giving ids from.
        "blocks": blocks[len(keepers) :],
    }


def none_of(supervisor: Any) -> None:
    """Waits until nothing is left of domains that have been removed."""
    deadline = time.monotonic() + 60
    while any((there := of(supervisor)).values()):
        assert time.monotonic() < deadline, there
        time.sleep(0.1)


def none_at_all(supervisor: Any) -> None:
    """Ends a supervisor without domains, and waits until nothing is left of its keepers either."""
    keepers = supervisor.keepers()
    supervisor.stop()
    traces = lambda: [
        *supervisor.keepers(),
        *(p.name for k in keepers for p in (RUNTIME / "holders").glob(f"{k}-*")),
        *(n for k in keepers for part in ("ids", "names") for n in links(part, k)),
        *(str(p) for p in supervisor.runtime.rglob("*.sock")),
    ]
    deadline = time.monotonic() + 60
    while there := traces():
        assert time.monotonic() < deadline, there
        time.sleep(0.1)
