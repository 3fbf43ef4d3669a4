"""The memory a domain may have changes while it runs."""
import os

from conftest import DOPPEL, call

NAME = f"balloon-{os.getpid()}"

# Says how much memory there is and whether so many MiB can be had, once for each line.
PROBE = r"""
import mmap, sys
for line in sys.stdin:
    total = int(open("/proc/meminfo").readline().split()[1]) >> 10
    try:
        mmap.mmap(-1, int(line) << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
        print(total, "yes", flush=True)
    except OSError as e:
        print(total, e.errno, flush=True)
"""


def set_memory(*options):
    return call([DOPPEL, "debug", "memory", NAME, *options], "", 20)


def asks(p, mib):
    p.stdin.write(f"{mib}\n")
    p.stdin.flush()
    return p.stdout.readline().split()


def test_target_and_limit(domain):
    p = domain.start("python3", "-c", PROBE, image="debian", opts=["-i", "--name", NAME, "--memory", "512m"], text=True)
    try:
        assert asks(p, 300) == ["512", "yes"]
        set_memory("--limit", "512m", "--target", "128m").ok()
        # A target is no limit: a domain can have more, up to that.
        assert asks(p, 300) == ["512", "yes"]
        set_memory("--limit", "512m").ok()
        assert asks(p, 300) == ["512", "yes"]
        set_memory("--limit", "96m").ok()
        assert asks(p, 300) == ["96", "12"]
        refused = set_memory("--limit", "1m")
        assert refused.code == 125 and "at least 8 MiB" in refused.err
        assert asks(p, 32) == ["96", "yes"]
    finally:
        p.stdin.close()
        p.wait(20)
