"""Frozen domains with volumes, and their clones: these have the same files, copies of them as they were, or none."""
import os
import subprocess
import uuid
from collections.abc import Iterator

import pytest
from conftest import DOPPEL, Domain, command

STORE = os.environ.get("DOPPEL_STORE", "/var/lib/doppel")
FREEZE = r"""
import errno, fcntl, mmap, os, sys
def freeze():
    with open("/sys/power/state", "w") as f: f.write("freeze")
    return open("/sys/doppel/args").read().split()
def put(path, text, how=os.O_APPEND):
    fd = os.open(path, os.O_RDWR | os.O_CREAT | how)
    os.write(fd, text.encode())
    return fd
"""


@pytest.fixture
def name() -> Iterator[str]:
    one = "vf-" + uuid.uuid4().hex[:10]
    yield one
    for frozen in (one, one + "-2"):
        command("frozen", "rm", frozen)
    command("volume", "rm", "-f", one)


def place(name: str, file: str = "") -> str:
    return f"{STORE}/volumes/{name}/_data/{file}"


def read(path: str) -> str:
    with open(path) as f:
        return f.read()


def volumes() -> set[str]:
    return set(command("volume", "ls", "-q").ok().split())


def frozen(domain: Domain, name: str, script: str, *opts: str) -> str:
    """Runs it in a domain of this name, which may freeze itself under the name."""
    opts = ("--standalone", "--name", name, "--freeze-as", name, *opts)
    argv = domain.argv("python3", "-c", FREEZE + script, image="debian", opts=opts)
    out = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, (out.stdout, out.stderr)
    return out.stdout


def test_clones_share_a_volume(domain: Domain, name: str) -> None:
    """Open files, directories and names go on; what waited was written; each sees what the others write."""
    script = r"""
fd = put("/data/log", "begun\n")
os.mkdir("/data/d")
inside = put("/data/d/in", "x" * 100_000, 0)
os.chdir("/data/d")
for n in range(200): os.close(put(f"/data/d/{n}", ""))
for n in range(0, 200, 2): os.unlink(f"/data/d/{n}")
os.rename("/data/d/1", "/data/one")
args = freeze()
who = args[0] if args else "parent"
os.write(fd, (who + "\n").encode())
assert os.pread(inside, 10, 99_990) == b"x" * 10
assert len(os.listdir(".")) == 100 and not os.path.exists("/data/d/1") and os.path.exists("/data/one")
assert os.path.exists("/data/host") == (who != "parent"), who
put("/data/d/" + who, who)
print(os.pread(fd, 100, 0).decode().split(), flush=True)
"""
    out = frozen(domain, name, script, "-v", f"{name}:/data")
    assert out == "['begun', 'parent']\n", out
    with open(place(name, "host"), "w") as f:
        f.write("of the host")
    os.unlink(place(name, "d/parent"))
    assert command("clone", "--arg", "1", name).ok() == "['begun', 'parent', '1']\n"
    os.unlink(place(name, "d/1"))
    assert command("clone", "--arg", "2", name).ok() == "['begun', 'parent', '1', '2']\n"
    assert read(place(name, "d/2")) == "2"
    # Nothing was made beside it, and who removes the image finds all of it gone.
    assert os.path.exists(f"{STORE}/frozen/{name}.volumes/nodes")
    command("frozen", "rm", name).ok()
    assert not os.path.exists(f"{STORE}/frozen/{name}.volumes")


def test_a_directory_of_the_host(domain: Domain, name: str, tmp_path) -> None:
    script = r"""
fd = put("/data/log", "begun\n")
args = freeze()
os.write(fd, (args[0] if args else "parent").encode())
"""
    frozen(domain, name, script, "-v", f"{tmp_path}:/data")
    command("clone", "--arg", "clone", name).ok()
    assert (tmp_path / "log").read_text() == "begun\nparentclone"


def test_a_clone_has_a_snapshot_of_its_own(domain: Domain, name: str) -> None:
    """As it was at the freeze, whatever the domain, or another clone, writes later; it goes with the clone."""
    script = r"""
os.makedirs("/data/a/b")
fd = put("/data/a/b/log", "begun\n")
os.link("/data/a/b/log", "/data/same")
os.symlink("a/b/log", "/data/link")
shared = mmap.mmap(put("/data/mapped", "m" * 8192, 0), 8192)
shared[0:4] = b"four"
where = os.open("/data/a", os.O_RDONLY | os.O_DIRECTORY)
gone = put("/data/gone", "gone", 0)
os.unlink("/data/gone")
args = freeze()
who = args[0] if args else "parent"
os.write(fd, (who + "\n").encode())
shared[4:8] = b"more"
shared.flush()
os.rename("b", "c", src_dir_fd=where, dst_dir_fd=where)
texts = [open(p).read() for p in ("/data/same", "/data/a/c/log")]
assert texts[0] == texts[1] and os.stat("/data/same").st_nlink == 2, texts
assert open("/data/mapped").read(9) == "fourmorem"
try:
    state = os.pread(gone, 4, 0).decode()
except OSError as e:
    state = errno.errorcode[e.errno]
print(texts[0].split(), os.listdir("/data/a"), state, flush=True)
"""
    before = volumes()
    out = frozen(domain, name, script, "--mount", f"type=volume,source={name},target=/data,on-clone=snapshot")
    assert out == "['begun', 'parent'] ['c'] gone\n", out
    for who in ("1", "2"):
        out = command("clone", "--arg", who, name).ok()
        assert out == f"['begun', '{who}'] ['c'] ESTALE\n", out
    assert sorted(os.listdir(place(name, "a"))) == ["c"] and read(place(name, "same")) == "begun\nparent\n"
    assert volumes() - before == {name}, "what clones had is gone"


def test_a_clone_has_an_empty_volume(domain: Domain, name: str) -> None:
    script = r"""
fd = put("/data/log", "begun\n")
if freeze():
    try: os.write(fd, b"lost")
    except OSError as e: print(errno.errorcode[e.errno], os.listdir("/data"), flush=True)
    put("/data/log", "anew")
"""
    before = volumes()
    frozen(domain, name, script, "-v", f"{name}:/data:on-clone=fresh")
    assert command("clone", "--arg", "1", name).ok() == "ESTALE []\n"
    assert read(place(name, "log")) == "begun\n" and volumes() - before == {name}


def test_a_clone_is_frozen_again(domain: Domain, name: str) -> None:
    script = r"""
fd = put("/data/log", "a")
args = freeze()
if args:
    os.write(fd, b"b")
    args = freeze()
    os.write(fd, args[0].encode())
    print(open("/data/log").read(), flush=True)
"""
    frozen(domain, name, script, "-v", f"{name}:/data:on-clone=snapshot")
    assert command("clone", "--freeze-as", name + "-2", "--arg", "1", name).ok() == "ab1\n"
    assert command("clone", "--arg", "2", name + "-2").ok() == "ab2\n"
    assert read(place(name, "log")) == "a"


def test_memory_and_files_are_of_one_moment(domain: Domain, name: str) -> None:
    """Threads write lines, and count them; each clone's files have what its memory says, and neither loses anything."""
    script = r"""
import threading, time
lines, stop = [0] * 4, threading.Event()
def work(n):
    fd = put(f"/data/{n}", "")
    while not stop.is_set():
        os.write(fd, b"%9d\n" % lines[n])
        lines[n] += 1
        if lines[n] % 64 == 0: os.fsync(fd)
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for t in threads: t.start()
time.sleep(0.3)
args = freeze()
time.sleep(0.1)
stop.set()
for t in threads: t.join()
for n in range(4):
    text = open(f"/data/{n}").read().split()
    assert text == [str(i) for i in range(lines[n])], (n, lines[n], text[:3], text[-3:])
print("good", sum(lines) > 400, flush=True)
"""
    out = frozen(domain, name, script, "-v", f"{name}:/data:on-clone=snapshot")
    assert out == "good True\n", out
    for _ in range(3):
        assert command("clone", "--arg", "1", name).ok() == "good True\n"


def test_locks_are_had_again(domain: Domain, name: str, tmp_path) -> None:
    """A clone has those of the domain that nobody else has."""
    script = r"""
fd = put("/data/f", "x")
fcntl.flock(fd, fcntl.LOCK_EX)
if freeze():
    print("clone", flush=True)
    sys.stdin.read()
"""
    frozen(domain, name, script, "-v", f"{tmp_path}:/data")
    argv = [DOPPEL, "clone", "-i", "--arg", "1", name]
    clone = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert clone.stdout and clone.stdout.readline() == b"clone\n"
        taken = subprocess.run(["flock", "-n", tmp_path / "f", "true"])
        assert taken.returncode == 1, "the clone has it"
    finally:
        clone.communicate(b"", timeout=60)
    subprocess.run(["flock", "-n", tmp_path / "f", "true"], check=True)


def test_what_is_refused(domain: Domain, name: str, tmp_path) -> None:
    r = domain.run("true", opts=("-v", f"{tmp_path}:/data:on-clone=snapshot"))
    assert r.code == 125 and "on_clone is for a volume" in r.err, r.err
    r = domain.run("true", opts=("-v", f"{name}:/data:on-clone=never"))
    assert r.code != 0 and "share, snapshot and fresh" in r.err, r.err
    frozen(domain, name, "freeze()", "-v", f"{name}:/data")
    r = command("frozen", "export", name, str(tmp_path / "x"))
    assert r.code != 0 and "volumes, which are this host's" in r.err, r.err
