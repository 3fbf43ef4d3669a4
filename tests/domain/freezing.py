"""What the freezer's tests have in common: calling `doppel`, names that are cleaned up, a look for what was left."""
import glob
import json
import os
import pathlib
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import DOPPEL, Result, call, domain_cgroups, eventually

NAMES = pathlib.Path("/run/doppel/names")


def doppel_call(*argv: Any, stdin: Any = b"", timeout: float = 60, env: Any = None) -> Result:
    return call([DOPPEL, *map(str, argv)], stdin, timeout, env={**os.environ, **(env or {})})


def refused(*argv: Any, env: Any = None) -> str:
    """The one-line error of a command that must fail."""
    r = doppel_call(*argv, env=env)
    assert r.code != 0, f"{argv} was not refused: {r.out}"
    assert r.err.startswith("doppel: ") and "panicked" not in r.err, r.err
    return r.err


@pytest.fixture
def names() -> Iterator[Callable[..., str]]:
    """Makes names for frozen images, which are removed afterwards."""
    made: list[str] = []

    def name(text: str = "i") -> str:
        made.append(f"fzt-{os.getpid()}-{len(made)}-{text}")
        return made[-1]

    yield name
    for n in made:
        doppel_call("frozen", "rm", n)


@pytest.fixture
def clean(doppel: Any) -> Iterator[None]:
    """Checks that nothing was left behind."""
    groups, files = empty_groups(), set(left_files())
    yield
    doppel.end_started()
    if empty_groups() - groups or set(left_files()) - files:
        # What a killed `doppel` leaves is taken away by the next one.
        doppel_call("run", "--rm", "busybox", "--", "true").ok()
    assert eventually(lambda: not empty_groups() - groups), empty_groups() - groups
    assert set(left_files()) <= files, set(left_files()) - files


def empty_groups() -> set[str]:
    """Cgroups of domains that are gone; those of other domains on this host are not our business."""
    def empty(group: str) -> bool:
        try:
            return not open(f"{group}/cgroup.procs").read()
        except OSError:
            return False
    ours = lambda g: "-fzt-" in g or "-" not in os.path.basename(g)
    return {g for g in domain_cgroups() if ours(g) and empty(g)}


def left_files() -> Any:
    store = os.environ["DOPPEL_STORE"]
    return (
        glob.glob(f"{store}/frozen/.*")
        + glob.glob("/dev/shm/doppel-frozen*/.*")
        + [str(n) for n in NAMES.iterdir() if n.name.startswith("fzt-")]
    )


def answers(name: str) -> bool:
    """Whether a domain of this name runs and can be asked."""
    return doppel_call("stats", name).code == 0


def path_of(name: str) -> Any:
    store = os.environ["DOPPEL_STORE"]
    return next(
        p
        for p in [*glob.glob(f"/dev/shm/doppel-frozen*/{name}.frozen"), f"{store}/frozen/{name}.frozen"]
        if os.path.exists(p)
    )


def clones(frozen: str, *opts: Any) -> Any:
    """What each clone printed, as JSON says it."""
    return [json.loads(line) for line in doppel_call("clone", "--json", *opts, frozen).ok().splitlines()]


def small_disk(path: pathlib.Path, size: str) -> pathlib.Path:
    """A store with little room, which whoever asks unmounts."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", path], check=True)
    return path


def root_file(image: str) -> Any:
    """Where the store keeps a root image."""
    return re.search(r"^file +(\S+)$", doppel_call("image", "inspect", "--quick", image).ok(), re.M)[1]
