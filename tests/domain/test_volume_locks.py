"""Locks of files on volumes hold between domains, para and paene, and the host; and outlive the storage service."""
import contextlib
import fcntl
import os
import signal
import subprocess
import time

import pytest
from conftest import DOPPEL, Running, eventually, have_image
from test_volume_kills import services

UP = ("sh", "-c", "echo up; exec sleep 1000")
# Commands of a helper inside: one lock request each line, one answer each.
HELPER = """
import fcntl, os, struct, sys
F = {}
def file(name):
    if name not in F:
        F[name] = os.open("/v/" + name, os.O_RDWR | os.O_CREAT, 0o666)
    return F[name]
KINDS = {"r": fcntl.F_RDLCK, "w": fcntl.F_WRLCK, "u": fcntl.F_UNLCK}
def answer(how, name, kind, start, length):
    if how == "flock":
        op = {"r": fcntl.LOCK_SH, "w": fcntl.LOCK_EX, "u": fcntl.LOCK_UN}[kind]
        fcntl.flock(file(name), op | fcntl.LOCK_NB)
        return "ok"
    if how == "close":
        os.close(F.pop(name))
        return "ok"
    command = {"posix": fcntl.F_SETLK, "ofd": 37, "get": fcntl.F_GETLK, "wait": fcntl.F_SETLKW}[how]
    lock = struct.pack("hhqqi4x", KINDS[kind], 0, int(start), int(length), 0)
    found = struct.unpack("hhqqi4x", fcntl.fcntl(file(name), command, lock))
    return " ".join(map(str, found)) if how == "get" else "ok"
for line in sys.stdin:
    try:
        said = answer(*line.split())
    except OSError as e:
        said = e.strerror
    print(said, flush=True)
"""


@pytest.fixture(autouse=True)
def python():
    if not have_image("runtimes"):
        pytest.skip("no image runtimes: make test-images")


class Locker:
    """A process, in a domain or on the host, that locks what it is told to."""

    def __init__(self, argv, directory=None) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=directory)

    def __call__(self, how, name="f", kind="-", start=0, length=0):
        self.ask(how, name, kind, start, length)
        return self.answer()

    def ask(self, how, name, kind, start=0, length=0):
        self.process.stdin.write(f"{how} {name} {kind} {start} {length}\n")
        self.process.stdin.flush()

    def answer(self):
        said = self.process.stdout.readline()
        assert said, self.process.stderr.read()
        return said.strip()


@contextlib.contextmanager
def domain(directory, kind="para"):
    if kind == "paene" and os.geteuid() != 0:
        pytest.skip("paene domains need root")
    run = [DOPPEL, "run", "--rm", "-i", "--standalone", "--kind", kind, "-v", f"{directory}:/v", "runtimes"]
    locker = Locker([*run, "python3", "-c", HELPER])
    try:
        yield locker
    finally:
        locker.process.stdin.close()
        assert locker.process.wait(30) == 0, locker.process.stderr.read()


@contextlib.contextmanager
def host(directory):
    locker = Locker(["python3", "-c", HELPER.replace("/v/", f"{directory}/")])
    try:
        yield locker
    finally:
        locker.process.stdin.close()
        assert locker.process.wait(30) == 0


@pytest.fixture(params=["para", "paene", "host"])
def pair(request, tmp_path):
    """A para domain with a directory, and somebody else who has it too."""
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(domain(tmp_path))
        other = host(tmp_path) if request.param == "host" else domain(tmp_path, request.param)
        yield one, stack.enter_context(other)


BUSY = os.strerror(11)


@pytest.mark.parametrize("how", ["posix", "ofd"])
def test_ranges(pair, how):
    one, other = pair
    for a, b in (one, other), (other, one):
        assert a(how, kind="w", start=10, length=10) == "ok"
        assert b(how, kind="r", start=19, length=1) == BUSY
        assert b(how, kind="w", start=20, length=0) == "ok"
        assert a(how, kind="r", start=1 << 40, length=1) == BUSY
        # A part is given up.
        assert a(how, kind="u", start=12, length=2) == "ok"
        assert b(how, kind="w", start=12, length=2) == "ok"
        assert b(how, kind="w", start=11, length=1) == BUSY
        # Shared ones meet.
        assert a(how, kind="r", start=10, length=2) == "ok"
        assert b(how, kind="r", start=10, length=2) == "ok"
        assert a(how, kind="w", start=10, length=2) == BUSY
        assert a(how, kind="u") == "ok" and b(how, kind="u") == "ok"


def test_what_is_in_the_way_is_told(pair):
    one, other = pair
    for a, b in (one, other), (other, one):
        assert a("posix", kind="w", start=100, length=50) == "ok"
        kind, whence, start, length, _pid = map(int, b("get", kind="w").split())
        assert (kind, whence, start, length) == (fcntl.F_WRLCK, 0, 100, 50)
        assert int(b("get", kind="w", start=0, length=100).split()[0]) == fcntl.F_UNLCK
        assert a("posix", kind="u") == "ok"


def test_flock(pair):
    one, other = pair
    for a, b in (one, other), (other, one):
        assert a("flock", kind="w") == "ok"
        assert b("flock", kind="r") == BUSY
        assert a("flock", kind="r") == "ok"
        assert b("flock", kind="r") == "ok"
        assert a("flock", kind="w") == BUSY
        # Both kinds of locks know nothing of each other.
        assert b("posix", kind="w") == "ok"
        assert a("close") == "ok" and b("flock", kind="w") == "ok"
        assert b("close") == "ok"
        assert a("posix", kind="w") == "ok" and a("close") == "ok"


def test_who_waits_gets_it(pair):
    one, other = pair
    for a, b in (one, other), (other, one):
        assert a("posix", kind="w") == "ok"
        b.ask("wait", "f", "w")
        time.sleep(0.3)
        assert b.process.poll() is None
        assert a("posix", kind="u") == "ok"
        assert b.answer() == "ok"
        assert a("posix", kind="r") == BUSY
        assert b("close") == "ok"


def test_who_ends_has_none(tmp_path):
    """A process' locks go with it, and a domain's."""
    script = "import fcntl; f = open('/v/f', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); fcntl.flock(f, fcntl.LOCK_EX)"
    with host(tmp_path) as other:
        inside = Running("runtimes", *UP, opts=("--rm", "--standalone", "-v", f"{tmp_path}:/v"))
        try:
            inside.exec("python3", "-c", script).ok()
            assert other("posix", kind="w") == other("flock", kind="w") == "ok"
            assert other("close") == "ok"
            holds = f"{script}; import time; print('locked', flush=True); time.sleep(1000)"
            argv = inside.argv("python3", "-c", holds)
            with subprocess.Popen(argv, stdout=subprocess.PIPE) as holder:
                assert holder.stdout.readline() == b"locked\n"
                assert other("posix", kind="w") == other("flock", kind="w") == BUSY
                inside.stop()
                holder.kill()
        finally:
            inside.stop()
        # The host ends the domain and its service in its own time.
        assert eventually(lambda: other("posix", kind="w") == other("flock", kind="w") == "ok")


def test_locks_outlive_the_service(tmp_path):
    with domain(tmp_path) as one, host(tmp_path) as other:
        assert one("posix", kind="w", start=5, length=5) == one("flock", kind="w") == "ok"
        for _ in range(5):
            for pid in services(one.process.pid):
                os.kill(pid, signal.SIGKILL)
            assert other("posix", kind="w", start=9, length=1) == other("flock", kind="r") == BUSY
            # It answers again, and knows what it has.
            assert one("posix", kind="w", start=20, length=1) == "ok"
            assert other("posix", kind="w", start=20, length=1) == BUSY
            assert one("posix", kind="u", start=20, length=1) == "ok"
        assert one("posix", kind="u") == one("flock", kind="u") == "ok"
        assert other("posix", kind="w") == other("flock", kind="w") == "ok"


def test_a_database_of_several(tmp_path):
    """SQLite in three domains adds to one number in one file: nothing is lost, and everybody gets a turn."""
    script = """
import sqlite3
db = sqlite3.connect("/v/db", timeout=60, isolation_level=None)
db.execute("create table if not exists t(n integer)")
for i in range(100):
    db.execute("begin immediate")
    n, = db.execute("select coalesce(max(n), 0) from t").fetchone()
    db.execute("insert into t values(?)", (n + 1,))
    db.execute("commit")
"""
    kinds = ["para", "para", "paene"] if os.geteuid() == 0 else ["para", "para"]
    run = [DOPPEL, "run", "--rm", "--standalone", "-v", f"{tmp_path}:/v"]
    ends = [subprocess.Popen([*run, "--kind", kind, "runtimes", "python3", "-c", script]) for kind in kinds]
    assert [p.wait(120) for p in ends] == [0] * len(kinds)
    import sqlite3

    db = sqlite3.connect(tmp_path / "db")
    assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    rows = [n for (n,) in db.execute("select n from t order by n")]
    assert rows == list(range(1, 100 * len(kinds) + 1))
