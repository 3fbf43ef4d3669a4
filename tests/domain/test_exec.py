"""`doppel exec`: more programs in a running domain."""
import concurrent.futures
import fcntl
import hashlib
import os
import pty
import select
import struct
import subprocess
import termios
import time
import uuid

import pytest
from conftest import DOPPEL, call


class Running:
    """A domain that runs, and what can be started in it."""

    def __init__(self, image, *command, opts=()):
        self.name = "exec-" + uuid.uuid4().hex[:10]
        argv = [DOPPEL, "run", "--name", self.name, *opts, image, "--", *command]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.first = self.process.stdout.readline()
        assert self.first == b"up\n", self.first + self.process.stdout.read()

    def argv(self, *command, opts=()):
        return [DOPPEL, "exec", *opts, self.name, *command]

    def exec(self, *command, opts=(), stdin=b"", timeout=60):
        return call(self.argv(*command, opts=opts), stdin, timeout)

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def box():
    domain = Running("busybox", "sh", "-c", "echo up; exec sleep 1000")
    yield domain
    domain.stop()


def test_exit_codes(box):
    assert box.exec("true").code == 0
    assert box.exec("sh", "-c", "exit 7").code == 7
    assert box.exec("sh", "-c", "kill -9 $$").code == 137
    r = box.exec("nosuchprogram")
    assert r.code == 127 and "No such file" in r.err
    r = box.exec("/etc")
    assert r.code == 126 and "Permission denied" in r.err


def test_no_such_domain():
    r = call([DOPPEL, "exec", "no-domain-of-this-name", "true"], b"", 10)
    assert r.code == 125 and "no domain named" in r.err


def test_streams(box):
    r = box.exec("sh", "-c", "echo out; echo err >&2")
    assert (r.out, r.err) == ("out\n", "err\n")
    assert box.exec("cat", opts=["-i"], stdin=b"some input\n").ok() == "some input\n"
    # Without -i there is no input.
    assert box.exec("cat", stdin=b"some input\n").ok() == ""


def test_environment(box):
    out = box.exec("sh", "-c", "pwd; id -u; id -g; echo $A", opts=["-w", "/tmp", "-u", "5:6", "-e", "A=b c"]).ok()
    assert out == "/tmp\n5\n6\nb c\n"


def test_process(box):
    """It is a child of nobody in the domain, and leads its own group and session."""
    stat = box.exec("sh", "-c", "cat /proc/$$/stat").ok().split()
    pid, ppid, pgrp, session, tty = stat[0], *stat[3:7]
    assert ppid == "0" and pid == pgrp == session and tty == "0"
    # Nothing stays behind, zombies included.
    for _ in range(20):
        box.exec("true")
    assert len(box.exec("sh", "-c", "ls /proc | grep -c '^[0-9]'").ok().split()) == 1
    assert int(box.exec("sh", "-c", "ls -d /proc/[0-9]* | wc -l").ok()) <= 4


def test_much_data_both_ways(box, tmp_path):
    size = 100 << 20
    data = os.urandom(1 << 20) * (size >> 20)
    want = hashlib.md5(data).hexdigest()
    p = subprocess.Popen(box.argv("md5sum", opts=["-i"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, _ = p.communicate(data, timeout=60)
    assert out.split()[0].decode() == want
    with subprocess.Popen(box.argv("sh", "-c", "cat > /dev/null; dd if=/dev/zero bs=1M count=100 2>/dev/null", opts=["-i"]),
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        out, _ = p.communicate(data[:1 << 20], timeout=60)
    assert len(out) == size and not any(out[::4093])
    with subprocess.Popen(box.argv("cat", opts=["-i"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        out, _ = p.communicate(data[:30 << 20], timeout=60)
    assert hashlib.md5(out).digest() == hashlib.md5(data[:30 << 20]).digest()


def test_many_at_once(box):
    def one(i):
        return box.exec("sh", "-c", f"sleep 0.2; cat; echo {i}; exit {i % 100}", opts=["-i"], stdin=b"x" * 1000)
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        results = list(pool.map(one, range(50)))
    assert [(r.code, r.out) for r in results] == [(i % 100, "x" * 1000 + f"{i}\n") for i in range(50)]


def test_more_than_there_is_room_for(box):
    """Of 130 sessions two are refused; when others end there is room again."""
    sleepers = [subprocess.Popen(box.argv("sleep", "100"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(130)]
    try:
        deadline = time.monotonic() + 60
        while sum(p.poll() is not None for p in sleepers) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        time.sleep(1)
        for p in sleepers:
            p.terminate()
        ends = [(p.communicate(timeout=30)[1], p.returncode) for p in sleepers]
    assert sorted(code for _, code in ends) == [125] * 2 + [143] * 128
    assert all(b"128 sessions" in err for err, code in ends if code == 125)
    assert box.exec("true").code == 0


def test_signals_are_passed_on(box):
    for number, code in ((15, 143), (2, 130)):
        p = subprocess.Popen(box.argv("sh", "-c", "echo ready; sleep 100"), stdout=subprocess.PIPE)
        assert p.stdout.readline() == b"ready\n"
        p.send_signal(number)
        assert p.wait(timeout=10) == code
        p.stdout.close()
    p = subprocess.Popen(box.argv("sh", "-c", "trap 'echo caught; exit 3' USR1; echo ready; while :; do sleep 0.1; done"),
                         stdout=subprocess.PIPE)
    assert p.stdout.readline() == b"ready\n"
    p.send_signal(10)
    out, _ = p.communicate(timeout=10)
    # The whole group has it, the shell's own child too, which dies of it.
    assert b"caught\n" in out and p.returncode == 3


def test_a_reader_that_goes_away(box):
    r = call(["sh", "-c", " ".join(box.argv("yes")) + " | head -n 2"], b"", 20)
    assert r.out == "y\ny\n"
    wait_until_gone(box, "yes")


def test_a_caller_that_is_killed(box):
    """Its streams are hung up; the program goes on until it uses them."""
    p = subprocess.Popen(box.argv("sh", "-c", "echo ready; while echo more; do sleep 0.05; done"), stdout=subprocess.PIPE)
    assert p.stdout.readline() == b"ready\n"
    p.kill()
    p.wait()
    p.stdout.close()
    wait_until_gone(box, "echo more")
    p = subprocess.Popen(box.argv("cat", opts=["-i"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    p.stdin.write(b"x\n")
    p.stdin.flush()
    assert p.stdout.readline() == b"x\n"
    p.kill()
    p.communicate()
    wait_until_gone(box, "cat")


def wait_until_gone(box, what):
    deadline = time.monotonic() + 20
    while any(line.split(None, 2)[2].startswith(what) or f"-c {what}" in line
              for line in box.exec("ps").ok().splitlines()[1:]):
        assert time.monotonic() < deadline, box.exec("ps").out
        time.sleep(0.1)


def test_children_left_behind_do_not_hold_it(box):
    begun = time.monotonic()
    assert box.exec("sh", "-c", "sleep 300 & echo started").ok() == "started\n"
    assert time.monotonic() - begun < 20
    box.exec("pkill", "-f", "sleep 300")


def test_the_domain_ends_meanwhile():
    domain = Running("busybox", "sh", "-c", "trap 'exit 5' TERM; echo up; while :; do sleep 0.1; done")
    sessions = [subprocess.Popen(domain.argv("sh", "-c", "echo ready; exec sleep 100"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for _ in range(3)]
    for p in sessions:
        assert p.stdout.readline() == b"ready\n"
    domain.process.terminate()
    assert domain.process.wait(timeout=20) == 5
    for p in sessions:
        _, err = p.communicate(timeout=20)
        # Its program is killed a moment before the domain is gone: who looks in between sees only that.
        assert p.returncode == 137 and (not err or b"has ended" in err)
    domain.stop()


class Terminal:
    """`doppel exec -it` on a pseudo-terminal of ours."""

    def __init__(self, domain, *command, size=(33, 101)):
        self.master, slave = pty.openpty()
        set_size(slave, *size)
        # A session of its own, with the terminal as its controlling one, so that SIGWINCH comes.
        self.process = subprocess.Popen(domain.argv(*command, opts=["-i", "-t"]), stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.seen = ""

    def until(self, text, timeout=20):
        deadline = time.monotonic() + timeout
        while text not in self.seen:
            assert select.select([self.master], [], [], max(0, deadline - time.monotonic()))[0], self.seen
            try:
                data = os.read(self.master, 4096)
            except OSError:
                data = b""
            assert data, self.seen
            self.seen += data.decode(errors="replace")
        before, self.seen = self.seen.split(text, 1)
        return before

    def type(self, text):
        os.write(self.master, text.encode())

    def end(self, timeout=20):
        code = self.process.wait(timeout=timeout)
        os.close(self.master)
        return code


def set_size(fd, rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def test_terminal(box):
    t = Terminal(box, "sh")
    t.until("# ")
    t.type("test -t 0 && test -t 2 && tty && stty size; echo done\n")
    assert "/dev/pts/0" in (out := t.until("\r\ndone")) and "33 101" in out
    set_size(t.master, 50, 60)
    t.until("# ")
    t.type("sleep 0.3; stty size; echo don''e\n")
    assert "50 60" in t.until("\r\ndone")
    t.until("# ")
    # Ctrl-C ends what runs, not the shell.
    t.type("sleep 100\n")
    time.sleep(0.5)
    t.type("\x03")
    t.until("# ")
    t.type("exit 9\n")
    assert t.end() == 9
    assert "pts/0" not in box.exec("ls", "/dev/pts").ok()


def test_terminal_that_goes_away(box):
    t = Terminal(box, "sh", "-c", "trap 'echo hup > /tmp/hup; exit' HUP; echo ready; while :; do sleep 0.1; done")
    t.until("ready")
    t.process.kill()
    t.end()
    deadline = time.monotonic() + 10
    while box.exec("cat", "/tmp/hup").out != "hup\n":
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_job_control():
    domain = Running("debian", "sh", "-c", "echo up; exec sleep 1000")
    t = Terminal(domain, "bash", "--norc", "-i")
    t.until("# ")
    t.type("sleep 100\n")
    time.sleep(0.7)
    t.type("\x1a")
    t.until("Stopped")
    t.type("bg; jobs\n")
    t.until("Running")
    t.type("kill %1; wait; echo all''gone\n")
    t.until("allgone")
    t.type("\x04")
    assert t.end() == 0
    assert domain.exec("sh", "-c", "echo $0; exit 4").code == 4
    domain.stop()


def frozen(*args):
    return call([DOPPEL, *args], b"", 60)


@pytest.fixture
def image():
    name = "exec-" + uuid.uuid4().hex[:10]
    yield name
    frozen("frozen", "rm", name)


def test_freeze_with_live_sessions(image):
    """The domain that goes on keeps its sessions; in a clone they are hung up, and new ones can be started."""
    domain = Running("busybox", "sh", "-c", "echo up; exec sleep 1000")
    cat = subprocess.Popen(domain.argv("cat", opts=["-i"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    cat.stdin.write(b"before\n")
    cat.stdin.flush()
    assert cat.stdout.readline() == b"before\n"
    reader = subprocess.Popen(domain.argv("sh", "-c", "trap '' HUP; read x; echo $? > /tmp/reader; exec sleep 1000", opts=["-i"]),
                              stdin=subprocess.PIPE)
    writer = subprocess.Popen(domain.argv("sh", "-c", "trap '' PIPE; while echo x; do sleep 0.05; done; echo broken > /tmp/writer; exec sleep 1000"),
                              stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"x\n"
    terminal = Terminal(domain, "sh", "-c", "trap 'echo hup > /tmp/terminal; exec sleep 1000' HUP; echo ready; while :; do sleep 0.1; done")
    terminal.until("ready")
    watch = subprocess.Popen([DOPPEL, "exec", "--builtin", domain.name, "watch", "/tmp"], stdout=subprocess.PIPE)
    assert watch.stdout.read(7) == b"ready \0"
    archive = subprocess.Popen([DOPPEL, "exec", "--builtin", domain.name, "tar-out", "/"], stdout=subprocess.PIPE)
    time.sleep(0.3)
    assert frozen("freeze", domain.name, image).code == 0
    # Here they go on.
    cat.stdin.write(b"after\n")
    cat.stdin.flush()
    assert cat.stdout.readline() == b"after\n"
    assert writer.stdout.readline() == b"x\n"
    cat.stdin.close()
    assert cat.wait(timeout=10) == 0
    archive.communicate(timeout=30)
    assert archive.returncode == 0
    for p in (reader, writer, watch, terminal.process):
        p.kill()
        p.wait()
    os.close(terminal.master)
    domain.stop()
    # In a clone their other end is gone.
    clone = subprocess.Popen([DOPPEL, "clone", image, "--name", domain.name + "-c"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
    domain.name += "-c"
    deadline = time.monotonic() + 20
    while True:
        r = domain.exec("sh", "-c", "cd /tmp; cat reader writer terminal")
        if r.out == "1\nbroken\nhup\n":
            break
        assert clone.poll() is None and time.monotonic() < deadline, (r.out, r.err)
        time.sleep(0.2)
    left = domain.exec("ps").ok()
    assert "cat" not in left.replace("cat reader", "") and "watch" not in left and "tar-out" not in left
    assert domain.exec("cat", opts=["-i"], stdin=b"x" * 100_000).ok() == "x" * 100_000
    clone.kill()
    clone.communicate()


def test_hibernate_and_wake(image):
    domain = Running("busybox", "sh", "-c", "echo up; exec sleep 1000")
    cat = subprocess.Popen(domain.argv("cat", opts=["-i"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    cat.stdin.write(b"x\n")
    cat.stdin.flush()
    assert cat.stdout.readline() == b"x\n"
    assert frozen("hibernate", domain.name).code == 0
    cat.communicate(timeout=20)
    assert cat.returncode == 137
    woken = subprocess.Popen([DOPPEL, "wake", domain.name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 20
    while domain.exec("true").code != 0:
        assert time.monotonic() < deadline and woken.poll() is None
        time.sleep(0.1)
    deadline = time.monotonic() + 10
    while "cat" in domain.exec("ps").ok():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    woken.kill()
    woken.communicate()
    domain.stop()
