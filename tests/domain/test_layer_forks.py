"""Clones of domains with many kept files: a clone's layer lies on what the domain's had when it was frozen."""
import os
import subprocess
import uuid
from collections.abc import Iterator

import pytest
from conftest import Domain, command

STORE = os.environ.get("DOPPEL_STORE", "/var/lib/doppel")
# Files of 24 MiB, a page of each with a number of its own; what it is asked for over its input it does.
PARENT = r"""
import hashlib, os, sys
PAGE, PAGES = 4096, 3072
os.makedirs("/k", exist_ok=True)
def page(f, p, g): return (b"%d.%d.%d|" % (f, p, g) * 700)[:PAGE]
held = {(f, p): 0 for f in (0, 1) for p in range(PAGES)}
fds = [os.open("/k/%d" % f, os.O_RDWR | os.O_CREAT) for f in (0, 1)]
for f in (0, 1): os.pwrite(fds[f], b"".join(page(f, p, 0) for p in range(PAGES)), 0)
def put(g, step, first):
    for f in (0, 1):
        for p in range(first, PAGES, step):
            os.pwrite(fds[f], page(f, p, g), p * PAGE)
            held[f, p] = g
def check():
    for (f, p), g in held.items():
        got = os.pread(fds[f], PAGE, p * PAGE)
        assert got == page(f, p, g), (f, p, g, got[:20])
def freeze():
    with open("/sys/power/state", "w") as f: f.write("freeze")
    return open("/sys/doppel/args").read().split()
"""


@pytest.fixture
def name() -> Iterator[str]:
    one = "forks-" + uuid.uuid4().hex[:10]
    yield one
    for frozen in (one, one + "-2", one + "-c"):
        command("frozen", "rm", frozen)
    command("layer", "rm", "-f", one)


def options(name: str, *more: str) -> tuple[str, ...]:
    return ("--standalone", f"--persist={name}", "--memory", "512M", *more)


def test_neither_side_sees_what_the_other_writes(domain: Domain, name: str) -> None:
    """Whoever goes on reads what there was at the freeze, writes, and is checked page by page; a clone's clone too."""
    script = PARENT + r"""
args = freeze()
who = int(args[0]) if args else 9
check()
put(who, 3, who % 3)
os.sync()
put(who + 100, 7, who % 7)
check()
print(who, "good", flush=True)
"""
    argv = domain.argv("python3", "-c", script, image="debian", opts=options(name, "--name", name, "--freeze-as", name))
    out = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert (out.returncode, out.stdout) == (0, "9 good\n"), (out.stdout, out.stderr)
    frozen = f"{STORE}/frozen/{name}.layers"
    assert sorted(os.listdir(frozen)) == ["0", "stack"]
    for n in (1, 2):
        assert command("clone", "--arg", str(n), name).ok() == f"{n} good\n"
    both = command("clone", "-n", "2", "--arg", "5", name).ok().splitlines()
    assert len(both) == 2 and all("5 good" in line for line in both), both
    # The domain starts anew with what it had written; that frees what its clones still read.
    again = ("sh", "-c", "rm -r /k; head -c 30000000 /dev/urandom > /new; sync; rm /new; sync; echo gone")
    assert domain.run(*again, image="debian", opts=options(name)).ok() == "gone\n"
    assert command("clone", "--arg", "3", name).ok() == "3 good\n"
    assert not [line for line in command("layer", "ls", "-q").ok().split() if line.startswith("clone-")]
    command("frozen", "rm", name).ok()
    assert not os.path.exists(frozen)


def test_a_clone_is_frozen_again(domain: Domain, name: str) -> None:
    """Its files are then in two layers, and in a third one of the clone's clone."""
    script = PARENT + r"""
if freeze():
    put(1, 2, 0)
    check()
    again = freeze()
    check()
    put(2, 5, 0)
    os.sync()
    check()
    print("good", *again, flush=True)
"""
    argv = domain.argv("python3", "-c", script, image="debian", opts=options(name, "--name", name, "--freeze-as", name))
    assert subprocess.run(argv, capture_output=True, timeout=120).returncode == 0
    second = name + "-2"
    assert command("clone", "--arg", "a", "--freeze-as", second, name).ok() == "good a\n"
    command("frozen", "rm", name).ok()
    assert command("clone", "--arg", "b", second).ok() == "good b\n"
    assert sorted(os.listdir(f"{STORE}/frozen/{second}.layers")) == ["0", "1", "stack"]
