"""Domains of weights 1 to 8 that ask one storage service for more than it does (Xen 4.3's weights, for files).

Each does transactions from four threads, in a directory of the host, so that all is asked of the service: files made,
renamed and removed, which is work of the service mostly; four reads and a write of 16 KB at random places, which is as
much work of the domain, so that its CPU weight counts too; and those with an fdatasync, which the disk does. How near
the shares are to those of the weights is as in `compute`: 100 % less what the worst served lacks or the best served has
too much.
"""
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from harness.place import Place
from harness.runtimes import Cannot, Failed
from harness.together import ahead, outputs

UNIT = "%"
REPEATS = 3
NAMES, PAGES, SYNCED = "names", "pages", "synced"
SHOWN = {NAMES: "names", PAGES: "reads and writes", SYNCED: "reads, writes and fdatasync"}
EIGHT, TWO = range(1, 9), (1, 8)
IO, BOTH = "I/O weights", "I/O and CPU weights"
# What is done, the weights, and of what they are.
CASES = [(NAMES, EIGHT, IO), (NAMES, TWO, IO), (PAGES, EIGHT, IO), (PAGES, EIGHT, BOTH), (SYNCED, EIGHT, BOTH)]
THREADS = "4"


def row(what: str, weights: Sequence[int], whose: str) -> str:
    return f"storage: {SHOWN[what]}, {whose} 1 {'to' if len(weights) > 2 else 'and'} 8"


# Within a tenth of the weights.
TARGETS = {f"{row(*case)}, of the ideal split": 90 for case in CASES if case[0] == NAMES or case[2] == BOTH}


def done(runtimes: Sequence[Any], what: str, seconds: float) -> list[int]:
    """Transactions of each in the same time."""
    for attempt in range(3):
        # They make their files first.
        at = f"{ahead(8 * len(runtimes), attempt):.3f}"
        command = ["/storage", "load", what, "/mnt", at, str(seconds), THREADS]
        out = outputs(list(runtimes), lambda _: command)
        if "late\n" not in out:
            return [int(n) for n in out]
    raise Failed(f"{runtimes[0].name}: not all of {len(runtimes)} have started in time")


def measure(runtime: Any, opt: Any) -> Iterator[tuple[str, Any]]:
    if runtime.name != "doppel":
        raise Cannot(f"{runtime.name}: nothing weighs its files here")
    seconds = 2 if opt.quick else 8
    for what, weights, whose in CASES:
        limits = [{"io_weight": 100 * w} | ({"weight": 100 * w} if whose == BOTH else {}) for w in weights]
        with contextlib.ExitStack() as all_of:
            places = [Place(runtime.limited(**limit), "directory") for limit in limits]
            got = done([all_of.enter_context(place) for place in places], what, seconds)
        split = 100 * (1 - max(abs(n / sum(got) * sum(weights) / w - 1) for n, w in zip(got, weights)))
        yield f"{row(what, weights, whose)}, of the ideal split", split
        yield f"{row(what, weights, whose)}, all", (sum(got) / seconds, "/s")
