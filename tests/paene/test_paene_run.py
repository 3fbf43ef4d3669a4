"""`doppel run --kind paene`: streams, exit codes, signals, terminal, identity, sudden death, what is refused."""
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import uuid

import pytest
from conftest import DOPPEL, argv, eventually, run, text
from processes import words


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_exit_codes(code):
    assert run("sh", "-c", f"exit {code}").returncode == code


def test_what_cannot_be_run():
    for name in ("/no/such/program", "no-such-program"):
        p = run(name)
        assert p.returncode == 127 and b"no such file or directory" in p.stderr, p
    p = run("/etc/passwd")
    assert p.returncode == 126 and b"permission denied" in p.stderr, p
    p = run("true", opts=["-w", "/etc/passwd"])
    assert p.returncode == 126 and b"cannot start in /etc/passwd: not a directory" in p.stderr, p


def test_a_child_killed_by_a_signal():
    assert run("sh", "-c", "sh -c 'kill -SEGV $$; sleep 5'; exit $?").returncode == 128 + signal.SIGSEGV


def test_streams():
    p = run("sh", "-c", "echo out; echo err >&2; cat", stdin=b"in\n")
    assert (p.returncode, p.stdout, p.stderr) == (0, b"out\nin\n", b"err\n")
    data = os.urandom(8 << 20)
    assert run("cat", stdin=data).stdout == data
    assert subprocess.run(argv("cat"), input=b"not connected", capture_output=True, timeout=60).stdout == b""


def test_a_reader_that_goes_away():
    p = subprocess.Popen(argv("sh", "-c", "yes; echo ended $? >&2"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdout.read(100_000)
    p.stdout.close()
    assert p.stderr.read().startswith(b"ended ")
    p.stderr.close()
    assert p.wait(60) == 0


def test_who_it_is():
    script = "id -u; id -g; pwd; hostname; echo $A; echo $$"
    out = text(run("sh", "-c", script, opts=["-u", "7:8", "-w", "/tmp/new/dir", "--hostname", "here", "-e", "A=b c"]))
    assert out.split("\n")[:6] == ["7", "8", "/tmp/new/dir", "here", "b c", "1"]
    assert text(run("-c", "echo $0", opts=["--entrypoint", "/bin/sh"])) == "/bin/sh\n"


def test_signals_are_passed_on(started):
    p = started("sh", "-c", "trap 'echo term; exit 5' TERM; echo ready; while :; do sleep 0.1; done")
    assert p.stdout.readline() == b"ready\n"
    p.send_signal(signal.SIGTERM)
    assert p.stdout.read() == b"term\n" and p.wait(60) == 5


def test_no_signal_is_blocked(started):
    """A shell's `wait` waits for SIGCHLD."""
    p = started(
        "sh",
        "-c",
        "grep -h SigBlk /proc/self/status; exec sleep 1000",
        opts=["--name", "paene-signals"],
        stdin=subprocess.DEVNULL,
    )
    assert p.stdout.readline() == b"SigBlk:\t0000000000000000\n"
    script = "grep SigBlk /proc/self/status; sleep 0.1 & sleep 0.2 & wait; echo ended"
    again = subprocess.run([DOPPEL, "exec", "paene-signals", "sh", "-c", script], capture_output=True, timeout=60)
    assert again.stdout == b"SigBlk:\t0000000000000000\nended\n", again
    inherited = subprocess.run(
        [DOPPEL, "exec", "paene-signals", "grep", "SigIgn", "/proc/self/status"], capture_output=True, timeout=60
    )
    assert int(inherited.stdout.split()[1], 16) >> 31 == 0, "the C library's own signals of whoever started it"


def test_terminal():
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
    command = argv("sh", "-c", "tty; stty size; read line; echo got $line; exit 4", opts=["-i", "-t"])
    p = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    seen = b""
    while b"33 99" not in seen:
        seen += os.read(master, 1000)
    assert b"/dev/pts/0" in seen
    os.write(master, b"hello\n")
    while b"got hello" not in seen:
        seen += os.read(master, 1000)
    assert p.wait(60) == 4
    os.close(master)


def processes(name):
    """Host processes whose command line has this word."""
    return [pid for pid in filter(str.isdigit, os.listdir("/proc")) if name.encode() in words(pid)]


def test_nothing_is_left(started):
    name = f"paene-{uuid.uuid4().hex[:8]}"
    # Its processes have a mark in their arguments.
    p = started("sh", "-c", f"sleep 1000 & echo ready; sh -c 'sleep 1000; : ' {name}", opts=["--name", name])
    assert p.stdout.readline() == b"ready\n"
    eventually(lambda: len(processes(name)) >= 3, "the command, the attendant, the program")
    groups = lambda: [d for d, _, _ in os.walk("/sys/fs/cgroup") if d.endswith(f"-{name}")]
    p.kill()
    p.wait()
    eventually(lambda: not processes(name), "all its processes end with the command")
    # The groups of one that was killed are swept by the next.
    assert text(run("true", opts=["--name", name])) == ""
    assert not processes(name)
    eventually(
        lambda: not groups() or not [g for g in groups() if open(f"{g}/cgroup.procs").read()],
        "no process in its groups",
    )


def test_files_are_its_own(started):
    p = started("sh", "-c", "echo changed > /etc/passwd; rm -r /usr; echo ready; read x; cat /etc/passwd", opts=["-i"])
    assert p.stdout.readline() == b"ready\n"
    out = text(run("sh", "-c", "cat /etc/passwd; ls -d /usr; stat -c %u:%g /etc/passwd"))
    assert "root" in out and "/usr" in out and out.endswith("0:0\n"), "the image is as it was, and root's"
    p.stdin.write(b"\n")
    p.stdin.flush()
    assert p.stdout.read() == b"changed\n"


def test_one_device_serves_all(started):
    both = [started("sh", "-c", "echo ready; read x", opts=["-i"]) for _ in range(2)]
    for p in both:
        assert p.stdout.readline() == b"ready\n"

    def device(p):
        """The device of its lower layer, as seen in the attendant's mounts."""
        attendant = open(f"/proc/{p.pid}/task/{p.pid}/children").read().split()[0]
        lines = open(f"/proc/{attendant}/mountinfo").read().splitlines()
        return next(line.split()[2] for line in lines if " /run/lower " in line)

    assert device(both[0]) == device(both[1]), "one file system, so one cache of its pages"


def test_kinds():
    p = subprocess.run(
        [DOPPEL, "run", "--standalone", "--kind", "auto", "busybox", "--", "true"], capture_output=True, timeout=60
    )
    assert p.returncode == 0 and p.stderr.startswith(b"doppel: kind pa"), p
    for opts, word in ([["--trace"], b"trace"], [["--freeze-as", "paene-never"], b"freezing"]):
        p = run("true", opts=opts)
        assert p.returncode == 125 and b"paene" in p.stderr and word in p.stderr, p
    p = subprocess.run(
        [DOPPEL, "run", "--standalone", "--disk", "1m", "busybox", "--", "true"], capture_output=True, timeout=60
    )
    assert p.returncode == 125 and b"paene" in p.stderr, p


def test_exec_cp_and_stats(started, tmp_path):
    name = f"paene-{uuid.uuid4().hex[:8]}"
    p = started("sh", "-c", "echo ready; exec sleep 1000", opts=["--name", name])
    assert p.stdout.readline() == b"ready\n"
    inside = lambda *a, **kw: subprocess.run([DOPPEL, "exec", *a], capture_output=True, timeout=60, **kw)
    assert inside(name, "sh", "-c", "exit 7").returncode == 7
    assert inside(name, "/nothing").returncode == 127 and inside(name, "/etc").returncode == 126
    assert inside("-i", name, "cat", input=b"data").stdout == b"data"
    assert inside("-u", "1000:9", "-w", "/tmp", name, "sh", "-c", "id -u; id -g; pwd").stdout == b"1000\n9\n/tmp\n"
    # The same rights as the first program's, in the same namespaces.
    state_of = "P=$1; grep -E 'Cap|NoNewPrivs|Seccomp:' /proc/$P/status; for ns in /proc/$P/ns/*; do readlink $ns; done"
    state = lambda pid: text(inside(name, "sh", "-c", state_of, "sh", pid))
    assert state("self") == state("1") and "Seccomp:" in state("1")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/file").write_bytes(b"hello")
    (tmp_path / "in/link").symlink_to("/etc/passwd")
    copy = lambda a, b: text(subprocess.run([DOPPEL, "cp", str(a), str(b)], capture_output=True, timeout=60))
    copy(tmp_path / "in", f"{name}:/tmp/there")
    assert inside(name, "cat", "/tmp/there/file").stdout == b"hello"
    copy(f"{name}:/tmp/there", tmp_path / "out")
    assert (tmp_path / "out/file").read_bytes() == b"hello" and os.readlink(tmp_path / "out/link") == "/etc/passwd"
    assert name in text(subprocess.run([DOPPEL, "stats", "--standalone"], capture_output=True, timeout=60))
    p = subprocess.run([DOPPEL, "freeze", name, f"{name}-frozen"], capture_output=True, timeout=60)
    assert p.returncode != 0 and b"paene" in p.stderr, p
