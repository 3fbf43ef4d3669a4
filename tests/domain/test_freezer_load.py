"""Servers and runtimes frozen in the middle of their work: the original, clones, and clones of a clone go on.

Each program of load/ says "ready" once it is busy, and, after a line of input, checks that everything goes on and is
consistent, and says "ok". It is frozen at a moment of nobody's choosing; a clone of it is frozen again under load.
"""
import contextlib
import json
import os
import random
import re
import struct
import subprocess
import time

import pytest
from conftest import DOPPEL, HERE, descendants, eventually, have_image
from freezing import answers, clean, doppel_call, names, path_of  # noqa: F401
from images import need_image
from test_cli import Terminal

LOAD = HERE / "load"
# For one program to get ready or to check itself, on a busy machine.
PATIENCE = 90


def script(name):
    return (HERE / "servers/lib.sh").read_text() + (LOAD / name).read_text()


def say(p, what="go\n"):
    """Gives a program its line; value: what it says until its end."""
    out, err = p.communicate(what.encode(), timeout=PATIENCE)
    assert p.returncode == 0, (
        f"exit code {p.returncode}\n--- out\n{out[-2000:].decode()}\n--- err\n{err[-2000:].decode()}"
    )
    return out.decode()


@contextlib.contextmanager
def clone(frozen, *opts):
    """A clone with its standard streams as pipes."""
    p = subprocess.Popen(
        [DOPPEL, "clone", "-i", *opts, frozen], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield p
    finally:
        p.kill()
        p.communicate()


def frozen_and_cloned(names, name):
    """Freezes a domain at some moment, and a clone of it; both and a clone of the clone go on."""
    first, second = names("first"), names("second")
    time.sleep(random.random() * 0.05)
    doppel_call("freeze", "--in-memory", name, first).ok()
    # The original works on meanwhile.
    with clone(first, "--name", f"{name}-c") as c:
        assert eventually(lambda: answers(f"{name}-c"), 60)
        time.sleep(random.random() * 0.2)
        doppel_call("freeze", "--in-memory", f"{name}-c", second).ok()
        assert say(c) == "ok\n"
    with clone(second) as c:
        assert say(c) == "ok\n"
    doppel_call("frozen", "rm", first, second)


def survives(domain, names, *argv, image):
    """Freezes a program under load, and a clone of it; all go on."""
    tag = f"fzt-{os.getpid()}-{image}"
    p = domain.start(*argv, image=image, opts=["--name", tag])
    try:
        line = p.stdout.readline()
        assert line == b"ready\n", (line, p.stderr.read())
        frozen_and_cloned(names, tag)
        assert say(p) == "ok\n"
    finally:
        p.kill()
        p.communicate()


def test_redis(domain, names, clean):
    need_image("servers")
    survives(domain, names, "bash", "-c", script("redis.sh"), image="servers")


def test_postgres(domain, names, clean):
    need_image("servers")
    survives(domain, names, "bash", "-c", script("postgres.sh"), image="servers")


def test_traced_again_and_again(domain, names, clean):
    """A program under strace, 20 times frozen and cloned, each clone frozen and cloned too: neither tracer nor tracee
    waits for ever."""
    need_image("runtimes")
    tag, argv = f"fzt-{os.getpid()}-strace", ["bash", "-c", script("strace.sh")]
    p = domain.start(*argv, image="runtimes", opts=["--name", tag])
    try:
        line = p.stdout.readline()
        assert line == b"ready\n", (line, p.stderr.read())
        for _ in range(20):
            frozen_and_cloned(names, tag)
        assert say(p) == "ok\n"
    finally:
        p.kill()
        p.communicate()


def test_debugged(domain, names, clean):
    """Threads that a breakpoint stops all the time."""
    need_image("runtimes")
    source = (
        f"cat >/tmp/ticks.c <<'C'\n{(LOAD / 'ticks.c').read_text()}C\ngcc -g -O0 -pthread -o /tmp/ticks /tmp/ticks.c\n"
    )
    survives(domain, names, "bash", "-c", source + script("gdb.sh"), image="runtimes")


def test_jvm(domain, names, clean):
    need_image("runtimes")
    source = f"cat >/tmp/Load.java <<'J'\n{(LOAD / 'Load.java').read_text()}J\n"
    survives(
        domain,
        names,
        "bash",
        "-c",
        source + "exec java -Xmx64m -XX:TieredStopAtLevel=1 /tmp/Load.java",
        image="runtimes",
    )


def test_node(domain, names, clean):
    need_image("runtimes")
    survives(domain, names, "node", "-e", (LOAD / "http.js").read_text(), image="runtimes")


def test_go(domain, need, names, clean):
    need("goload")
    survives(domain, names, "/t/goload", "serve", image="domain-tests")


SHARING = r"""
import array, hashlib, time
read = lambda name: int(open("/sys/doppel/" + name).read())
open("/sys/power/state", "w").write("freeze\n")
me = read("clone_index")
# 4 MiB of pages that are the same in every clone.
data = array.array("Q", ((i * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF for i in range(4 << 17)))
right = hashlib.sha256(data).hexdigest()
own = array.array("Q", (me + i for i in range(1 << 15)))
while read("generation") == 1:
    time.sleep(0.02)
assert hashlib.sha256(data).hexdigest() == right
for at in range(0, len(data), 2048):
    data[at] = 1
assert sum(data[at] for at in range(0, len(data), 2048)) == len(data) // 2048
assert all(own[i] == me + i for i in range(len(own)))
print("right", me, right)
"""


def stats(name):
    return json.loads(doppel_call("stats", "--json", name).ok())


def test_clones_that_share_pages(domain, names, clean):
    """What a clone maps from the share file is in its own image, which needs neither the file nor the other clones."""
    warm, one, two = names("warm"), names("one"), names("two")
    domain.run("python3", "-c", SHARING, opts=["--freeze-as", warm, "--in-memory", "--freeze-stop"]).ok()
    tag = f"fzt-{os.getpid()}-share"
    p = subprocess.Popen(
        [DOPPEL, "clone", "--share", "-n", "2", "--name", tag, warm], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert eventually(lambda: answers(f"{tag}-1") and answers(f"{tag}-2"))
        for i in (1, 2):
            assert eventually(lambda: stats(f"{tag}-{i}")["shared_bytes"] > 3 << 20, PATIENCE), stats(f"{tag}-{i}")
        doppel_call("freeze", "--in-memory", f"{tag}-1", one).ok()
        doppel_call("freeze", f"{tag}-2", two).ok()
        # They run on and share on.
        assert all(stats(f"{tag}-{i}")["shared_bytes"] > 3 << 20 for i in (1, 2))
    finally:
        p.kill()
        p.communicate()
    said = [doppel_call("clone", one).ok(), *doppel_call("clone", "--share", "-n", "2", two).ok().splitlines()]
    words = [line.split("right ")[1].split() for line in said]
    assert [w[0] for w in words] == ["1", "2", "2"] and len({w[1] for w in words}) == 1, said


def cat_answers(t):
    """Types lines until the terminal echoes one and cat does. What comes too early finds the terminal raw, or still the
    host's."""
    end, k = time.monotonic() + PATIENCE, 0
    while not re.search(f"line {k}\r\nline {k}\r\n", t.text):
        assert time.monotonic() < end and t.p.poll() is None, t.text
        k += 1
        t.type(f"line {k}\r")
        t.look(1)
        t.look(0.1)
    t.expect(f"line {k}\r\nline {k}\r\n")


def test_shell_with_a_terminal(domain, clean):
    """Hibernated in the middle of a session: variables, jobs and the terminal are there after waking on another one."""
    if not have_image("debian"):
        pytest.skip("no image debian")
    name = f"fzt-{os.getpid()}-tty"
    t = Terminal([DOPPEL, "run", "--rm", "-it", "--name", name, "-e", "PS1=PROMPT> ", "debian", "--", "bash", "--norc"])
    try:
        t.expect("PROMPT> ")
        t.type("cd /tmp; X=five; set -m; sleep 777 &\r")
        t.expect("PROMPT> ")
        t.type("cat\r")
        cat_answers(t)
        for rows, columns in ((24, 80), (50, 132)):
            doppel_call("hibernate", name).ok()
            assert t.p.wait(60) == 0
            t.close()
            t = Terminal([DOPPEL, "wake", "-i", name], rows=rows, cols=columns)
            cat_answers(t)
        t.type("\x1a")
        t.expect("Stopped")
        t.type("echo $X-$PWD-$(jobs | grep -c 777); stty size; tty\r")
        t.expect(r"five-/tmp-1\r\n50 132\r\n/dev/\S+\r\n")
        t.type("fg\r")
        cat_answers(t)
        t.type("\x03")
        t.expect("PROMPT> ")
        t.type("kill %1; exit 3\r")
        assert t.p.wait(60) == 3
    finally:
        t.close()
        doppel_call("frozen", "rm", f"{name}.asleep")


def segments(path):
    """Runs of saved pages by address space: (address, length, offset), as common/abi/machine/src/frozen.rs has them."""
    spaces = {}
    with open(path, "rb") as f:
        header = f.read(696)
        for _ in range(struct.unpack_from("<Q", header, 40)[0]):
            space, _, *run = struct.unpack("<iIQQQ", f.read(32))
            if space > 0:
                spaces.setdefault(space, []).append(run)
    return spaces


def mapped(pid, inode):
    """What a process maps of a file: (start, end, offset)."""
    found = []
    for line in open(f"/proc/{pid}/maps"):
        (start, end), offset, ino = (
            (int(x, 16) for x in line.split()[0].split("-")),
            int(line.split()[2], 16),
            line.split()[4],
        )
        if int(ino) == inode:
            found.append((start, end, offset))
    return found


def memory_differs(pid, inode, spaces, image):
    """What a process that goes on from an image has otherwise than the address space that it is; none if there is no
    such."""
    there = mapped(pid, inode)
    for runs in spaces.values():
        # Each has a part of the file to itself. Addresses tell nothing: forked processes have the same.
        if not any(runs[0][2] <= o <= runs[-1][2] for _, _, o in there):
            continue
        with open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for address, length, offset in runs:
                memory.seek(address)
                image.seek(offset)
                try:
                    same = memory.read(length) == image.read(length)
                except OSError:
                    same = False  # not all of it is there yet
                if not same:
                    return f"{pid}: {length:#x} bytes at {address:#x}"
        return ""
    return None


def test_redis_in_clones_is_byte_for_byte_what_was_frozen(domain, names, clean):
    """Before they run, that is: every saved page is where it was, in a process of its own for each address space."""
    need_image("servers")
    tag, frozen, held = f"fzt-{os.getpid()}-bytes", names("bytes"), 3
    waiting = script("redis.sh").replace("read -r _", "read -r _ || sleep 1000")
    p = domain.start("bash", "-c", waiting, image="servers", opts=["--name", tag])
    try:
        line = p.stdout.readline()
        assert line == b"ready\n", (line, p.stderr.read())
        doppel_call("freeze", "--in-memory", tag, frozen).ok()
    finally:
        p.kill()
        p.communicate()
    path = path_of(frozen)
    inode, spaces = os.stat(path).st_ino, segments(path)
    assert len(spaces) > 3, "a shell, the server, its clients"

    def differences(domain_pid):
        with open(path, "rb", 0) as image:
            found = [memory_differs(pid, inode, spaces, image) for pid in descendants(domain_pid)]
        found = [f for f in found if f is not None]
        return found if len(found) == len(spaces) else ["not all there"]

    # One more is let go, and waits; the others are held as long as it does.
    c = subprocess.Popen(
        [DOPPEL, "clone", "--repeat", "1", "-n", str(held + 1), frozen],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        assert eventually(lambda: len(first_processes(c.pid)) == held + 1, 60)
        alike = lambda: sum(not any(differences(pid)) for pid in first_processes(c.pid))
        assert eventually(lambda: alike() >= held, 60), [differences(pid) for pid in first_processes(c.pid)]
    finally:
        c.kill()
        c.communicate()


def first_processes(pid):
    """Those of the domains that a process runs."""
    return [
        int(c) for t in os.listdir(f"/proc/{pid}/task") for c in open(f"/proc/{pid}/task/{t}/children").read().split()
    ]
