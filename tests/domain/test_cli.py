"""`doppel run` itself: exit codes, streams, signals, terminal, options, sudden death."""
import contextlib
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest
from conftest import DOPPEL, descendants, domain_cgroups, eventually, still_there


@pytest.mark.parametrize("code", [0, 1, 42, 127, 255])
def test_exit_code_of_program(domain, code):
    assert domain.run("sh", "-c", f"exit {code}", image="busybox").code == code


def test_exit_code_tool_error(domain):
    for argv in (
        ["run", "no-such-image", "--", "true"],
        ["run", "--no-such-option"],
        ["run", "--memory", "nonsense", "busybox", "--", "true"],
        ["run", "busybox"],
        ["frobnicate"],
    ):
        r = subprocess.run([DOPPEL, *argv], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
        assert r.returncode == 125 and r.stderr.strip(), (argv, r)


def test_exit_code_not_executable_not_found(domain):
    r = domain.run("/etc/passwd", image="busybox")
    assert r.code == 126 and r.err.strip()
    for name in ("/no/such/program", "no-such-program"):
        r = domain.run(name, image="busybox")
        assert r.code == 127 and r.err == f"doppel: cannot run {name}: no such file or directory\n", r


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV", "INT", "USR1"])
def test_exit_code_signal(domain, name):
    # In a child, as the first process of a domain is immune to its own signals, like any init.
    number = int(getattr(signal, f"SIG{name}"))
    assert domain.run("sh", "-c", f"sh -c 'kill -{name} $$; sleep 5'; exit $?", image="busybox").code == 128 + number


def test_exit_code_fault(domain, need):
    need("nullderef")
    assert domain.run("/t/nullderef").code == 128 + signal.SIGSEGV


def test_streams_are_separate(domain):
    r = domain.run("sh", "-c", "echo out; echo err >&2; cat", stdin="in\n", image="busybox")
    assert (r.code, r.out, r.err) == (0, "out\nin\n", "err\n")


def test_large_stream_both_ways(domain):
    data = os.urandom(20 << 20)
    p = subprocess.run(domain.argv("cat", image="busybox"), input=data, capture_output=True, timeout=120)
    assert p.returncode == 0 and p.stdout == data


def test_binary_and_long_output(domain):
    p = subprocess.run(
        domain.argv("sh", "-c", "head -c 30000000 /dev/zero", image="busybox"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )
    assert p.stdout == bytes(30000000)


def test_stdin_interactive_line_by_line(domain):
    p = domain.start("cat", image="busybox")
    for i in range(20):
        p.stdin.write(b"line %d\n" % i)
        p.stdin.flush()
        assert p.stdout.readline() == b"line %d\n" % i
    p.stdin.close()
    assert p.wait(60) == 0


def test_without_i_stdin_is_empty(domain):
    argv = [a for a in domain.argv("cat", image="busybox") if a != "-i"]
    r = subprocess.run(argv, input=b"not for you", capture_output=True, timeout=60)
    assert (r.returncode, r.stdout) == (0, b"")


def test_stdout_closed_early(domain):
    p = domain.start("sh", "-c", "yes", image="busybox", stdin=subprocess.DEVNULL)
    assert p.stdout.read(100) == b"y\n" * 50
    p.stdout.close()
    assert p.wait(60) in (141, 1, 125)


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signal_forwarded(domain, sig):
    p = domain.start(
        "sh",
        "-c",
        f"trap 'echo got; exit 9' {sig.name[3:]}; echo ready; while :; do sleep 0.1; done",
        image="busybox",
        stdin=subprocess.DEVNULL,
    )
    assert p.stdout.readline() == b"ready\n"
    p.send_signal(sig)
    assert p.stdout.readline() == b"got\n"
    assert p.wait(60) == 9


def test_signal_default_action(domain):
    """Process 1 of a domain, like a container's, ignores signals it has no handler for."""
    p = domain.start("cat", image="busybox")
    for line in (b"before\n", b"after\n", b"long after\n"):
        p.stdin.write(line)
        p.stdin.flush()
        assert p.stdout.readline() == line
        p.terminate()
    assert p.communicate(timeout=60)[0] == b"" and p.returncode == 0


def test_environment(domain):
    r = domain.run(
        "env",
        image="busybox",
        env={"FOO": "bar baz", "EMPTY": ""},
        opts=["-e", "PASSED"],
    )
    lines = r.ok().split("\n")
    assert "FOO=bar baz" in lines and "EMPTY=" in lines and any(x.startswith("PATH=") for x in lines)
    p = subprocess.run(
        domain.argv("env", image="busybox", opts=["-e", "PASSED"]),
        env={**os.environ, "PASSED": "on", "SECRET": "x"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "PASSED=on" in p.stdout and "SECRET" not in p.stdout


def test_working_directory(domain):
    assert domain.run("pwd", image="busybox", opts=["-w", "/etc"]).ok() == "/etc\n"
    # One that is missing is made, as root's, whoever the program runs as.
    script = "pwd; stat -c '%u:%g %a' . ..; id -u"
    assert (
        domain.run("sh", "-c", script, image="busybox", opts=["-w", "/new/a/b", "-u", "7:8"]).ok()
        == "/new/a/b\n0:0 755\n0:0 755\n7\n"
    )
    r = domain.run("pwd", image="busybox", opts=["-w", "/etc/passwd"])
    assert r.code == 126 and "cannot start in /etc/passwd: not a directory" in r.err, r
    r = domain.run("pwd", image="busybox", opts=["-w", "/proc/nothing"])
    assert r.code == 126 and "/proc/nothing" in r.err, r


def test_user_and_group(domain):
    out = domain.run(
        "sh",
        "-c",
        "id -u; id -g; touch /root/x 2>/dev/null || echo denied; touch /tmp/x && stat -c %u:%g /tmp/x",
        image="busybox",
        opts=["-u", "1234:567"],
    ).ok()
    assert out == "1234\n567\ndenied\n1234:567\n"
    assert domain.run("id", "-u", image="busybox").ok() == "0\n"


def test_hostname(domain):
    assert (
        domain.run(
            "sh",
            "-c",
            "hostname; uname -n; cat /proc/sys/kernel/hostname",
            image="busybox",
            opts=["--hostname", "box7"],
        ).ok()
        == "box7\n" * 3
    )


def test_cpus(domain):
    assert domain.run("nproc", opts=["--cpus", "1"]).ok() == "1\n"
    assert domain.run("nproc", opts=["--cpus", "2"]).ok() == "2\n"


def test_memory_shown_inside(domain):
    kb = int(domain.run("awk", "/MemTotal/ {print $2}", "/proc/meminfo", opts=["--memory", "64m"]).ok())
    assert kb <= 64 << 10


def test_trace_prints_calls(domain):
    r = domain.run("cat", "/etc/hostname", image="busybox", opts=["--trace"])
    assert r.code == 0
    assert re.search(r'open(at)?\(.*"/etc/hostname"', r.err) and "exit_group(0)" in r.err
    # Sizes and offsets are 64 bits wide.
    r = domain.run("dd", "of=/tmp/x", "bs=1M", "count=0", "seek=5000", image="busybox", opts=["--trace"])
    assert r.code == 0 and re.search(r"ftruncate\(\d+, 5242880000\)", r.err)


def test_changes_are_private_to_the_domain(domain):
    domain.run("sh", "-c", "echo changed > /etc/hostname; rm -f /bin/true; touch /new", image="busybox").ok()
    out = domain.run(
        "sh", "-c", "cat /etc/hostname; test -e /bin/true && echo there; test -e /new || echo clean", image="busybox"
    ).ok()
    assert "changed" not in out and out.endswith("there\nclean\n")


def test_two_domains_do_not_see_each_other(domain):
    p = domain.start(
        "sh", "-c", "touch /tmp/mine; echo ready; exec sleep 1234", image="busybox", stdin=subprocess.DEVNULL
    )
    assert p.stdout.readline() == b"ready\n"
    out = domain.run("sh", "-c", "ps; ls /tmp; kill -9 -1; echo alive", image="busybox").ok()
    assert "1234" not in out and "mine" not in out
    assert p.poll() is None
    p.kill()
    p.communicate()


def test_input_tells_how_much_is_there(place):
    """FIONREAD, which Java asks before it reads standard input."""
    code = (
        "import fcntl, select, struct; select.select([0], [], []); print(struct.unpack('i', fcntl.ioctl(0, 0x541b, "
        "b'....'))[0])"
    )
    assert place.run("python3", "-c", code, stdin=b"hello").ok() == "5\n"


def test_many_domains_at_once(domain):
    ps = [domain.start("sh", "-c", f"echo {i}; cat", image="busybox") for i in range(20)]
    for i, p in enumerate(ps):
        assert p.stdout.readline() == b"%d\n" % i
    for p in ps:
        out, err = p.communicate(b"bye", timeout=60)
        assert (p.returncode, out) == (0, b"bye"), err


class Terminal:
    """Drives `doppel run -it` through a pseudo-terminal."""

    def __init__(self, argv, rows=24, cols=80):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.p = subprocess.Popen(
            argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.text = ""

    def expect(self, pattern, seconds=60):
        end = time.monotonic() + seconds
        while not (m := re.search(pattern, self.text)):
            if time.monotonic() > end:
                pytest.fail(f"no {pattern!r} in {self.text[-1000:]!r}")
            if not self.look(0.1):
                pytest.fail(f"terminal closed; no {pattern!r} in {self.text[-1000:]!r}")
        self.text = self.text[m.end() :]
        return m

    def look(self, seconds):
        """Takes what comes within this time; false once the terminal is closed."""
        if select.select([self.master], [], [], seconds)[0]:
            try:
                self.text += os.read(self.master, 4096).decode(errors="replace")
            except OSError:
                return False
        return True

    def type(self, text):
        os.write(self.master, text.encode())

    def resize(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        self.p.send_signal(signal.SIGWINCH)

    def close(self):
        if self.p.poll() is None:
            self.p.kill()
        self.p.wait()
        os.close(self.master)
        os.close(self.slave)


# A child says that it runs: from then on keys are signals, and it is the one who gets them.
A_JOB = "sh -c 'echo go''ing; exec sleep 1000'\r"


@pytest.fixture
def terminal(domain):
    made = []

    def start(*argv, image="busybox", **kw):
        t = Terminal([DOPPEL, "run", "--rm", "-it", "-e", "PS1=PROMPT> ", image, "--", *argv], **kw)
        made.append(t)
        return t

    yield start
    for t in made:
        t.close()


def test_terminal_shell(terminal):
    t = terminal("sh")
    t.expect("PROMPT> ")
    t.type("tty; echo $((6*7))\r")
    t.expect(r"/dev/(pts/\d+|console|tty\S*)\r\n42\r\n")
    t.type("stty size\r")
    t.expect("24 80")
    t.type("exit 3\r")
    assert t.p.wait(60) == 3
    assert termios.tcgetattr(t.slave) == t.before  # the caller's terminal is as it was


def test_terminal_interrupt_and_eof(terminal):
    t = terminal("sh")
    t.expect("PROMPT> ")
    t.type(A_JOB)
    t.expect("going")
    t.type("\x03")
    t.expect("PROMPT> ")
    t.type("echo code $?\r")
    t.expect("code 130")
    # The shell is back at its prompt, with the terminal raw: an EOF typed earlier is lost, on Linux too.
    t.expect("PROMPT> ")
    t.type("\x04")
    assert t.p.wait(60) in (0, 130)


def test_terminal_suspend_and_job_control(terminal):
    t = terminal("bash", "--norc", image="debian")
    t.expect(r"[#$>] ")
    t.type(A_JOB)
    t.expect("going")
    t.type("\x1a")
    t.expect("Stopped")
    t.type("jobs; bg; kill %1; wait; echo end$?\r")
    t.expect(r"end\d+")
    t.type("exit 0\r")
    assert t.p.wait(60) == 0


def test_terminal_resize(terminal):
    t = terminal("sh", rows=30, cols=100)
    t.expect("PROMPT> ")
    t.type("trap 'echo winch' WINCH; stty size\r")
    t.expect("30 100")
    t.resize(50, 132)
    # It comes to the domain's terminal a moment later.
    t.type("until stty size | grep '50 132'; do sleep 0.05; done; echo al''so\r")
    t.expect(r"\n50 132\r\n[^$]*also")


def test_terminal_python_repl(terminal):
    t = terminal("python3", "-q", image="debian")
    t.expect(">>> ")
    t.type("print(2**100)\r")
    t.expect("1267650600228229401496703205376")
    t.type("exit(4)\r")
    assert t.p.wait(60) == 4


@pytest.mark.parametrize("victim", ["first", "last", "all but first"])
def test_sudden_death_of_a_host_process(domain, victim):
    cgroups = domain_cgroups()
    p = domain.start(
        "sh", "-c", "sleep 100 & sleep 100 & sleep 100 & echo ready; wait", image="busybox", stdin=subprocess.DEVNULL
    )
    assert p.stdout.readline() == b"ready\n"
    assert eventually(lambda: len(descendants(p.pid)) >= 5), "init, the shell and three programs"
    procs = descendants(p.pid)
    guests = sorted(procs)
    for pid in {"first": guests[:1], "last": guests[-1:], "all but first": guests[1:]}[victim]:
        with contextlib.suppress(ProcessLookupError):  # the first death may have ended the domain already
            os.kill(pid, signal.SIGKILL)
    _out, err = p.communicate(timeout=60)
    assert p.returncode == 125 and b"doppel" in err and err.strip(), (p.returncode, err)
    assert eventually(lambda: not still_there(procs)), still_there(procs)
    assert eventually(lambda: domain_cgroups() <= cgroups), domain_cgroups() - cgroups


def test_killed_tool_leaves_nothing(domain):
    p = domain.start("sh", "-c", "sleep 100 & echo ready; wait", image="busybox", stdin=subprocess.DEVNULL)
    assert p.stdout.readline() == b"ready\n"
    procs = descendants(p.pid)
    p.kill()
    p.wait()
    assert procs and eventually(lambda: not still_there(procs)), still_there(procs)


def test_starts_wait_for_no_dead_command(domain):
    """A process stays in the control groups of a command that was killed: others start as fast as ever."""

    def start() -> float:
        times = []
        for _ in range(5):
            begin = time.monotonic()
            domain.run("true", image="busybox").ok()
            times.append(time.monotonic() - begin)
        return min(times)

    before = domain_cgroups()
    p = domain.start("sh", "-c", "echo ready; sleep 100", image="busybox", stdin=subprocess.DEVNULL)
    assert p.stdout.readline() == b"ready\n"
    free = start()
    groups = domain_cgroups() - before
    stays = subprocess.Popen(["sleep", "100"])
    for group in groups:
        pathlib.Path(group, "cgroup.procs").write_text(f"{stays.pid}\n")
    p.kill()
    p.wait()
    occupied = start()
    stays.kill()
    stays.wait()
    # Someone's start removes them.
    assert groups and eventually(lambda: start() and not groups & domain_cgroups()), groups
    assert occupied < 3 * free + 0.05, (occupied, free)


def test_background_processes_end_with_the_first(domain):
    cgroups = domain_cgroups()
    assert domain.run("sh", "-c", "sleep 1000 & sleep 1000 & echo out", image="busybox").ok() == "out\n"
    assert eventually(lambda: domain_cgroups() <= cgroups)
