"""The network service's process: what it has of the host, and what its filter of system calls lets through."""
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest
from processes import words

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOPPEL = os.environ.get("DOPPEL", str(ROOT / "target/release/doppel"))
HIGHEST = 600

# Installs the filter of its arguments and makes every call that is not on the list, and calls that are with arguments
# that are not; prints those that were not refused.
PROBE = r"""
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
syscall = libc.syscall
syscall.restype = ctypes.c_long
class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("code", ctypes.c_char_p)]
code = b"".join(bytes.fromhex(i) for i in sys.argv[1].split())
allowed = {int(n) for n in sys.argv[2].split()}
def call(nr, *args):
    ctypes.set_errno(0)
    result = syscall(ctypes.c_long(nr), *(ctypes.c_long(a) for a in args))
    return result if result >= 0 else -ctypes.get_errno()
passed = []
page, prctl, seccomp = 4096, 157, 317
seal = os.memfd_create("probe")
os.ftruncate(seal, page)
tcp = socket.socket()
raw = tcp.fileno()
program = Program(len(code) // 8, code)
assert call(prctl, 38, 1, 0, 0, 0) == 0
assert syscall(ctypes.c_long(seccomp), ctypes.c_long(1), ctypes.c_long(0), ctypes.byref(program)) == 0
for nr in range(HIGHEST):
    # uretprobe and uprobe, which the host's kernel lets past every filter, and which end who is not probed.
    if nr not in (335, 336) and nr not in allowed and call(nr, -1, -1, -1, -1, -1, -1) != -1:
        passed.append(f"call {nr}")
EPERM = 1
for name, nr, *args in [
    ("raw socket", 41, 2, 3, 1), ("packet socket", 41, 17, 3, 3), ("netlink socket", 41, 16, 3, 0),
    ("local socket", 41, 1, 1, 0), ("vsock", 41, 40, 1, 0), ("sctp", 41, 2, 1, 132),
    ("SO_ATTACH_FILTER", 54, raw, 1, 26, 0, 0), ("SO_MARK", 54, raw, 1, 36, 0, 0), ("TCP_ULP", 54, raw, 6, 31, 0, 0),
    ("SO_BINDTODEVICE", 54, raw, 1, 25, 0, 0), ("F_ADD_SEALS", 72, seal, 1033, 1), ("F_SETOWN", 72, raw, 8, 1),
    ("code", 9, 0, page, 5, 0x22, -1, 0), ("a file as code", 9, 0, page, 5, 2, seal, 0),
    ("MADV_MERGEABLE", 28, 0, page, 12), ("SIGKILL", 234, 1, 1, 9), ("TIOCSTI", 16, 0, 0x5412, 0),
]:
    if call(nr, *args) != -EPERM:
        passed.append(name)
for name, nr, *args in [
    ("TCP", 41, 2, 0x80801, 0), ("UDP", 41, 10, 0x80002, 0), ("TCP_NODELAY", 54, raw, 6, 1, id(page), 0),
    ("memory", 9, 0, page, 3, 0x22, -1, 0), ("size", 5, seal, 0), ("seals", 72, seal, 1034),
]:
    if call(nr, *args) == -EPERM:
        passed.append(f"{name} is refused")
# Another ABI is the end: getpid of x32 and of 32 bits.
if call(39 | 0x40000000) != -38:
    passed.append("x32")
os.write(1, ("\n".join(passed) or "none").encode())
os._exit(0)
"""


def debug(what):
    if not os.path.exists(DOPPEL):
        pytest.skip(f"no {DOPPEL}: make build")
    return subprocess.run([DOPPEL, "debug", what], check=True, capture_output=True, text=True, timeout=60).stdout


def test_its_filter_lets_nothing_else_through():
    rows = re.findall(r"^\| (\d+) \| (\w+)", debug("service-calls"), re.M)
    assert rows, "no list"
    numbers = " ".join(number for number, _ in rows)
    probe = PROBE.replace("HIGHEST", str(HIGHEST))
    p = subprocess.run(
        [sys.executable, "-c", probe, debug("service-filter"), numbers], capture_output=True, text=True, timeout=60
    )
    assert (p.returncode, p.stdout) == (0, "none"), p.stdout + p.stderr
    names = {name for _, name in rows}
    assert not names & {
        "open",
        "openat",
        "execve",
        "clone",
        "fork",
        "ptrace",
        "kill",
        "mprotect",
        "bpf",
        "unshare",
        "setns",
    }


@pytest.fixture
def service():
    """The network service of a domain that listens."""
    command = [DOPPEL, "run", "--rm", "-p", "127.0.0.1::80", "busybox", "--", "sh", "-c", "echo up; exec sleep 1000"]
    p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        if (line := p.stdout.readline()) != b"up\n":
            p.kill()
            pytest.skip(f"{line!r} {p.stderr.read()[:500]!r}")
        children = [c for t in pathlib.Path(f"/proc/{p.pid}/task").glob("*/children") for c in t.read_text().split()]
        [found] = [c for c in children if b"network-service" in words(c)]
        found = pathlib.Path("/proc") / found
        # It takes its first order when it is confined, which the domain need not wait for to run.
        deadline = time.monotonic() + 10
        while "\nSeccomp:\t2\n" not in (found / "status").read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        yield found
    finally:
        p.kill()
        p.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to see all of it")
def test_what_its_process_has(service):
    status = dict(re.findall(r"^(\w+):\t(.*)$", (service / "status").read_text(), re.M))
    assert (status["Seccomp"], status["NoNewPrivs"], status["Threads"], status["Groups"].strip()) == ("2", "1", "1", "")
    assert {status[f"Cap{s}"] for s in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    uid = str(0x6FFF_FFFF)
    assert status["Uid"].split() == status["Gid"].split() == [uid] * 4
    assert status["NSpid"].split()[1:] == ["1"], "alone in its PID namespace"
    own = pathlib.Path("/proc/self/ns")
    same = {
        n
        for n in ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
        if (service / "ns" / n).readlink() == (own / n).readlink()
    }
    assert same == {"net", "user"}, "it speaks for the host"
    [mount] = (service / "mounts").read_text().splitlines()
    assert mount.startswith("doppel / tmpfs ro,nosuid,nodev,noexec"), mount
    assert list((service / "root").iterdir()) == [], "its root is empty"
    assert (service / "environ").read_bytes() == b""
    assert (service / "oom_score_adj").read_text().strip() == "100"
    limits = dict(re.findall(r"^Max (.+?)  +(\S+)", (service / "limits").read_text(), re.M))
    assert {limits[k] for k in ("processes", "locked memory", "msgqueue size")} == {"0"}, limits
    # With 0 the host's kernel would still make one for a pipe.
    assert limits["core file size"] == "1", limits
    files = [os.readlink(fd) for fd in (service / "fd").iterdir()]
    assert "/proc/loadavg" in files
    # Sockets, memory files, eventfds, and what its starter prints to.
    printed = [os.readlink(service / "fd" / n) for n in ("1", "2")]
    other = [
        f
        for f in files
        if not f.startswith(("socket:", "anon_inode:", "/memfd:doppel-")) and f not in ["/proc/loadavg", *printed]
    ]
    assert not other, other


def groups():
    """Control groups of services, in whatever hierarchy."""
    root = pathlib.Path("/sys/fs/cgroup")
    return {p for parent in (root / "doppel", *root.glob("*/doppel")) for p in parent.glob("net-*")}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make control groups")
def test_its_control_group(service):
    paths = re.findall(r"^\d+:(\S*):(/doppel/net-\S+)$", (service / "cgroup").read_text(), re.M)
    if not paths:
        pytest.skip("this host has no control groups for it")
    name = pathlib.Path(paths[0][1]).name
    mine = [g for g in groups() if g.name == name]
    read = lambda *files: [
        int(t) for g in mine for f in files if (g / f).exists() and (t := (g / f).read_text().strip()) != "max"
    ]
    total = int(re.search(r"MemTotal: +(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) * 1024
    [memory] = read("memory.max", "memory.limit_in_bytes")
    assert total / 4 < memory < total
    assert read("pids.max") == [1]
