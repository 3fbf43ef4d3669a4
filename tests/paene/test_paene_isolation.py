"""What a paene domain's programs cannot do, and neighbours that do not suffer from those that behave badly."""
import os
import re
import subprocess

from conftest import DOPPEL, run, text

NAMESPACES = ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"]


def test_namespaces_and_rights():
    out = text(
        run(
            "sh",
            "-c",
            "for ns in /proc/self/ns/*; do readlink $ns; done; cat /proc/self/uid_map; grep -E "
            "'CapBnd|NoNewPrivs|Seccomp:' /proc/self/status",
        )
    )
    inside = dict(re.findall(r"(\w+):\[(\d+)\]", out))
    for kind in NAMESPACES:
        assert inside[kind] != re.search(r"\d+", os.readlink(f"/proc/self/ns/{kind}"))[0], kind
    first = int(re.search(r"^\s*0\s+(\d+)\s+65536", out, re.M)[1])
    assert first >= 0x2000_0000, "root in there is nobody here"
    assert "NoNewPrivs:\t1" in out and "Seccomp:\t2" in out
    bounding = int(re.search(r"CapBnd:\s*(\w+)", out)[1], 16)
    assert bounding & ~0xA80425FB == 0, hex(bounding)


CALLS = """
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    ctypes.set_errno(0)
    r = libc.syscall(*args)
    return errno.errorcode.get(ctypes.get_errno(), '?') if r < 0 else 'done'
for name, args in {
    'mount': (165, b'x', b'/mnt', b'tmpfs', 0, 0), 'umount2': (166, b'/proc', 0), 'pivot_root': (155, b'/', b'/'),
    'unshare': (272, 0x10000000), 'setns': (308, 0, 0), 'clone-newuser': (56, 0x10000011, 0, 0, 0, 0),
    'init_module': (175, 0, 0, b''), 'finit_module': (313, 0, b'', 0), 'delete_module': (176, b'x', 0),
    'bpf': (321, 0, 0, 0), 'perf_event_open': (298, 0, 0, -1, -1, 0), 'userfaultfd': (323, 0), 'io_uring_setup': (425, 1, 0),
    'add_key': (248, b'user', b'x', b'y', 1, -2), 'request_key': (249, b'user', b'x', 0, -2), 'keyctl': (250, 0, -2, 0),
    'reboot': (169, 0xfee1dead, 672274793, 0, 0), 'kexec_load': (246, 0, 0, 0, 0), 'swapon': (167, b'/x', 0),
    'settimeofday': (164, 0, 0), 'sethostname': (170, b'x', 1), 'open_by_handle_at': (304, 0, 0, 0), 'acct': (163, b'/x'),
    'quotactl': (179, 0, 0, 0, 0), 'iopl': (172, 3), 'syslog': (103, 3, 0, 0), 'vsock': (41, 40, 1, 0),
    'mount_setattr': (442, -100, b'/', 0, 0, 0), 'fsopen': (430, b'tmpfs', 0), 'move_mount': (429, -1, b'', -1, b'', 4),
}.items():
    print(name, call(*args))
"""  # noqa: E501


def test_calls_that_reach_the_host_are_refused(image):
    out = text(run("python3", "-c", CALLS, image=image("debian")))
    results = dict(line.split() for line in out.splitlines())
    assert len(results) == 30 and set(results.values()) == {"EPERM"}, results


def test_the_host_is_out_of_reach():
    script = """
        for f in /proc/sys/kernel/printk /proc/sys/kernel/core_pattern /proc/sysrq-trigger /sys/kernel/uevent_helper; do
            (echo x > $f) 2>/dev/null && echo wrote $f; done
        mknod /tmp/disk b 8 0 2>/dev/null && echo made a disk
        cat /proc/kcore /proc/keys 2>/dev/null | head -c 1 | wc -c
        ls /proc | grep -c '^[0-9]*$'
        ls /sys/class/net
    """
    out = text(run("sh", "-c", script)).split("\n")
    assert out[0] == "0" and int(out[1]) < 6 and out[2] == "lo", out


class Neighbour:
    """A domain that answers."""

    def __init__(self, started):
        self.p = started("cat", opts=["-i"])

    def answers(self, times=20):
        for n in range(times):
            self.p.stdin.write(b"%d\n" % n)
            self.p.stdin.flush()
            assert self.p.stdout.readline() == b"%d\n" % n


def test_fork_bomb(started, doppeld):
    neighbour = Neighbour(started)
    neighbour.answers()
    made = doppeld.cli(
        "run", "-d", "--kind", "paene", "--pids-limit", "50", "busybox", "sh", "-c", "b() { b | b & }; b; sleep 1000"
    )
    bomb = text(made).strip()
    neighbour.answers(100)
    usage = doppeld.get(f"/v1/domains/{bomb}/stats").json
    assert usage["pids"] <= 50, usage
    assert doppeld.cli("rm", "-f", bomb).returncode == 0
    neighbour.answers()


def test_memory_hog(started, image):
    neighbour = Neighbour(started)
    neighbour.answers()
    hog = "a = []\nwhile True: a.append(bytearray(b'x' * (1 << 20)))"
    p = run("python3", "-c", hog, image=image("debian"), opts=["--memory", "64m"], timeout=120)
    assert p.returncode == 137, p
    neighbour.answers()
    # A child that is killed is its parent's business.
    p = run("sh", "-c", f'python3 -c "{hog}"; echo child $?', image="debian", opts=["--memory", "64m"], timeout=120)
    assert p.returncode in (0, 137), p
    neighbour.answers()


def test_disk_hog(started):
    neighbour = Neighbour(started)
    neighbour.answers()
    script = "dd if=/dev/zero of=/hog bs=64k; stat -c %s /hog; rm /hog; echo x > /small && cat /small"
    p = run("sh", "-c", script, opts=["--disk", "8m"], timeout=120)
    size = int(p.stdout.split()[0])
    assert p.returncode == 0 and b"No space left" in p.stderr and 4 << 20 < size <= 8 << 20, p
    assert p.stdout.endswith(b"x\n")
    neighbour.answers()


def test_inode_hog(started):
    neighbour = Neighbour(started)
    neighbour.answers()
    script = (
        "mkdir /d; i=0; while echo > /d/$i; do i=$((i+1)); done 2>/dev/null; echo $i; rm -r /d; echo x > /small "
        "&& cat /small"
    )
    p = run("sh", "-c", script, opts=["--inodes", "200"], timeout=120)
    count = int(p.stdout.split()[0])
    assert p.returncode == 0 and 100 < count <= 200 and p.stdout.endswith(b"x\n"), p
    neighbour.answers()


SHARED = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
id = libc.shmget(0x1234, 4096, 0o1600)
at = libc.shmat(id, None, 0)
text = sys.argv[1].encode()
before = ctypes.string_at(at, len(text))
ctypes.memmove(at, text, len(text))
print('new' if before == bytes(len(text)) else before, flush=True)
sys.stdin.readline()
print(ctypes.string_at(at, len(text)).decode())
"""


def test_shared_memory_is_each_domains_own(started, image):
    both = [started("python3", "-c", SHARED, word, image=image("debian"), opts=["-i"]) for word in ("one", "two")]
    for p in both:
        assert p.stdout.readline() == b"new\n", "one segment of this key in each"
    for p, word in zip(both, (b"one\n", b"two\n")):
        p.stdin.write(b"\n")
        p.stdin.flush()
        assert p.stdout.read() == word


POSTGRES = """
export PATH=$PATH:$(echo /usr/lib/postgresql/*/bin) PGDATA=/tmp/data PGHOST=/tmp
initdb -A trust --no-sync >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
pg_ctl -w -t 60 -o '-c shared_memory_type=sysv -c listen_addresses= -k /tmp' -l /tmp/log start >/dev/null || { cat /tmp/log; exit 1; }
psql -qAt -c 'create table t as select generate_series(1, 1000) as n' postgres
echo ready
read line
psql -qAt -c 'select sum(n) from t' postgres
pg_ctl -w -m fast stop >/dev/null
"""  # noqa: E501


def test_several_postgres(started, image):
    all = [started("sh", "-c", POSTGRES, image=image("servers"), opts=["-i", "-u", "postgres"]) for _ in range(3)]
    for p in all:
        assert p.stdout.readline() == b"ready\n", p.stderr.read()
    for p in all:
        p.stdin.write(b"\n")
        p.stdin.flush()
        assert p.stdout.read() == b"500500\n"
        assert p.wait(60) == 0


def test_without_control_groups(tmp_path):
    """In a mount namespace of its own without them, it says so and runs."""
    script = f"umount -l /sys/fs/cgroup; exec {DOPPEL} run --standalone --kind paene busybox -- echo ran"
    p = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, timeout=60)
    assert p.returncode == 0 and p.stdout == b"ran\n" and b"without a control group" in p.stderr, p
