"""Single operations of the kernel interface; src/micro.c times itself."""
from harness.runtimes import Failed

UNIT = "ns"
TARGETS = {
    "getppid": 0.2,
    "read 1 B": 0.2,
    "write 1 B": 0.2,
    "pread 4 KB": 0.6,
    "stat": 0.6,
    "open+close": 0.6,
    "pipe write+read": 0.2,
    "pipe round trip, 2 processes": 1.0,
    "futex ping-pong, 2 threads": 0.2,
    "fork+exit+wait": 1.5,
    "fork+exec+wait, 1 GB parent": 1.0,
    "mmap+touch 64 KB+munmap": 1.2,
    "AF_UNIX round trip": 1.0,
    "TCP loopback round trip": 1.0,
}


def measure(runtime, opt):
    failure = None
    try:
        out = runtime.run("/micro", *(("-n", "1", "-t", "3") if opt.quick else ("-n", "5")), *opt.only)
    except Failed as e:
        out, failure = e.out, e
    rows = {}
    for line in out.splitlines():
        name, _, value = line.rpartition(": ")
        try:
            rows[name] = float(value)
        except ValueError:
            failure = Failed(f"{runtime.name}: {line}")
    if not rows and failure:
        raise failure
    return rows
