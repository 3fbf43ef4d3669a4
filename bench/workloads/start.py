"""Wall time of short commands: a whole `busybox true`, from the command line, or from the request to the supervisor, to
its end; the same by a command that asks the supervisor (`doppel-api`); and a command that does nothing (`true`; the
runtime's `--version`)."""
import os
import subprocess
import time

from harness.runtimes import Failed

UNIT = "ns"
REPEATS = 20
QUICK = 3
ALSO = ("doppel-api", "crun")
ROW = "cold start of `busybox true`"
# Of doppel-api alone.
ASKED = "`doppel run --rm busybox true` by the supervisor"
NOTHING = "a command that does nothing (`--version`)"
IDLE = ("native", "doppel", "runc", "crun")


def timed(runtime, argv, **how):
    t = time.perf_counter_ns()
    p = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, **how)
    t = time.perf_counter_ns() - t
    if p.returncode:
        raise Failed(f"{runtime.name}: {argv} ended with {p.returncode}: {p.stderr.strip()[-200:]}")
    return t


def measure(runtime, opt):
    if runtime.name == "doppel-api":
        by_api = runtime.cycle("/bin/busybox", "true")
        env = {**os.environ, "DOPPEL_HOST": f"unix://{runtime.supervisor.socket}"}
        argv = [runtime.doppel, "run", "--rm", "bench", "--", "/bin/busybox", "true"]
        return {ROW: by_api, ASKED: timed(runtime, argv, env=env)}
    times = {ROW: timed(runtime, runtime.argv("/bin/busybox", "true"))}
    if runtime.name in IDLE:
        program = {"native": "true", "doppel": getattr(runtime, "path", "")}.get(runtime.name, runtime.name)
        times[NOTHING] = timed(runtime, [program] if runtime.name == "native" else [program, "--version"])
    return times
