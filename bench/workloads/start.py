"""Wall time of a whole `busybox true`, from the command line to its end."""
import subprocess
import time

from harness.runtimes import Failed

UNIT = "ns"
REPEATS = 20


def measure(runtime, opt):
    argv = runtime.argv("/bin/busybox", "true")
    t = time.perf_counter_ns()
    p = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    t = time.perf_counter_ns() - t
    if p.returncode:
        raise Failed(f"{runtime.name}: true ended with {p.returncode}: {p.stderr.strip()[-200:]}")
    return {"cold start of `busybox true`": t}
