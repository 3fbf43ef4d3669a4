"""A named volume of one domain alone is kept in its memory, and nobody sees what is no longer true once others come."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
import uuid

import pytest
from conftest import DOPPEL, Running, call
from test_volume_kills import Killer, services

UP = ("sh", "-c", "echo up; exec sleep 1000")
KIB = 1024


@pytest.fixture
def volume():
    """A volume's name that nobody has."""
    name = "test-" + uuid.uuid4().hex[:10]
    yield name
    env = {k: v for k, v in os.environ.items() if k != "DOPPEL_HOST"}
    call([DOPPEL, "volume", "rm", "-f", name], b"", 60, env=env)


@contextlib.contextmanager
def running(volume, *opts, kind="para", image="busybox"):
    if kind == "paene" and os.geteuid() != 0:
        pytest.skip("paene domains need root")
    domain = Running(image, *UP, opts=("--rm", "--standalone", "--kind", kind, "-v", f"{volume}:/v", *opts))
    try:
        yield domain
    finally:
        domain.stop()


def sh(domain, script, timeout=60):
    return domain.exec("sh", "-c", script, timeout=timeout).ok()


@contextlib.contextmanager
def standing_still(domain):
    """The domain's storage service answers nothing."""
    pids = services(domain.process.pid)
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        assert services(domain.process.pid) == pids, "somebody has asked it, and it was replaced"


def test_who_is_alone_asks_nobody(volume):
    """Names, absent ones too, attributes, links and bytes that were looked at once are there without the service."""
    look = "cat f d/l; stat -c %a:%s f; ls none 2>&1; test -d d && readlink d/l; head -c 100000 big | md5sum"
    with running(volume) as domain:
        sh(domain, "cd /v; mkdir d; echo one > f; ln -s ../f d/l; head -c 200000 /dev/zero > big")
        first = sh(domain, f"cd /v; {look}; :")
        # A read after a write renews the time of access, once.
        assert sh(domain, f"cd /v; {look}; :") == first
        with standing_still(domain):
            # The watchdog takes it for one that hangs after a second.
            assert sh(domain, f"cd /v; {look}; :", timeout=10) == first
        sh(domain, "echo three > /v/f")
        assert sh(domain, "cat /v/f; stat -c %s /v/f") == "three\n6\n"


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_others_come_and_go(volume, kind):
    """What another domain does is seen at once, both ways, however well one knew it before."""
    with running(volume) as one:
        sh(one, "cd /v; mkdir d; echo old > f; echo gone > g; echo moved > m; head -c 300000 /dev/zero > big")
        for _ in range(2):
            known = sh(one, "cd /v; cat f g m; ls new 2>/dev/null; stat -c %s big d/x 2>/dev/null; :")
            assert known.endswith("300000\n")
            with running(volume, kind=kind) as two:
                sh(two, "cd /v; echo later > f; rm g; mv m d/x; echo made > new; echo tail >> big; chmod 600 f")
                assert sh(one, "cd /v; cat f new; stat -c %a f; stat -c %s big; cat d/x; ls g m 2>/dev/null; :") == (
                    "later\nmade\n600\n300005\nmoved\n"
                )
                sh(one, "cd /v; echo mine > f; truncate -s 300000 big; mv d/x m; echo gone > g; rm new; chmod 644 f")
                out = sh(two, "cd /v; cat f g m; stat -c %s big; ls new d/x 2>/dev/null; :")
                assert out == "mine\ngone\nmoved\n300000\n"
            time.sleep(1.5)
            assert sh(one, "cat /v/f") == "mine\n"


def test_two_volumes_in_two_orders(volume):
    """Domains that begin at once wait for nobody for long, whatever they have first."""
    other = volume + "-b"
    orders = [(volume, other), (other, volume)] * 2
    run = [DOPPEL, "run", "--rm", "--standalone"]
    argvs = [[*run, "-v", f"{a}:/a", "-v", f"{b}:/b", "busybox", "touch", "/a/x", "/b/x"] for a, b in orders]
    begun = time.monotonic()
    ends = [subprocess.Popen(argv) for argv in argvs]
    assert [p.wait(60) for p in ends] == [0] * len(ends)
    assert time.monotonic() - begun < 15
    call([DOPPEL, "volume", "rm", "-f", other], b"", 60).ok()


# Each name is made by one of two who want it: who was first says so.
CLAIM = "cd /v; i=0; while [ $i -lt %d ]; do mkdir n$i 2>/dev/null && echo %s >> n$i/who; i=$((i+1)); done"


def test_names_are_made_once_while_leases_come_and_go(volume):
    """A domain works on while others come and go: who was first is first for all, and nobody else is."""
    count = 3000
    with running(volume) as one:
        busy = subprocess.Popen(one.argv("sh", "-c", CLAIM % (count, "one")))
        rivals = 0
        while busy.poll() is None:
            with running(volume) as two:
                sh(two, CLAIM % (count // 10 * (rivals % 10 + 1), "two"))
            rivals += 1
        assert busy.returncode == 0 and rivals
        with running(volume) as two:
            sh(two, CLAIM % (count, "two"))
            seen = sh(one, "cd /v; cat n*/who | sort | uniq -c | awk '{s += $1} END {print s}'; ls | wc -l").split()
            assert seen == [str(count), str(count)]
            assert sh(two, "cd /v; cat n*/who | wc -l").strip() == str(count)


def test_what_is_kept_is_bounded(volume):
    """Pages take a part of the domain's memory, are told as cached, and make room for programs."""
    with running(volume, "--memory", "128m") as domain:
        sh(domain, "head -c 200000000 /dev/zero > /v/big", timeout=120)
        for _ in range(2):
            assert sh(domain, "wc -c < /v/big", timeout=120).strip() == "200000000"
        cached = int(sh(domain, "awk '/^Cached/ {print $2}' /proc/meminfo"))
        assert 4 * KIB <= cached <= 33 * KIB
        # As much as there is without them.
        sh(domain, "head -c 90000000 /dev/zero > /tmp/big; rm /tmp/big; cat /v/big > /dev/null", timeout=120)
        assert int(sh(domain, "awk '/^MemAvailable/ {print $2}' /proc/meminfo")) > 90 * KIB


def test_writes_wait_and_are_not_lost(volume):
    """What was written is on the host after fsync, a look at the file, some seconds, and the end of the domain."""
    env = {k: v for k, v in os.environ.items() if k != "DOPPEL_HOST"}
    with running(volume) as domain:
        found = call([DOPPEL, "volume", "inspect", volume], b"", 60, env=env).ok()
        at = pathlib.Path(json.loads(found)[0]["mountpoint"])
        sh(domain, "echo one > /v/a; echo two > /v/b; echo three > /v/c; echo none > /v/gone; rm /v/gone")
        assert [(at / f).stat().st_size for f in "abc"] == [0, 0, 0]
        sh(domain, "dd if=/dev/null of=/v/a conv=notrunc,fsync 2>/dev/null; stat /v/b")
        assert not (at / "gone").exists()
        assert (at / "a").read_text() == "one\n" and (at / "b").read_text() == "two\n"
        written = time.time()
        deadline = written + 10
        while (at / "c").stat().st_size == 0:
            assert time.time() < deadline
            time.sleep(0.1)
        # When the program wrote it, not when it came here.
        assert (at / "c").stat().st_mtime < written
        assert (at / "c").read_text() == "three\n"
    script = "head -c 5000000 /dev/zero | tr '\\0' x > /v/big; echo last > /v/last"
    argv = [DOPPEL, "run", "--rm", "--standalone", "-v", f"{volume}:/v", "busybox", "sh", "-c", script]
    call(argv, b"", 60, env=env).ok()
    assert (at / "last").read_text() == "last\n" and (at / "big").read_bytes() == b"x" * 5000000


# Files without names, all closed at once: the service is told of each, and answers nothing.
MANY_CLOSED = """
import os, sys, time
files = [os.open(f"/v/f{i}", os.O_CREAT | os.O_RDWR) for i in range(400)]
for i in range(400):
    os.unlink(f"/v/f{i}")
print("ready", flush=True)
sys.stdin.readline()
for f in files:
    os.close(f)
print("closed", flush=True)
print(os.path.exists(f"/v/none{time.time_ns()}"))
"""


def test_a_request_behind_many_that_have_no_answer_is_answered(volume):
    with running(volume, image="debian") as domain:
        argv = domain.argv("python3", "-c", MANY_CLOSED, opts=("-i",))
        for _ in range(3):
            with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
                try:
                    assert p.stdout.readline() == "ready\n"
                    # Not for so long that it is taken for one that hangs, and replaced.
                    pids = services(domain.process.pid)
                    [os.kill(pid, signal.SIGSTOP) for pid in pids]
                    p.stdin.write("\n")
                    p.stdin.flush()
                    assert p.stdout.readline() == "closed\n"
                    # It asks now.
                    time.sleep(0.01)
                    [os.kill(pid, signal.SIGCONT) for pid in pids]
                    assert p.communicate(timeout=20)[0] == "False\n"
                finally:
                    p.kill()


DIRECT = r"""
import mmap, os, random, sys, threading
PAGE, BLOCKS, THREADS = 4096, 512, 8
fd = os.open("/v/f", os.O_RDWR | os.O_CREAT)
direct = os.open("/v/f", os.O_RDWR | os.O_DIRECT)
os.ftruncate(fd, 0)
os.ftruncate(fd, PAGE * BLOCKS)
def work(me):
    # Every eighth run of 64 blocks is its own.
    r, memory, mine = random.Random(me), mmap.mmap(-1, 64 * PAGE), {}
    for n in range(250):
        first = me * 64 + r.randrange(64)
        count = min(r.choice((1, 1, 3, 64)), (me + 1) * 64 - first)
        what = r.randrange(5)
        if what < 3:
            byte = bytes([r.randrange(256)])
            memory[:count * PAGE] = byte * (count * PAGE)
            file = direct if what else fd
            assert os.pwritev(file, [memoryview(memory)[:count * PAGE]], first * PAGE) == count * PAGE
            mine.update((first + i, byte) for i in range(count))
        elif what == 3:
            file = r.choice((fd, direct))
            assert os.preadv(file, [memoryview(memory)[:count * PAGE]], first * PAGE) == count * PAGE
            for i in range(count):
                assert memory[i * PAGE:(i + 1) * PAGE] == mine.get(first + i, b"\0") * PAGE, (me, n, first + i)
        elif n % 10 == 0:
            r.choice((os.fsync, lambda f: os.ftruncate(f, PAGE * BLOCKS), os.fstat))(fd)
    known.update(mine)
known = {}
def checked(me):
    try:
        work(me)
    except BaseException as e:
        failed.append(repr(e))
failed = []
threads = [threading.Thread(target=checked, args=(i,)) for i in range(THREADS)]
[t.start() for t in threads]
[t.join() for t in threads]
want = b"".join(known.get(i, b"\0") * PAGE for i in range(BLOCKS))
assert not failed and os.pread(fd, PAGE * BLOCKS, 0) == want, failed
os.fsync(fd)
print("same")
"""


def test_writes_past_the_pages_agree_with_all_others(volume):
    """Threads write a file with and without O_DIRECT, while the service is killed; each reads what it wrote."""
    with running(volume, image="debian") as domain:
        killer = Killer(domain.process.pid)
        killer.start()
        try:
            for _ in range(3):
                assert domain.exec("python3", "-c", DIRECT, timeout=120).ok() == "same\n"
        finally:
            killer.over.set()
            killer.join()
        assert killer.kills >= 1


def test_removals_and_renames_wait_and_keep_their_order(volume):
    """Known names are removed and renamed without the service; a listing, fsync, other domains and the end see it."""
    env = {k: v for k, v in os.environ.items() if k != "DOPPEL_HOST"}
    change = "cd /v; for i in 1 2 3 4 5 6 7 8 9; do mv f$i d/g$i; done; for i in 1 2 3; do mv h$i f$i; done; "
    change += "rm h4 h5 h6"
    with running(volume) as domain:
        found = call([DOPPEL, "volume", "inspect", volume], b"", 60, env=env).ok()
        at = pathlib.Path(json.loads(found)[0]["mountpoint"])
        sh(domain, "cd /v; mkdir d; for i in 1 2 3 4 5 6 7 8 9; do : > f$i; : > h$i; done")
        # Attributes are known then.
        sh(domain, "cd /v; stat f* h* d")
        with standing_still(domain):
            sh(domain, change, timeout=10)
            assert (at / "f1").exists() and not (at / "d/g9").exists()
        names = sh(domain, "cd /v; ls d; ls -d f* h*").split()
        kept = [f"g{i}" for i in range(1, 10)] + ["f1", "f2", "f3", "h7", "h8", "h9"]
        assert names == kept
        assert sorted(p.name for p in at.rglob("*") if p.is_file()) == sorted(kept)
        sh(domain, "cd /v; mv f1 last; rm f2; echo x > synced; sync synced")
        assert (at / "last").exists() and not (at / "f2").exists()
        sh(domain, "rm /v/last; mv /v/f3 /v/moved")
        with running(volume) as other:
            assert sh(other, "ls /v/last /v/f3 2>/dev/null; ls /v/moved") == "/v/moved\n"
        sh(domain, "mv /v/moved /v/end")
    assert (at / "end").exists() and not (at / "moved").exists()


SAME = """
mkdir -p /v/t /tmp/t; n=0
while [ $n -lt 60 ]; do
    n=$((n + 1)); d=d$((n % 4)); e=d$((n % 3))
    for at in /v/t /tmp/t; do
        mkdir -p $at/$d $at/$e; cd $at
        for i in 1 2 3 4 5 6 7 8; do echo $n > $d/f$i; done
        for i in 1 2 3 4 5 6; do mv $d/f$i $e/g$i; done
        for i in 1 2 3; do rm $e/g$i; mv $e/g$((i + 3)) $d/f$i; done
        rm -f $d/f7; ln $d/f8 $d/l$n; rm $d/f8
    done
    [ $((n % 7)) != 0 ] || [ "$(cd /v/t; find . | sort)" = "$(cd /tmp/t; find . | sort)" ] || exit 3
    [ $((n % 9)) != 0 ] || sync
done
diff -r /v/t /tmp/t && echo same
"""


def test_names_that_wait_outlive_the_service(volume):
    """The same changes on the volume and in memory, while the service is killed."""
    with running(volume) as domain:
        killer = Killer(domain.process.pid)
        killer.start()
        try:
            for _ in range(3):
                assert sh(domain, SAME, timeout=120) == "same\n"
        finally:
            killer.over.set()
            killer.join()
        assert killer.kills >= 3


def test_two_mounts_of_one_volume_agree(volume):
    with running(volume, "-v", f"{volume}:/w") as domain:
        script = "cat /v/f /w/f 2>/dev/null; echo one > /v/f; cat /w/f; echo two > /w/f; cat /v/f; rm /v/f; ls /w"
        assert sh(domain, script) == "one\ntwo\n"


# Random operations of all sizes on one file and on its model, which is bytes in memory.
ORACLE = r"""
import mmap, os, random, signal, resource, sys
random.seed(int(sys.argv[1]))
MOST = 24 << 20
model = bytearray()
fd = os.open("/v/f", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
def put(at, data):
    if at > len(model): model.extend(bytes(at - len(model)))
    model[at:at + len(data)] = data
for step in range(int(sys.argv[2])):
    r, n = random.random(), random.choice([1, 100, 4096, 5000, 65536, 131072, 200000, 1 << 20, 3000000])
    at = random.randrange(MOST - n) if random.random() < .5 else min(len(model), MOST - n)
    if random.random() < .5: at &= ~4095
    if r < .35:
        data = random.randbytes(n)
        # From several buffers, the last of which may be in the middle of a page.
        cut = random.randrange(n)
        assert os.pwritev(fd, [data[:cut], data[cut:]], at) == n, step
        put(at, data)
    elif r < .65:
        assert os.pread(fd, n, at) == bytes(model[at:at + n]), step
    elif r < .72:
        size = random.randrange(MOST)
        os.ftruncate(fd, size)
        if size > len(model): model.extend(bytes(size - len(model)))
        del model[size:]
    elif r < .78: os.fsync(fd)
    elif r < .84:
        data = random.randbytes(n)
        if len(model) + n <= MOST:
            with open("/v/f", "ab", buffering=0) as f: assert f.write(data) == n
            put(len(model), data)
    elif r < .9 and model:
        with mmap.mmap(fd, len(model)) as m:
            i = random.randrange(len(model))
            assert m[i:i + n] == bytes(model[i:i + n]), step
            m[i] = model[i] = step & 255
    elif r < .95:
        assert os.fstat(fd).st_size == len(model), step
    else:
        # A limit on the file's size, in the middle of a write.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        room = random.randrange(n)
        resource.setrlimit(resource.RLIMIT_FSIZE, (at + room, resource.RLIM_INFINITY))
        data = random.randbytes(n)
        try: wrote = os.pwrite(fd, data, at)
        except OSError as e: wrote = 0; assert e.errno == 27 and room == 0, (e, room)
        assert wrote == room, (wrote, room, step)
        if wrote: put(at, data[:wrote])
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
os.lseek(fd, 0, 0)
with open("/v/f", "rb") as f: assert f.read() == bytes(model)
print("good")
"""


@pytest.mark.parametrize("memory", ["128m", "1g"])
@pytest.mark.parametrize("seed", [1, 2])
def test_operations_of_all_sizes(volume, seed, memory):
    """Small ones go by way of pages, large ones past them."""
    argv = [DOPPEL, "run", "--rm", "--standalone", "-m", memory, "-v", f"{volume}:/v", "debian"]
    env = {k: v for k, v in os.environ.items() if k != "DOPPEL_HOST"}
    r = call([*argv, "python3", "-c", ORACLE, str(seed), "300"], b"", 300, env=env)
    assert (r.code, r.out) == (0, "good\n"), r.err
