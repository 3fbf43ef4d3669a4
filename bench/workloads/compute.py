"""1 to 128 domains that compute, against as many processes (Xen Fig. 6); and whether weights are kept (Xen Fig. 5).

Each counts its work in a window that begins when all have started. The split among weights is against the ideal one:
100 % less what the worst served lacks or the best served has too much.
"""
from harness.runtimes import Failed
from harness.together import ahead, outputs

UNIT = "/s"
# Interleaved: targets are near, and the machine's speed changes by some percent within minutes.
REPEATS = 3
WEIGHTS = range(1, 9)
TARGETS = {"compute: 128 at once": 0.98, "compute: weights 1 to 8, of the ideal split": 98}


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
    for n in [8] if opt.quick else [1, 2, 4, 8, 16, 32, 64, 128]:
        yield f"compute: {n} at once", sum(counts([runtime] * n, seconds)) / seconds
    if runtime.name not in ("native", "runsc", "bwrap") and not (opt.quick and runtime.name != "doppel"):
        yield "compute: weights 1 to 8, of the ideal split", (split(runtime, 1 if opt.quick else 10), "%")
