"""1 to 128 domains that compute, against as many processes (Xen Fig. 6); and whether weights are kept (Xen Fig. 5).

Each counts its work in a window that begins when all have started. The split among weights is against the ideal one:
100 % less what the worst served lacks or the best served has too much; the median of three such splits.
"""
import statistics

from harness.runtimes import Failed
from harness.together import ahead, outputs

UNIT = "/s"
REPEATS = 1
WEIGHTS = range(1, 9)
# Measured three times: its target is near, and the machine's speed changes by some percent.
MOST = 128
TARGETS = {f"compute: {MOST} at once": 0.98, "compute: weights 1 to 8, of the ideal split": 98}


def counts(runtimes, seconds):
    for attempt in range(3):
        out = outputs(runtimes, ["/work", "count", f"{ahead(len(runtimes), attempt):.3f}", str(seconds), "1"])
        if "late\n" not in out:
            return [int(n) for n in out]
    raise Failed(f"{runtimes[0].name}: not all of {len(runtimes)} have started in time")


def split(runtime, seconds):
    """How near the split of CPU time is to that of the weights, in percent."""
    done = counts([runtime.limited(weight=100 * w) for w in WEIGHTS], seconds)
    return 100 * (1 - max(abs(d / sum(done) * sum(WEIGHTS) / w - 1) for d, w in zip(done, WEIGHTS)))


def measure(runtime, opt):
    seconds = 1 if opt.quick else 5
    rows = {}
    for n in [8] if opt.quick else [1, 2, 4, 8, 16, 32, 64, MOST]:
        sums = [sum(counts([runtime] * n, seconds)) for _ in range(3 if n == MOST else 1)]
        rows[f"compute: {n} at once"] = statistics.median(sums) / seconds
    if runtime.name not in ("native", "runsc", "bwrap") and not (opt.quick and runtime.name != "doppel"):
        seconds = 1 if opt.quick else 10
        kept = statistics.median(split(runtime, seconds) for _ in range(1 if opt.quick else 3))
        rows["compute: weights 1 to 8, of the ideal split"] = (kept, "%")
    return rows
