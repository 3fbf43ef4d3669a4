"""Wall time of a whole `busybox true`: from the command line, or from the request to the supervisor, to its end."""
import subprocess
import time

from harness.runtimes import Failed

UNIT = "ns"
REPEATS = 20
QUICK = 3
ALSO = ("doppel-api", "crun")
ROW = "cold start of `busybox true`"


def measure(runtime, opt):
    if runtime.name == "doppel-api":
        return {ROW: runtime.cycle("/bin/busybox", "true")}
    argv = runtime.argv("/bin/busybox", "true")
    t = time.perf_counter_ns()
    p = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    t = time.perf_counter_ns() - t
    if p.returncode:
        raise Failed(f"{runtime.name}: true ended with {p.returncode}: {p.stderr.strip()[-200:]}")
    return {ROW: t}
