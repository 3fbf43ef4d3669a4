"""Servers and runtimes frozen in the middle of their work: the original, clones, and clones of a clone go on.

Each program of load/ says "ready" once it is busy, and, after a line of input, checks that everything goes on and is
consistent, and says "ok". It is frozen at a moment of nobody's choosing; a clone of it is frozen again under load.
"""
import contextlib
import json
import os
import random
import re
import subprocess
import time

import pytest

from conftest import DOPPEL, HERE, eventually, have_image
from freezing import answers, clean, doppel_call, names  # noqa: F401
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
    assert p.returncode == 0, f"exit code {p.returncode}\n--- out\n{out[-2000:].decode()}\n--- err\n{err[-2000:].decode()}"
    return out.decode()


@contextlib.contextmanager
def clone(frozen, *opts):
    """A clone with its standard streams as pipes."""
    p = subprocess.Popen([DOPPEL, "clone", "-i", *opts, frozen], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield p
    finally:
        p.kill()
        p.communicate()


def survives(domain, names, *argv, image):  # noqa: F811
    """Freezes a program under load, and a clone of it; all go on."""
    tag = f"fzt-{os.getpid()}-{image}"
    first, second = names("first"), names("second")
    p = domain.start(*argv, image=image, opts=["--name", tag])
    try:
        line = p.stdout.readline()
        assert line == b"ready\n", (line, p.stderr.read())
        time.sleep(random.random() * 0.05)
        doppel_call("freeze", "--in-memory", tag, first).ok()
        # The original works on meanwhile.
        with clone(first, "--name", f"{tag}-c") as c:
            assert eventually(lambda: answers(f"{tag}-c"), 20)
            time.sleep(random.random() * 0.2)
            doppel_call("freeze", "--in-memory", f"{tag}-c", second).ok()
            assert say(c) == "ok\n"
        with clone(second) as c:
            assert say(c) == "ok\n"
        assert say(p) == "ok\n"
    finally:
        p.kill()
        p.communicate()


def test_redis(domain, names, clean):  # noqa: F811
    need_image("servers", "image-servers")
    survives(domain, names, "bash", "-c", script("redis.sh"), image="servers")


def test_postgres(domain, names, clean):  # noqa: F811
    need_image("servers", "image-servers")
    survives(domain, names, "bash", "-c", script("postgres.sh"), image="servers")


def test_jvm(domain, names, clean):  # noqa: F811
    need_image("runtimes", "image-runtimes")
    source = f"cat >/tmp/Load.java <<'J'\n{(LOAD / 'Load.java').read_text()}J\n"
    survives(domain, names, "bash", "-c", source + "exec java -Xmx64m -XX:TieredStopAtLevel=1 /tmp/Load.java", image="runtimes")


def test_node(domain, names, clean):  # noqa: F811
    need_image("runtimes", "image-runtimes")
    survives(domain, names, "node", "-e", (LOAD / "http.js").read_text(), image="runtimes")


def test_go(domain, need, names, clean):  # noqa: F811
    need("goload")
    survives(domain, names, "/t/goload", "serve", image="domain-tests")


SHARING = r"""
import array, hashlib, time
read = lambda name: int(open("/sys/doppel/" + name).read())
open("/sys/power/state", "w").write("freeze\n")
# 4 MiB of pages that are the same in every clone.
data = array.array("Q", ((i * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF for i in range(4 << 17)))
right = hashlib.sha256(data).hexdigest()
me = read("clone_index")
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


def test_clones_that_share_pages(domain, names, clean):  # noqa: F811
    """What a clone maps from the share file is in its own image, which needs neither the file nor the other clones."""
    warm, one, two = names("warm"), names("one"), names("two")
    domain.run("python3", "-c", SHARING, opts=["--freeze-as", warm, "--in-memory", "--freeze-stop"]).ok()
    tag = f"fzt-{os.getpid()}-share"
    p = subprocess.Popen([DOPPEL, "clone", "--share", "-n", "2", "--name", tag, warm], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert eventually(lambda: answers(f"{tag}-1") and answers(f"{tag}-2"), 20)
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
    """Types lines until the terminal echoes one and cat does. What comes too early finds the terminal raw, or still the host's."""
    end, k = time.monotonic() + PATIENCE, 0
    while not re.search(f"line {k}\r\nline {k}\r\n", t.text):
        assert time.monotonic() < end and t.p.poll() is None, t.text
        k += 1
        t.type(f"line {k}\r")
        t.look(1)
        t.look(0.1)
    t.expect(f"line {k}\r\nline {k}\r\n")


def test_shell_with_a_terminal(domain, clean):  # noqa: F811
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
            assert t.p.wait(20) == 0
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
        assert t.p.wait(20) == 3
    finally:
        t.close()
        doppel_call("frozen", "rm", f"{name}.asleep")
