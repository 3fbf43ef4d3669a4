"""The command's verbs on real domains: Docker's output, streams, terminals, exit codes."""
import concurrent.futures
import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest
from conftest import DOPPEL


@pytest.fixture
def d(supervisor, busybox):
    """The supervisor; what a test leaves behind is removed."""
    yield supervisor
    for line in supervisor.cli("ps", "-aq", "--no-trunc").stdout.decode().split():
        supervisor.cli("rm", "-f", line)


def ok(p):
    assert p.returncode == 0, (p.args[1:], p.returncode, p.stdout[-2000:], p.stderr[-2000:])
    return p.stdout.decode()


def env(d):
    return {**os.environ, "DOPPEL_HOST": f"unix://{d.socket}", "DOPPEL_STORE": str(d.store)}


def eventually(check, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_run(d):
    assert ok(d.cli("run", "--rm", "busybox", "echo", "hi")) == "hi\n"
    p = d.cli("run", "--rm", "-e", "A=1", "busybox", "sh", "-c", "echo $A; echo err >&2; exit 7")
    assert (p.returncode, p.stdout, p.stderr) == (7, b"1\n", b"err\n")
    assert ok(d.cli("ps", "-aq")) == "", "--rm leaves nothing"
    assert d.cli("run", "--rm", "busybox", "sh", "-c", "sleep 9 & kill -9 $!; wait $!").returncode == 137
    assert d.cli("run", "--rm", "busybox", "no-such-command").returncode == 127
    assert d.cli("run", "--rm", "busybox", "/etc").returncode == 126
    assert d.cli("run", "--rm", "no-such-image").returncode == 125
    assert ok(d.cli("ps", "-aq")) == ""


def test_names_that_mean_something_else(d):
    assert ok(d.cli("run", "--rm", "-h", "foo", "busybox", "hostname")) == "foo\n"
    for network, why in (("host", "never has the host's own network"), ("container:x", "do not share a network stack")):
        done = d.cli("run", "--rm", "--network", network, "busybox", "true")
        assert done.returncode == 125 and why in done.stderr.decode(), done.stderr
        detail = d.post("/v1/domains", {"image": "busybox", "network": {"kind": "nat", "name": network}}).problem(
            400, "invalid_request"
        )
        assert why in detail
    assert ok(d.cli("run", "--rm", "--network", "bridge", "busybox", "true")) == ""


def test_dockers_templates(d):
    name = ok(d.cli("run", "-d", "busybox", "sleep", "1000")).strip()
    inspect = lambda template: d.cli("inspect", "-f", template, name)
    assert ok(inspect("{{.State.Running}} {{.RestartCount}} {{.NetworkSettings.IPAddress}}")) == "true 0 \n"
    for wrong in ("{{.State.Nope}}", "{{.Config.Nope}}", "{{.Nope}}"):
        done = inspect(wrong)
        assert done.returncode != 0 and b"Nope" in done.stderr and done.stdout == b"", done
    assert int(ok(d.cli("info", "--format", "{{.NCPU}}"))) == len(os.sched_getaffinity(0))
    missing = d.cli("exec", name, "no-such-program")
    assert missing.returncode == 127 and b"no such file or directory: no-such-program" in missing.stderr
    missing = d.cli("cp", f"{name}:/nope", "-")
    assert missing.returncode != 0 and b"no such file or directory: /nope" in missing.stderr


def test_no_more_than_the_host_has(d):
    done = d.cli("run", "--rm", "--cpus", "200", "busybox", "nproc")
    assert int(ok(done)) == len(os.sched_getaffinity(0)) and b"warning" in done.stderr
    done = d.cli("create", "-m", "100t", "busybox", "true")
    assert b"the host has" in done.stderr
    detail = d.post("/v1/domains", {"image": "busybox", "resources": {"memory_bytes": 1 << 20}}).problem(
        400, "invalid_request"
    )
    assert str(8 << 20) in detail


def test_run_with_input(d):
    data = os.urandom(300_000)
    p = d.cli("run", "--rm", "-i", "busybox", "cat", stdin=data)
    assert p.returncode == 0 and p.stdout == data, (p.returncode, len(p.stdout), p.stderr)
    # Without -i there is none.
    assert d.cli("run", "--rm", "busybox", "cat", stdin=b"x").stdout == b""


def test_a_life(d):
    made = ok(
        d.cli("run", "-d", "--name", "web", "--label", "a=b", "busybox", "sh", "-c", "echo up; sleep 1000")
    ).strip()
    assert re.fullmatch("[0-9a-f]{16}", made)
    heading, row = ok(d.cli("ps")).splitlines()
    assert heading.split() == ["DOMAIN", "ID", "IMAGE", "COMMAND", "CREATED", "STATUS", "PORTS", "NAMES"]
    assert row.startswith(made[:12]) and row.endswith("web") and " Up " in row and '"sh -c' in row
    assert ok(d.cli("ps", "--format", "{{.Names}} {{.State}} {{.Labels}}")) == "web running a=b\n"
    assert json.loads(ok(d.cli("ps", "--json")))["Names"] == "web"
    assert ok(d.cli("inspect", "-f", "{{.Config.Image}} {{json .Config.Labels}}", "web")) == 'busybox {"a":"b"}\n'
    assert json.loads(ok(d.cli("inspect", made[:8])))[0]["name"] == "web"
    eventually(lambda: ok(d.cli("logs", "web")) == "up\n", "no log")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\S+Z up\n", ok(d.cli("logs", "-t", "--tail", "1", "web")))
    ok(d.cli("pause", "web"))
    assert "(Paused)" in ok(d.cli("ps"))
    ok(d.cli("unpause", "web"))
    ok(d.cli("rename", "web", "web2"))
    ok(d.cli("update", "--pids-limit", "50", "web2"))
    assert ok(d.cli("inspect", "-f", "{{.Config.Resources.Pids}}", "web2")) == "50\n"
    shown = lambda: ok(d.cli("inspect", "-f", "{{json .}}", "web2"))
    assert "deadline" not in json.loads(shown())
    ok(d.cli("update", "--timeout", "1000", "web2"))
    assert json.loads(shown())["config"]["timeout_seconds"] == 1000
    assert json.loads(shown())["deadline"] > json.loads(shown())["started_at"]
    ok(d.cli("update", "--timeout", "0", "web2"))
    assert "deadline" not in json.loads(shown()) and "timeout_seconds" not in json.loads(shown())["config"]
    stats = ok(d.cli("stats", "--no-stream")).splitlines()
    assert "CPU %" in stats[0] and "web2" in stats[1]
    assert json.loads(ok(d.cli("stats", "--json", "web2")))["Name"] == "web2"
    assert ok(d.cli("kill", "-s", "TERM", "web2")) == "web2\n"
    ok(d.cli("stop", "-t", "1", "web2"))
    assert "Exited" in ok(d.cli("ps", "-a")) and ok(d.cli("ps", "-q")) == ""
    assert ok(d.cli("wait", "web2")).strip() in ("137", "143")
    ok(d.cli("start", "web2"))
    refused = d.cli("rm", "web2")
    assert refused.returncode == 1 and b"web2" in refused.stderr
    several = d.cli("rm", "-f", "web2", "nobody")
    assert (several.returncode, several.stdout) == (0, b"web2\n") and b"nobody" in several.stderr
    assert d.cli("rm", "nobody").returncode == 1


def test_create_start_attach(d):
    ok(d.cli("create", "--name", "job", "busybox", "sh", "-c", "echo out; exit 3"))
    assert ok(d.cli("ps", "-a", "--format", "{{.Status}}")) == "Created\n"
    for _ in range(2):
        p = d.cli("start", "-a", "job")
        assert (p.returncode, p.stdout) == (3, b"out\n"), p.stderr
    assert d.cli("create", "--name", "job", "busybox").returncode == 125, "the name is taken"
    assert "removed" in ok(d.cli("prune", "-f"))
    assert ok(d.cli("ps", "-aq")) == ""


def test_events(d):
    begun = time.time() - 1
    ok(d.cli("run", "--rm", "--name", "eve", "busybox", "true"))
    lines = ok(
        d.cli("events", "--since", str(begun), "--until", str(time.time() + 1), "--format", "{{.Kind}} {{.Name}}")
    ).splitlines()
    assert [x for x in lines if x.endswith(" eve")][:3] == ["create eve", "start eve", "die eve"], lines


def test_events_come_in_their_order(d):
    """Those of domains that end as soon as they have begun, many at once."""
    begun = time.time() - 1
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        jobs = [pool.submit(d.cli, "run", "--rm", "--name", f"eve{n}", "busybox", "true") for n in range(200)]
        for job in jobs:
            ok(job.result())
    told = {}
    until = str(time.time() + 1)
    for line in ok(
        d.cli("events", "--since", str(begun), "--until", until, "--format", "{{.Name}} {{.Kind}}")
    ).splitlines():
        name, kind = line.split()
        told.setdefault(name, []).append(kind)
    wrong = {name: kinds for name, kinds in told.items() if kinds[:3] != ["create", "start", "die"]}
    assert len(told) == 200 and not wrong, wrong


def test_debug_events(d):
    ok(d.cli("run", "-d", "--name", "quiet", "--pids-limit", "12", "busybox", "sleep", "1000"))
    assert "--level info" in d.cli("debug", "events", "quiet").stderr.decode()
    ok(d.cli("debug", "events", "--level", "warning", "quiet"))
    d.cli("exec", "quiet", "sh", "-c", "for i in $(seq 20); do sleep 5 & done; kill $(jobs -p)")
    refused = next(e for e in d.get("/v1/domains/quiet/debug/events").lines if e["kind"] == "limit.tasks")
    assert refused["level"] == "warning" and "the limit is 12" in refused["message"], refused
    d.put("/v1/domains/quiet/debug/events", {"level": "loud"}).problem(400, "invalid_request")
    assert "limit.tasks: a task refused" in ok(d.cli("debug", "events", "quiet"))
    ok(d.cli("run", "-d", "--name", "told", "--events", "info", "busybox", "sh", "-c", "(exit 7); exec sleep 1000"))
    eventually(lambda: "process.exit: exits with 7" in ok(d.cli("debug", "events", "told")), "it has ended")


def test_logs_follow(d):
    ok(d.cli("run", "-d", "--name", "slow", "busybox", "sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.3; done"))
    assert ok(d.cli("logs", "-f", "slow")) == "1\n2\n3\n"


def test_signals_go_to_the_program(d):
    p = subprocess.Popen(
        [
            DOPPEL,
            "run",
            "--rm",
            "busybox",
            "sh",
            "-c",
            "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.05; done",
        ],
        stdout=subprocess.PIPE,
        env=env(d),
    )
    assert p.stdout.readline() == b"ready\n"
    p.send_signal(signal.SIGTERM)
    assert p.communicate(timeout=60)[0] == b"got it\n" and p.returncode == 9


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, d, *argv):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(DOPPEL, ["doppel", *argv], {**env(d), "TERM": "dumb"})
        self.seen = b""

    def expect(self, text, seconds=60):
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            if not select.select([self.fd], [], [], max(0, deadline - time.monotonic()))[0]:
                pytest.fail(f"no {text!r} in {self.seen!r}")
            try:
                self.seen += os.read(self.fd, 65536)
            except OSError:
                assert text in self.seen, f"ended without {text!r}: {self.seen!r}"
        self.seen = self.seen.split(text, 1)[1]

    def type(self, text):
        os.write(self.fd, text)

    def end(self):
        status = os.waitpid(self.pid, 0)[1]
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


def test_terminal(d):
    import fcntl
    import struct
    import termios

    t = Terminal(d, "run", "--rm", "-it", "busybox", "sh")
    t.expect(b"# ")
    t.type(b"tty; echo a$((40+2))b\r")
    t.expect(b"/dev/")
    t.expect(b"a42b")
    fcntl.ioctl(t.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
    os.kill(t.pid, signal.SIGWINCH)
    # It comes to the domain's terminal a moment later.
    t.type(b"until stty size | grep '33 101'; do sleep 0.05; done; echo al''so\r")
    t.expect(b"\n33 101\r\n")
    t.expect(b"also\r\n")
    t.type(b"exit 5\r")
    assert t.end() == 5


def test_detach_and_attach(d):
    t = Terminal(d, "run", "-it", "--name", "shell", "busybox", "sh")
    t.expect(b"# ")
    t.type(b"x=kept\r")
    t.expect(b"# ")
    t.type(b"\x10\x11")
    t.expect(b"detached")
    assert t.end() == 0
    assert ok(d.cli("ps", "--format", "{{.Names}}")) == "shell\n"
    t = Terminal(d, "attach", "shell")
    t.type(b"echo $x$x\r")
    t.expect(b"keptkept")
    t.type(b"exit 4\r")
    assert t.end() == 4


def test_ps_is_quick(d):
    """`doppel ps` is a few milliseconds of work: the best of many is what it costs."""
    times = []
    for _ in range(30):
        begun = time.monotonic()
        ok(d.cli("ps"))
        times.append(time.monotonic() - begun)
    assert min(times) < 0.1, min(times)
