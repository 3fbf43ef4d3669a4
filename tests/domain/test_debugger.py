"""gdb on a program whose system calls are patched, as it is natively: breakpoints, backtraces through a signal
frame and the call that it interrupted, finishing functions."""
import os
import re
import shutil
import subprocess

import pytest
from conftest import BUILD, HERE
from images import make_image

COMMANDS = [
    "set pagination off",
    "set startup-with-shell off",
    "handle SIGUSR1 nostop noprint pass",
    "break handler",
    "run",
    "bt",
    "up 2",
    "info registers rip",
    "down 2",
    "finish",
    "bt",
    "finish",
    "info registers rip",
    "finish",
    "delete",
    "continue",
]


@pytest.fixture(scope="module")
def image(doppel):
    gdb = shutil.which("gdb")
    if not gdb:
        pytest.skip("gdb is not installed")
    BUILD.mkdir(parents=True, exist_ok=True)
    program = BUILD / "debugged"
    # Not position-independent, so that addresses are the same everywhere.
    subprocess.run(["gcc", "-O1", "-g", "-static", "-no-pie", "-o", program, HERE / "progs/debugged.c"], check=True)
    # Without its scripts and Python's library gdb works, with complaints.
    data = [d for d in ("/usr/share/gdb", "/usr/lib/python3.11", "/usr/lib/python3.13") if os.path.isdir(d)]
    extra = [(program, "bin/debugged"), *((d, d[1:]) for d in data)]
    return make_image("domain-gdb", [os.path.realpath(gdb)], extra), os.path.realpath(gdb), program


def essence(text):
    """What must not differ between places: frames, addresses in the program, values, the end."""
    keep = re.compile(r"^(#\d|rip|Run till|Value returned|Breakpoint|Temporary|\[Inferior|Program)|value \d")
    lines = [re.sub(r"process \d+", "process N", line) for line in text.splitlines() if keep.search(line)]
    # Where libc's sources are is the debugger's business.
    return [re.sub(r" \(/.*$| at \.\./.*$| at \./.*$", "", line) for line in lines]


def test_gdb_sees_no_patches(doppel, image):
    name, gdb, program = image
    script = [x for c in COMMANDS for x in ("-ex", c)]
    argv = [gdb, "-nx", "-q", "-batch", *script]
    env = {"LC_ALL": "C.UTF-8"}
    native = subprocess.run(
        [*argv, str(program)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **env},
    )
    expected = essence(native.stdout)
    assert any("<signal handler called>" in line for line in expected), native.stdout + native.stderr
    assert any("kill" in line for line in expected) and "value 11" in native.stdout
    for opts in ((), ("--no-patch",)):
        r = doppel.run(*argv, "/bin/debugged", image=name, env=env, opts=opts, timeout=90)
        assert essence(r.out) == expected, r.out + r.err
