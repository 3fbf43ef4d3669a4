"""lmbench's categories, as Xen (Tables 3-5) and the para/paene study (Tables 1-2) have them; src/lmb.c times itself.

Its TCP throughput by window stands for the para/paene study's Table 3 and Denali's 4.1.4, over loopback; by MTU it is
`mtu`'s. Its writes of different sizes are VirtuOS' Fig. 3.
"""
from harness.runtimes import Failed

UNIT = "ns"
REPEATS = 3


def measure(runtime, opt):
    rows = {}
    out = runtime.run("/lmb", *(("-n", "1", "-t", "3") if opt.quick else ("-n", "5")), timeout=300)
    for line in out.splitlines():
        name, _, value = line.rpartition(": ")
        try:
            rows[name] = (float(value), "MB/s" if name.startswith("bandwidth") else "ns")
        except ValueError:
            raise Failed(f"{runtime.name}: {line}") from None
    return rows
