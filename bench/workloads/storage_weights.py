"""Domains of I/O weights 1 to 8 that ask one storage service for more than it does (Xen 4.3's weights, for files).

Each does transactions of four reads and a write of 16 KB at random places of a file, from four threads, in a
directory of the host, so that each is a request; then the same with an fdatasync each, which the disk does and not
the service. How near the shares are to those of the weights is as in `compute`: 100 % less what the worst served
lacks or the best served has too much. Two domains, of weights 1 and 8, say whether weights count at all.
"""
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from harness.place import Place
from harness.runtimes import Cannot, Failed
from harness.together import ahead, outputs

UNIT = "%"
REPEATS = 3
KINDS = {"reads and writes": "0", "reads, writes and fdatasync": "1"}
WEIGHTS = {"weights 1 to 8": range(1, 9), "weights 1 and 8": (1, 8)}
ROW = "storage: {}, {}, of the ideal split"
# Within a tenth of the weights.
TARGETS = {ROW.format(kind, shown): 90 for kind in KINDS for shown in WEIGHTS}
THREADS = "4"


def done(runtimes: Sequence[Any], seconds: float, synced: str) -> list[int]:
    """Transactions of each in the same time."""
    for attempt in range(3):
        # They make their files first.
        at = f"{ahead(8 * len(runtimes), attempt):.3f}"
        command = ["/storage", "pages", "/mnt", at, str(seconds), THREADS, synced]
        out = outputs(list(runtimes), lambda _: command)
        if "late\n" not in out:
            return [int(n) for n in out]
    raise Failed(f"{runtimes[0].name}: not all of {len(runtimes)} have started in time")


def measure(runtime: Any, opt: Any) -> Iterator[tuple[str, Any]]:
    if runtime.name != "doppel":
        raise Cannot(f"{runtime.name}: nothing weighs its files here")
    seconds = 2 if opt.quick else 8
    for kind, synced in KINDS.items():
        for shown, weights in WEIGHTS.items():
            with contextlib.ExitStack() as all_of:
                places = [Place(runtime.limited(io_weight=100 * w), "directory") for w in weights]
                got = done([all_of.enter_context(place) for place in places], seconds, synced)
            split = 100 * (1 - max(abs(n / sum(got) * sum(weights) / w - 1) for n, w in zip(got, weights)))
            yield ROW.format(kind, shown), split
            # How many times the lightest one's the heaviest one has; a weight of 8 is to have 8 times as much.
            yield f"storage: {kind}, {shown}, the heaviest's of the lightest's", (got[-1] / max(got[0], 1), "n")
            yield f"storage: {kind}, {shown}, all", (sum(got) / seconds, "/s")
