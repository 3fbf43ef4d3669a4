"""Memory that comes back: what a domain has beyond its target leaves memory, and comes back when it is touched."""
import os
import pathlib
import re
import time

import pytest
from conftest import DOPPEL, call, command, descendants, eventually

MIB = 1 << 20
HIERARCHIES = pathlib.Path("/sys/fs/cgroup")

# Has so many MiB, no page like another, and uses the first eight of them; answers lines with what it finds of all.
HOLDER = r"""
import hashlib, mmap, sys, threading
mib = int(sys.argv[1])
m = mmap.mmap(-1, mib << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
want = hashlib.sha256()
for i in range(mib):
    block = b"".join(hashlib.sha256(b"%d %d" % (i, k)).digest() * 128 for k in range(256))
    m[i << 20:(i + 1) << 20] = block
    want.update(block)
turns = 0
def work():
    global turns
    while True:
        for at in range(0, 8 << 20, 4096):
            m[at + 4095] = m[at + 4095]
        turns += 1
threading.Thread(target=work, daemon=True).start()
print("up", flush=True)
for line in sys.stdin:
    before = turns
    all = hashlib.sha256()
    for i in range(mib): all.update(m[i << 20:(i + 1) << 20])
    swap = {k: int(v.split()[0]) for k, v in (l.split(":") for l in open("/proc/meminfo")) if k.startswith("Swap")}
    out = int(next(l for l in open("/proc/self/status") if l.startswith("VmSwap")).split()[1])
    print(all.digest() == want.digest(), turns > 0, swap["SwapTotal"], swap["SwapFree"], out, flush=True)
"""


def in_group(pid):
    """What the control group of the domain that this command runs has in memory, in bytes: page cache too."""
    first = min(descendants(pid))
    for line in pathlib.Path(f"/proc/{first}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return int((HIERARCHIES / controllers / path.lstrip("/") / "memory.usage_in_bytes").read_text())
        if number == "0" and (HIERARCHIES / path.lstrip("/") / "memory.current").exists():
            return int((HIERARCHIES / path.lstrip("/") / "memory.current").read_text())
    raise AssertionError("no control group counts its memory")


def start(domain, *argv, **opts):
    options = [f"--{k.replace('_', '-')}={v}" for k, v in opts.items()]
    p = domain.start(*argv, opts=[*options, "--cpus", "2"], text=True)
    assert p.stdout.readline() == "up\n", p.stderr.read()
    return p


def ask(p):
    p.stdin.write("\n")
    p.stdin.flush()
    right, works, total, free, out = p.stdout.readline().split()
    return right == "True", works == "True", int(total), int(free), int(out)


def test_a_target_is_reached_while_the_program_runs_and_nothing_is_lost(domain):
    p = start(domain, "python3", "-c", HOLDER, "396", memory="512m")
    assert in_group(p.pid) > 390 * MIB
    p.kill()
    p.wait()
    p = start(domain, "python3", "-c", HOLDER, "396", memory="512m", memory_target="64m")
    begun = time.monotonic()
    assert eventually(lambda: in_group(p.pid) < 80 * MIB), in_group(p.pid) // MIB
    print(f"below 80 MiB after {time.monotonic() - begun:.1f} s: {in_group(p.pid) // MIB} MiB")
    right, works, total, free, out = ask(p)
    assert right and works and total == 512 << 10 and free < total - (300 << 10) and out > 300 << 10
    assert eventually(lambda: in_group(p.pid) < 80 * MIB), in_group(p.pid) // MIB
    assert ask(p)[:2] == (True, True)


def test_a_target_is_set_and_taken_back_live(domain):
    name = f"target-{os.getpid()}"
    p = start(domain, "python3", "-c", HOLDER, "96", memory="256m", memory_swap="512m", name=name)
    assert in_group(p.pid) > 90 * MIB
    assert ask(p)[2:] == (256 << 10, 256 << 10, 0)
    command("debug", "memory", name, "--limit", "256m", "--target", "32m").ok()
    assert eventually(lambda: in_group(p.pid) < 48 * MIB), in_group(p.pid) // MIB
    # Another program runs there, although the domain is at its target, and has what it asks for.
    some = "import mmap; m = mmap.mmap(-1, 64 << 20); m[:] = b'x' * (64 << 20); print(len(m))"
    assert command("exec", name, "python3", "-c", some).ok() == f"{64 << 20}\n"
    command("debug", "memory", name, "--limit", "256m").ok()
    assert ask(p)[:2] == (True, True)
    before = in_group(p.pid)
    time.sleep(1)
    assert ask(p)[:2] == (True, True) and in_group(p.pid) > before - MIB


@pytest.mark.parametrize("cpus", ["1", "2"])
def test_everything_a_program_does_with_memory_that_leaves(domain, need, cpus):
    need("paging")
    opts = ["--memory", "512m", "--memory-target", "24m", "--cpus", cpus]
    out = domain.run("/t/paging", "64", "8", opts=opts, timeout=240).ok()
    counts = re.search(r"^ok (\d+) checks, (\d+) turns, (\d+) forks, (\d+) changes$", out, re.M)
    assert counts and min(map(int, counts.groups())) > 0, out


def test_a_full_region_leaves_the_rest_in_memory(domain):
    p = start(domain, "python3", "-c", HOLDER, "128", memory="256m", memory_swap="272m", memory_target="16m")
    total = 16 << 10

    def full():
        right, works, size, free, out = ask(p)
        assert right and works and size == total
        # What is left is smaller than what leaves at a time.
        return free < total // 4 and out > total * 3 // 4

    assert eventually(full)
    assert 100 * MIB < in_group(p.pid) < 256 * MIB


def test_frozen_and_cloned_with_pages_out(domain):
    name, image = f"paged-{os.getpid()}", f"paged-image-{os.getpid()}"
    p = start(domain, "python3", "-c", HOLDER, "96", memory="256m", memory_target="32m", name=name)
    try:
        assert eventually(lambda: in_group(p.pid) < 48 * MIB), in_group(p.pid) // MIB
        command("freeze", name, image).ok()
        assert ask(p)[:2] == (True, True)
        # The clone has no region: what was out is in its image. The one below pages anew.
        script = "for i in 1 2; do sleep 1; echo; done"
        for more in ([], ["--memory-target", "24m"]):
            out = call(["sh", "-c", f"({script}) | {DOPPEL} clone -i {' '.join(more)} {image}"], b"", 120).ok()
            assert out.count("True True") == 2, out
        assert ask(p)[:2] == (True, True)
    finally:
        command("frozen", "rm", image)


def test_the_region_is_nobodys_when_its_domain_has_ended(domain):
    store = os.environ.get("DOPPEL_STORE", "/var/lib/doppel")

    def used():
        s = os.statvfs(store)
        return (s.f_blocks - s.f_bfree) * s.f_frsize

    p = start(domain, "python3", "-c", HOLDER, "96", memory="256m", memory_target="24m")
    assert eventually(lambda: in_group(p.pid) < 48 * MIB), in_group(p.pid) // MIB
    first = min(descendants(p.pid))
    region = os.stat(f"/proc/{first}/fd/12")
    assert region.st_nlink == 0 and region.st_blocks * 512 > 48 * MIB and region.st_mode & 0o77 == 0
    assert os.stat(store).st_dev == region.st_dev
    p.kill()
    p.wait()
    assert eventually(lambda: not os.path.exists(f"/proc/{first}"))


def test_wrong_sizes_are_refused(doppel):
    for swap, what in (("100m", "memory_swap_bytes"), ("x", "--memory-swap")):
        refused = command("run", "--memory", "128m", "--memory-swap", swap, "busybox", "true")
        assert refused.code != 0 and what in refused.err, refused.err
    refused = command("run", "--memory-swap", "128m", "busybox", "true")
    assert refused.code != 0 and "memory_swap_bytes" in refused.err, refused.err
