"""Hostile programs: whatever a program does, nothing outside its domain changes.

hostile.c tries the calls; here the host is watched: processes that must live on untouched, files that
must not change, mounts, names, modules, interfaces, IPC objects, the clock, and a second domain.
"""
import hashlib
import json
import os
import pathlib
import re
import selectors
import shutil
import subprocess
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DOPPEL = os.environ.get("DOPPEL", str(ROOT / "target/release/doppel"))
BUILD = ROOT / "target/security-tests"
CANARY = pathlib.Path("/tmp/doppel-canary")
HIGHEST = 600


@pytest.fixture(scope="session")
def image():
    if not os.path.exists(DOPPEL):
        pytest.skip(f"no {DOPPEL}: make build")
    root = BUILD / "image"
    for d in ("bin", "tmp", "proc", "sys", "dev", "etc"):
        (root / d).mkdir(parents=True, exist_ok=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    subprocess.run(["gcc", "-O1", "-static", "-Wall", "-o", root / "hostile", HERE / "hostile.c"], check=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    subprocess.run([DOPPEL, "image", "rm", "security-tests"], capture_output=True)
    subprocess.run([DOPPEL, "image", "import", root, "security-tests"], check=True, capture_output=True)
    return "security-tests"


@pytest.fixture(scope="session")
def gate():
    if not os.path.exists(DOPPEL):
        pytest.skip(f"no {DOPPEL}: make build")
    return json.loads(subprocess.run([DOPPEL, "debug", "gate"], check=True, capture_output=True, text=True).stdout)[
        "syscall"
    ]


# What other tests, at the side of these, mount: small disks in their temporary folders, network namespaces.
OF_TESTS = re.compile(r"/.*/pytest-of-|/run/netns(/doppel-test-|$)|/run/doppel-test-")


def snapshot():
    """What no domain may change on the host."""

    def read(path):
        try:
            return pathlib.Path(path).read_text()
        except OSError as e:
            return str(e.errno)

    tree = {
        str(p): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "" for p in sorted(CANARY.rglob("*"))
    }
    return {
        "canary files": tree,
        "canary mode": os.stat(CANARY / "file").st_mode,
        "mounts": [m for m in read("/proc/self/mounts").splitlines() if not OF_TESTS.match(m.split()[1])],
        "hostname": read("/proc/sys/kernel/hostname"),
        "domainname": read("/proc/sys/kernel/domainname"),
        "modules": re.sub(r" \d+ [^\n]*", "", read("/proc/modules")),
        "routes": read("/proc/net/route"),
        "interfaces": sorted(os.listdir("/sys/class/net")),
        "shm": read("/proc/sysvipc/shm"),
        "msg": read("/proc/sysvipc/msg"),
        "sem": read("/proc/sysvipc/sem"),
        "passwd": read("/etc/passwd"),
        "swaps": read("/proc/swaps"),
        "sysrq": read("/proc/sys/kernel/sysrq"),
        # Other runs of tests on this host put files there too, under these names.
        "dev/shm": sorted(n for n in os.listdir("/dev/shm") if not n.startswith(("doppel-frozen-", "t."))),
        "core_pattern": read("/proc/sys/kernel/core_pattern"),
        "root": sorted(os.listdir("/")),
    }


@pytest.fixture
def watch(image):
    """Checks, when the test is over, that the host is as it was."""
    shutil.rmtree(CANARY, ignore_errors=True)
    CANARY.mkdir()
    (CANARY / "file").write_text("untouched")
    os.chmod(CANARY / "file", 0o666)
    os.chmod(CANARY, 0o777)
    # Processes of root, of nobody, and of this user's group: to be left alone.
    bystanders = [subprocess.Popen(["sleep", "1000"], start_new_session=s) for s in (False, True)]
    if os.geteuid() == 0:
        bystanders += [subprocess.Popen(["sleep", "1000"], user=u) for u in (65534, 100000, 200000)]
    state = {
        p.pid: [open(f"/proc/{p.pid}/{f}").read() for f in ("limits", "oom_score_adj")]
        + [os.sched_getaffinity(p.pid), os.getpriority(os.PRIO_PROCESS, p.pid)]
        for p in bystanders
    }
    other = subprocess.Popen(
        [DOPPEL, "run", "--rm", "-i", "security-tests", "--", "/bin/busybox", "cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    before, clock = snapshot(), time.time() - time.monotonic()
    yield
    for p in bystanders:
        assert p.poll() is None, "a process of the host was killed"
        assert open(f"/proc/{p.pid}/stat").read().rsplit(") ", 1)[1][0] == "S", "a process of the host was stopped"
        now = [open(f"/proc/{p.pid}/{f}").read() for f in ("limits", "oom_score_adj")] + [
            os.sched_getaffinity(p.pid),
            os.getpriority(os.PRIO_PROCESS, p.pid),
        ]
        assert now == state[p.pid], "a process of the host was changed"
        p.kill()
        p.wait()
    assert abs(time.time() - time.monotonic() - clock) < 1, "the host's clock was set"
    after = snapshot()
    for k in before:
        assert before[k] == after[k], f"the host's {k} changed"
    out, _ = other.communicate(b"still well", timeout=60)
    assert out == b"still well" and other.returncode == 0, "another domain was hurt"
    shutil.rmtree(CANARY, ignore_errors=True)


class Attempt:
    """One run of hostile: the attempts it announced, how it ended."""

    def __init__(self, *args, silence=15):
        p = subprocess.Popen(
            [DOPPEL, "run", "--rm", "security-tests", "--", "/hostile", *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        os.set_blocking(p.stdout.fileno(), False)
        text, self.hung = b"", False
        with selectors.DefaultSelector() as s:
            s.register(p.stdout, selectors.EVENT_READ)
            while True:
                # Its start takes as long as the machine is busy; what it tries, as long as we wait.
                if not s.select(silence if text else 60):
                    self.hung = True
                    p.kill()
                    break
                chunk = p.stdout.read()
                if chunk == b"":
                    break
                text += chunk or b""
        err = p.communicate()[1].decode(errors="replace")
        self.code, self.err, text = p.returncode, err, text.decode(errors="replace")
        self.tried = [tuple(map(int, m.groups())) for m in re.finditer(r"^try (\d+) (\d+)$", text, re.M)]
        self.survived = text.endswith("survived\n")

    def why(self):
        return "hung" if self.hung else f"code {self.code}: {self.err.strip()[-300:]}"


@pytest.mark.parametrize("start", range(0, HIGHEST + 1, 50))
def test_every_call_from_program_text(watch, start):
    """The guest kernel itself must also survive: a call with odd arguments is an error, no panic."""
    deaths, at, end = [], start, min(start + 49, HIGHEST)
    while at <= end:
        a = Attempt("text", at, end, silence=60)
        if a.survived:
            break
        last = a.tried[-1][0] if a.tried else at
        deaths.append(f"call {last}: {a.why()}")
        at = last + 1
    assert not deaths, "\n".join(deaths)


@pytest.mark.parametrize("start", range(0, HIGHEST + 1, 100))
def test_every_call_through_the_gate(watch, gate, start):
    """The domain may die of it; nobody else may."""
    at, pattern, end, runs = start, 0, min(start + 99, HIGHEST), 0
    while at <= end:
        a = Attempt("gate", hex(gate), at, end, pattern, silence=1)
        runs += 1
        if a.survived:
            break
        assert a.tried, a.why()
        at, pattern = a.tried[-1]
        pattern += 1
        if pattern >= 14:
            at, pattern = at + 1, 0
        assert runs < 3000
    assert at > end or a.survived


@pytest.mark.parametrize("what", ["tgkill", "clone", "mmap", "futex", "prctl", "files"])
def test_aimed_through_the_gate(watch, gate, what):
    k = 0
    while True:
        a = Attempt("aimed", hex(gate), what, k, silence=1)
        if a.survived:
            break
        assert a.tried, a.why()
        k = a.tried[-1][1] + 1
        assert k < 2000


def test_x32_numbers(watch):
    at = 0
    while at <= HIGHEST:
        a = Attempt("x32", at, HIGHEST, silence=60)
        if a.survived:
            break
        assert a.tried, a.why()
        at = a.tried[-1][0] + 1


@pytest.mark.parametrize("number", [1, 2, 4, 5, 11, 20, 37, 45, 90, 120, 190, 192, 252, 270, 358])
def test_int_80(watch, number):
    a = Attempt("int80", number, number, silence=10)
    assert a.survived, a.why()


def children(pid):
    found, todo = [], [pid]
    while todo:
        parent = todo.pop()
        for p in os.listdir("/proc"):
            if p.isdigit():
                try:
                    if int(open(f"/proc/{p}/stat").read().rsplit(") ", 1)[1].split()[1]) == parent:
                        found.append(int(p))
                        todo.append(int(p))
                except OSError:
                    pass
    return found


def test_what_the_host_sees_of_a_domain(image):
    """Descriptors, identity, capabilities, filter and namespaces of a domain's host processes."""
    p = subprocess.Popen(
        [DOPPEL, "run", "--rm", "-i", image, "--", "/hostile", "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert p.stdout.readline() == b"ready\n"
        pids = children(p.pid)
        guests = [q for q in pids if "Seccomp:\t2" in open(f"/proc/{q}/status").read()]
        assert len(guests) >= 2, "the program and its child"
        for q in guests:
            links = [os.readlink(f"/proc/{q}/fd/{f}") for f in os.listdir(f"/proc/{q}/fd")]
            assert len(links) <= 6, links
            assert not [x for x in links if x.startswith(("socket:", "pipe:", "/dev", "/etc", "/home", "/tmp"))], links
            status = open(f"/proc/{q}/status").read()
            assert "NoNewPrivs:\t1" in status
            for caps in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                assert re.search(rf"{caps}:\t0+\n", status), caps
            assert re.search(r"Uid:\t(\d+)", status)[1] != "0"
            assert len(re.search(r"NSpid:\t(.*)", status)[1].split()) > 1, "not in a PID namespace of its own"
            for ns in ("net", "mnt", "pid", "ipc"):
                assert os.readlink(f"/proc/{q}/ns/{ns}") != os.readlink(f"/proc/self/ns/{ns}"), ns
            assert os.listdir(f"/proc/{q}/root/") == [] or os.readlink(f"/proc/{q}/root") != "/", (
                "sees the host's files"
            )
    finally:
        p.stdin.close()
        p.wait(60)


def test_a_domain_has_its_swap_region_and_nothing_behind_it(image, gate):
    """A guest kernel that was taken over finds zeros in the region, writes in it, and makes it no longer."""
    size = 64 << 20
    p = subprocess.Popen(
        [
            *[DOPPEL, "run", "--rm", "-i", "--memory", "64m", "--memory-swap", "128m", image, "--"],
            *["/hostile", "swap", hex(gate), str(size)],
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert p.stdout.readline() == b"done\n"
        regions = [f"/proc/{q}/fd/12" for q in children(p.pid) if os.path.exists(f"/proc/{q}/fd/12")]
        assert regions
        for region in map(os.stat, regions):
            assert region.st_size == size + (64 << 10) and region.st_blocks * 512 <= size + (1 << 20)
            assert region.st_nlink == 0
        p.stdin.close()
        assert b"written" not in p.stdout.read()
        assert p.wait(60) != 0
    finally:
        p.kill()
        p.wait(60)


def test_host_calls_at_most_as_documented(gate):
    text = subprocess.run([DOPPEL, "debug", "host-calls"], check=True, capture_output=True, text=True).stdout
    calls = re.findall(r"^\| (\d+) \| (\S+)", text, re.M)
    assert len({n for n, _ in calls}) <= 20, text
    for banned in (
        "open",
        "openat",
        "socket",
        "execve",
        "ptrace",
        "mount",
        "bpf",
        "ioctl",
        "kill",
        "read",
        "prctl_set",
        "unshare",
        "setns",
    ):
        assert banned not in {name for _, name in calls}
