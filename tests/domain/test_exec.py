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
from conftest import DOPPEL, Running, call, eventually


def test_exit_codes(box):
    assert box.exec("true").code == 0
    assert box.exec("sh", "-c", "exit 7").code == 7
    assert box.exec("sh", "-c", "kill -9 $$").code == 137
    r = box.exec("nosuchprogram")
    assert r.code == 127 and "No such file" in r.err
    r = box.exec("/etc")
    assert r.code == 126 and "Permission denied" in r.err


def test_user_names_and_groups():
    """By the files of the running domain, as they are now."""
    box = Running("busybox", "sh", "-c", "echo up; exec sleep 1000")
    try:
        files = {
            "passwd": "root:x:0:0::/root:/bin/sh\nweb:x:33:34::/srv:/bin/sh\n",
            "group": "www:x:34:\nstaff:x:50:web\n",
        }
        for name, text in files.items():
            assert box.exec("sh", "-c", f"cat > /etc/{name}", opts=("-i",), stdin=text.encode()).code == 0
        ids = lambda user: box.exec("sh", "-c", "id -u; id -G; echo $HOME", opts=("-u", user)).ok().split()
        assert ids("web") == ["33", "34", "50", "/srv"]
        assert ids("web:www") == ["33", "34", "/srv"]
        assert ids("4242") == ["4242", "0", "/"]
        r = box.exec("true", opts=("-u", "nobody-here"))
        assert r.code == 125 and "no user" in r.err, r.err
    finally:
        box.stop()


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
    pid, (ppid, pgrp, session, tty) = stat[0], stat[3:7]
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
    with subprocess.Popen(
        box.argv("sh", "-c", "cat > /dev/null; dd if=/dev/zero bs=1M count=100 2>/dev/null", opts=["-i"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as p:
        out, _ = p.communicate(data[: 1 << 20], timeout=60)
    assert len(out) == size and not any(out[::4093])
    with subprocess.Popen(box.argv("cat", opts=["-i"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        out, _ = p.communicate(data[: 30 << 20], timeout=60)
    assert hashlib.md5(out).digest() == hashlib.md5(data[: 30 << 20]).digest()


def test_many_at_once(box):
    def one(i):
        return box.exec("sh", "-c", f"sleep 0.2; cat; echo {i}; exit {i % 100}", opts=["-i"], stdin=b"x" * 1000)

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        results = list(pool.map(one, range(50)))
    assert [(r.code, r.out) for r in results] == [(i % 100, "x" * 1000 + f"{i}\n") for i in range(50)]


def test_more_than_there_is_room_for(box):
    """Of 130 sessions two are refused; when others end there is room again."""
    command = box.argv("sh", "-c", "echo up; exec sleep 1000")
    sleepers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(130)]
    try:
        # The refused ones end without a word.
        assert sorted(p.stdout.readline() for p in sleepers) == [b""] * 2 + [b"up\n"] * 128
    finally:
        for p in sleepers:
            p.terminate()
        ends = [(p.communicate(timeout=60)[1], p.returncode) for p in sleepers]
    assert sorted(code for _, code in ends) == [125] * 2 + [143] * 128
    assert all(b"128 sessions" in err for err, code in ends if code == 125)
    assert box.exec("true").code == 0


def test_signals_are_passed_on(box):
    for number, code in ((15, 143), (2, 130)):
        p = subprocess.Popen(box.argv("sh", "-c", "echo ready; sleep 100"), stdout=subprocess.PIPE)
        assert p.stdout.readline() == b"ready\n"
        p.send_signal(number)
        assert p.wait(timeout=60) == code
        p.stdout.close()
    p = subprocess.Popen(
        box.argv("sh", "-c", "trap 'echo caught; exit 3' USR1; echo ready; while :; do sleep 0.1; done"),
        stdout=subprocess.PIPE,
    )
    assert p.stdout.readline() == b"ready\n"
    p.send_signal(10)
    out, _ = p.communicate(timeout=60)
    # The whole group has it, the shell's own child too, which dies of it.
    assert b"caught\n" in out and p.returncode == 3


def test_a_reader_that_goes_away(box):
    r = call(["sh", "-c", " ".join(box.argv("yes")) + " | head -n 2"], b"", 60)
    assert r.out == "y\ny\n"
    wait_until_gone(box, "yes")


def test_a_caller_that_is_killed(box):
    """Its streams are hung up; the program goes on until it uses them."""
    p = subprocess.Popen(
        box.argv("sh", "-c", "echo ready; while echo more; do sleep 0.05; done"), stdout=subprocess.PIPE
    )
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
    deadline = time.monotonic() + 60
    while any(
        line.split(None, 2)[2].startswith(what) or f"-c {what}" in line for line in box.exec("ps").ok().splitlines()[1:]
    ):
        assert time.monotonic() < deadline, box.exec("ps").out
        time.sleep(0.1)


def test_children_left_behind_do_not_hold_it(box):
    # The call ends long before the child does, or fails for its length.
    assert box.exec("sh", "-c", "sleep 300 & echo started").ok() == "started\n"
    box.exec("pkill", "-f", "sleep 300")


def test_the_domain_ends_meanwhile():
    domain = Running("busybox", "sh", "-c", "trap 'exit 5' TERM; echo up; while :; do sleep 0.1; done")
    sessions = [
        subprocess.Popen(
            domain.argv("sh", "-c", "echo ready; exec sleep 100"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(3)
    ]
    for p in sessions:
        assert p.stdout.readline() == b"ready\n"
    domain.process.terminate()
    assert domain.process.wait(timeout=60) == 5
    for p in sessions:
        _, err = p.communicate(timeout=60)
        assert p.returncode == 137 and b"has ended" in err, (p.returncode, err)
    domain.stop()


class Terminal:
    """`doppel exec -it` on a pseudo-terminal of ours."""

    def __init__(self, domain, *command, size=(33, 101)):
        self.master, slave = pty.openpty()
        set_size(slave, *size)
        # A session of its own, with the terminal as its controlling one, so that SIGWINCH comes.
        self.process = subprocess.Popen(
            domain.argv(*command, opts=["-i", "-t"]),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.seen = ""

    def until(self, text, timeout=60):
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

    def end(self, timeout=60):
        code = self.process.wait(timeout=timeout)
        os.close(self.master)
        return code


# A child says that it runs: from then on keys are signals, and it is the one who gets them.
A_JOB = "sh -c 'echo go''ing; exec sleep 1000'\n"


def set_size(fd, rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def test_terminal(box):
    t = Terminal(box, "sh")
    t.until("# ")
    t.type("test -t 0 && test -t 2 && tty && stty size; echo done\n")
    assert "/dev/pts/0" in (out := t.until("\r\ndone")) and "33 101" in out
    set_size(t.master, 50, 60)
    t.until("# ")
    # The size comes to the domain's terminal a moment later.
    t.type("until stty size | grep '50 60'; do sleep 0.05; done; echo don''e\n")
    t.until("\r\ndone")
    t.until("# ")
    # Ctrl-C ends what runs, not the shell.
    t.type(A_JOB)
    t.until("going")
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
    assert eventually(lambda: box.exec("cat", "/tmp/hup").out == "hup\n")


def test_job_control():
    domain = Running("debian", "sh", "-c", "echo up; exec sleep 1000")
    t = Terminal(domain, "bash", "--norc", "-i")
    t.until("# ")
    t.type(A_JOB)
    t.until("going")
    t.type("\x1a")
    t.until("Stopped")
    t.type("bg; jobs\n")
    t.until("Running")
    t.type("kill %1; wait; echo all''gone\n")
    t.until("allgone")
    # Before the shell reads keys one by one again, the end of input would be a NUL to it, on Linux too (n_tty).
    t.until("# ")
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
    reader = subprocess.Popen(
        domain.argv("sh", "-c", "trap '' HUP; read x; echo $? > /tmp/reader; exec sleep 1000", opts=["-i"]),
        stdin=subprocess.PIPE,
    )
    writer = subprocess.Popen(
        domain.argv(
            "sh", "-c", "trap '' PIPE; while echo x; do sleep 0.05; done; echo broken > /tmp/writer; exec sleep 1000"
        ),
        stdout=subprocess.PIPE,
    )
    assert writer.stdout.readline() == b"x\n"
    terminal = Terminal(
        domain,
        "sh",
        "-c",
        "trap 'echo hup > /tmp/terminal; exec sleep 1000' HUP; echo ready; while :; do sleep 0.1; done",
    )
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
    assert cat.wait(timeout=60) == 0
    archive.communicate(timeout=60)
    assert archive.returncode == 0
    for p in (reader, writer, watch, terminal.process):
        p.kill()
        p.wait()
    os.close(terminal.master)
    domain.stop()
    # In a clone their other end is gone.
    clone = subprocess.Popen(
        [DOPPEL, "clone", image, "--name", domain.name + "-c"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    domain.name += "-c"
    told = lambda: domain.exec("sh", "-c", "cd /tmp; cat reader writer terminal").out == "1\nbroken\nhup\n"
    assert eventually(lambda: told() or clone.poll() is not None) and clone.poll() is None, domain.exec("ps").out
    gone = lambda: not [x for x in ("cat", "watch", "tar-out") if x in domain.exec("ps").ok()]
    assert eventually(gone), domain.exec("ps").out
    assert domain.exec("cat", opts=["-i"], stdin=b"x" * 100_000).ok() == "x" * 100_000
    clone.kill()
    clone.communicate()


def test_hibernate_and_wake(image):
    domain = Running("busybox", "sh", "-c", "echo up; exec sleep 1000")
    cat = subprocess.Popen(
        domain.argv("cat", opts=["-i"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    cat.stdin.write(b"x\n")
    cat.stdin.flush()
    assert cat.stdout.readline() == b"x\n"
    assert frozen("hibernate", domain.name).code == 0
    cat.communicate(timeout=60)
    assert cat.returncode == 137
    woken = subprocess.Popen(
        [DOPPEL, "wake", domain.name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert eventually(lambda: domain.exec("true").code == 0 or woken.poll() is not None) and woken.poll() is None
    assert eventually(lambda: "cat" not in domain.exec("ps").ok())
    woken.kill()
    woken.communicate()
    domain.stop()
    assert eventually(lambda: frozen("frozen", "rm", f"{domain.name}.asleep").code == 0)
