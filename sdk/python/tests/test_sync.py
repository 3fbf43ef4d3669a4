# Made by generate.py of tests/test_async.py: change that.
"""What users do with the SDK. Written with asyncio; generate.py makes the tests for threads of it."""

from __future__ import annotations

import os
import signal
import socket
import time
import urllib.request

import pytest

from doppel import (
    Client,
    Disk,
    Image,
    Sandbox,
    Supervisor,
    Template,
    VirtualNetwork,
    Volume,
    CapacityExceeded,
    CloneError,
    CommandExit,
    CommandNotFound,
    CommandTimeout,
    DiskNotFound,
    DomainState,
    FlowState,
    DoppelTimeout,
    FileChangeKind,
    FileKind,
    FileNotFound,
    ImageNotFound,
    InUse,
    InvalidRequest,
    Kind,
    MountKind,
    NameInUse,
    NetworkKind,
    NetworkMembership,
    NetworkNotFound,
    NetworkRate,
    NetworkRule,
    NetworkSubnet,
    NotFound,
    PortInUse,
    Protocol,
    PtySize,
    RegistryError,
    RuleAction,
    RuleDirection,
    SandboxNotFound,
    SupervisorUnreachable,
    TemplateNotFound,
    Unauthorized,
    Unsupported,
    VolumeNotFound,
    WrongState,
)
from doppel._sync.tasks import Task, sleep


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not come true"
        sleep(0.02)


def fetched(url, seconds=60.0):
    """What a server says once it answers."""
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=seconds) as answer:
                return answer.read().decode()
        except OSError:
            assert time.monotonic() < end, f"{url} does not answer"
            time.sleep(0.02)


def gone(sandbox, command, seconds=60.0):
    """Whether no process of this command is left, after a while."""
    end = time.monotonic() + seconds
    while any(command in p.command for p in sandbox.commands.list()):
        if time.monotonic() > end:
            return False
        sleep(0.02)
    return True


def listening(sandbox, pid, signal):
    """Waits until a process has a handler for a signal."""
    bit = {"USR1": 1 << 9, "TERM": 1 << 14}[signal]
    end = time.monotonic() + 60
    while True:
        status = sandbox.files.read(f"/proc/{pid}/status")
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        if int(caught.split()[1], 16) & bit:
            return
        assert time.monotonic() < end, status
        sleep(0.05)


# -- life


def test_kinds(server):
    with Sandbox.create("busybox", kind="paene", disk="4m") as sandbox:
        info = sandbox.info()
        assert info.config.kind == Kind.PAENE
        assert info.config.resources.disk_bytes == 4 << 20
        sandbox.files.write("/there/file", "text")
        assert (sandbox.commands.run("cat /there/file")).stdout == "text"
        with pytest.raises(Unsupported):
            sandbox.freeze("sdk-paene")


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_read_only_with_files_in_memory(server, kind):
    with Sandbox.create("busybox", kind=kind, read_only=True, tmpfs=["/work"]) as box:
        done = box.commands.run("touch /etc/x; echo kept > /work/x && cat /work/x; mount | grep ' on /work '")
        assert "Read-only file system" in done.stderr and done.stdout.startswith("kept\n")
        assert all(word in done.stdout for word in ("nosuid", "nodev", "noexec"))
    with pytest.raises(InvalidRequest, match=r"files\.mounts\[0\]: .*no size"):
        Sandbox.create("busybox", tmpfs={"/work": "size=much"})


def test_files_stay_unless_they_go_with_it(server):
    kept = []
    for how in ({"auto_remove": False}, {"auto_remove": False, "persist": False}, {}):
        with Sandbox.create("busybox", **how) as sandbox:
            kept.append((sandbox.info()).config.files.persist)
    assert kept == [True, False, None]


def test_disks(server):
    disk = Disk.create("sdk-db", size="1m")
    assert (disk.size_bytes, disk.snapshot, disk.in_use) == (1 << 20, False, False)
    with Sandbox.create("busybox", disks=["sdk-db"]) as box:
        box.commands.run("printf before > /dev/vda", check=True)
        snap = Disk.create("sdk-snap", source="sdk-db", snapshot=True)
        Disk.create("sdk-two", source="sdk-db")
        assert snap.snapshot and (Disk.get("sdk-db")).in_use
        box.commands.run("printf after > /dev/vda", check=True)
        with pytest.raises(InUse):
            Disk.remove("sdk-db")
    with Sandbox.create("busybox", disks=["sdk-snap:ro", "sdk-two", "sdk-db:ro"]) as box:
        found = box.commands.run("for d in a b c; do head -c 6 /dev/vd$d; echo; done")
        assert found.stdout == "before\nbefore\naftere\n"
    assert (Disk.resize("sdk-two", "2m")).size_bytes == 2 << 20
    for name in ("sdk-db", "sdk-snap", "sdk-two"):
        Disk.remove(name)
    assert not [one for one in Disk.list() if one.name.startswith("sdk-")]
    with pytest.raises(DiskNotFound):
        Disk.get("sdk-db")
    Disk.remove("sdk-db", force=True)


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_volumes(server, kind, tmp_path):
    volume = Volume.create(labels={"kind": kind})
    assert not volume.anonymous and volume.labels == {"kind": kind}
    volumes = {"/data": volume.name, "/host": f"{tmp_path}:ro"}
    (tmp_path / "f").write_text("host")
    with Sandbox.create("busybox", kind=kind, volumes=volumes) as box:
        done = box.commands.run("cp /host/f /data/g; touch /host/x || true")
        assert "Read-only file system" in done.stderr
        mounts = {m.destination: m for m in (box.info()).mounts}
        assert mounts["/data"].name == volume.name and mounts["/host"].source == str(tmp_path)
        assert (mounts["/data"].rw, mounts["/host"].rw, mounts["/host"].type) == (True, False, MountKind.BIND)
        with pytest.raises(InUse):
            Volume.remove(volume.name)
    with Sandbox.create("busybox", kind=kind, volumes={"/data": f"{volume.name}:ro"}) as box:
        assert box.files.read("/data/g") == "host"
    then = Volume.create(f"{volume.name}-then", source=volume.name, snapshot=True)
    assert then.snapshot and (Volume.create(f"{volume.name}-again", source=then.name)).snapshot is False
    Volume.remove(then.name)
    Volume.remove(f"{volume.name}-again")
    Volume.remove(volume.name)
    with pytest.raises(VolumeNotFound):
        Volume.get(volume.name)
    assert volume.name not in [v.name for v in Volume.list()]
    assert volume.name not in Volume.prune(all=True)


def test_create_and_kill(server):
    sandbox = Sandbox.create(
        "busybox", name="sdk-life", env={"A": "b"}, labels={"team": "x"}, cpus=0.5, memory="256m"
    )
    try:
        info = sandbox.info()
        assert info.id == sandbox.id
        assert info.name == sandbox.name == "sdk-life"
        assert info.state == DomainState.RUNNING
        assert info.config.env["A"] == "b"
        assert info.config.labels == {"team": "x"}
        assert info.config.resources.cpus == 0.5
        assert info.config.resources.memory_bytes == 256 << 20
        assert info.created_at.tzinfo is not None
        assert sandbox.is_running()
    finally:
        assert sandbox.kill()
    assert not sandbox.is_running()
    assert not sandbox.kill()
    with pytest.raises(SandboxNotFound):
        sandbox.info()
    sandbox.close()


def test_context_manager_kills_what_it_made(server):
    with Sandbox.create("busybox") as sandbox:
        with Sandbox.connect(sandbox.id[:10]) as other:
            assert other.id == sandbox.id
        assert sandbox.is_running(), "a connection's end is not the sandbox's"
    with pytest.raises(NotFound):
        Sandbox.connect(sandbox.id)


def test_list(server):
    with Sandbox.create("busybox", name="sdk-list", labels={"list": "1", "b": "2"}) as sandbox:
        assert [d.id for d in Sandbox.list(labels={"list": "1"})] == [sandbox.id]
        assert [d.id for d in Sandbox.list(labels={"list": "1", "b": ""})] == [sandbox.id]
        assert Sandbox.list(labels={"list": "2"}) == []
        assert [d.id for d in Sandbox.list(name="sdk-li")] == [sandbox.id]
        assert sandbox.id in [d.id for d in Sandbox.list(state=DomainState.RUNNING)]
        assert len(Sandbox.list(limit=1)) == 1


def test_pause_and_resume(server):
    with Sandbox.create("busybox") as sandbox:
        sandbox.pause()
        assert (sandbox.info()).state == DomainState.PAUSED
        assert not sandbox.is_running()
        with pytest.raises(WrongState):
            sandbox.pause()
        sandbox.resume()
        assert sandbox.is_running()


def test_timeout(server):
    with Sandbox.create("busybox", timeout=60, auto_remove=False) as sandbox:
        assert (sandbox.info()).config.timeout_seconds == 60
        sandbox.set_timeout(0.5)
        assert (sandbox.wait()).exit_code in (0, 137, 143)
        assert (sandbox.info()).state == DomainState.EXITED


def test_timeout_is_lifted(server):
    with Sandbox.create("busybox", timeout=60) as sandbox:
        sandbox.set_timeout(30)
        sandbox.set_timeout(None)
        # A second from now, had it stayed.
        with Sandbox.create("busybox", timeout=1, auto_remove=False) as other:
            other.wait()
        assert sandbox.is_running()


def test_stop_asks_first(server):
    with Sandbox.create("busybox", auto_remove=False) as sandbox:
        # Before it listens, the first program of a domain hears no signal.
        listening(sandbox, 1, "TERM")
        sandbox.stop(timeout=600)
        assert (sandbox.wait()).exit_code == 0, "what keeps a sandbox up hears SIGTERM"


def test_command_of_its_own_and_logs(server):
    command = "echo out; echo err >&2; printf '\\303'; sleep 0.1; printf '\\244\\n'; exit 3"
    with Sandbox.create("busybox", command=command, auto_remove=False) as sandbox:
        assert (sandbox.wait()).exit_code == 3
        logs = sandbox.logs()
        assert sorted(logs.splitlines()) == ["err", "out", "ä"]
        with sandbox.follow() as texts:
            assert "out\n" in [text for text in texts]


def test_update_and_stats(server):
    with Sandbox.create("busybox", memory="128m") as sandbox:
        domain = sandbox.update(memory="256m", labels={"new": "label"})
        assert domain.config.resources.memory_bytes == 256 << 20
        assert domain.config.labels == {"new": "label"}
        stats = sandbox.stats()
        assert stats.id == sandbox.id
        assert stats.memory.usage_bytes > 0
        assert stats.pids >= 1


# -- refusals


def test_refusals(server):
    with pytest.raises(ImageNotFound) as refused:
        Sandbox.create("no-such-image")
    assert refused.value.code == "image_not_found"
    assert refused.value.status == 404
    assert "no-such-image" in str(refused.value)
    with Sandbox.create("busybox", name="sdk-taken"):
        with pytest.raises(NameInUse):
            Sandbox.create("busybox", name="sdk-taken")
    with pytest.raises(CapacityExceeded):
        Sandbox.create("busybox", memory_reservation="9000g")
    with pytest.raises(SandboxNotFound):
        Sandbox.connect("no-such-sandbox")
    with pytest.raises(TemplateNotFound):
        Template("no-such-template").clone()
    with pytest.raises(ValueError, match="not a size"):
        Sandbox.create("busybox", memory="lots")
    with pytest.raises(ValueError, match="not a name"):
        Sandbox.connect("..")


def test_nobody_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("DOPPEL_HOST", str(tmp_path / "nobody.sock"))
    monkeypatch.setattr("doppel._sync.client.PAUSES", (0.01,))
    with pytest.raises(SupervisorUnreachable, match=r"nobody\.sock.*DOPPEL_HOST"):
        Sandbox.list()
    with Supervisor() as supervisor:
        assert not supervisor.ping()


def test_late_answer(faulty):
    faulty.delays["/v1/info"] = 2
    with Client(timeout=0.1) as client, Supervisor(client=client) as supervisor:
        with pytest.raises(DoppelTimeout):
            supervisor.info()


def test_token(guarded, monkeypatch):
    host, token = guarded
    monkeypatch.setenv("DOPPEL_HOST", host)
    monkeypatch.delenv("DOPPEL_TOKEN", raising=False)
    with pytest.raises(Unauthorized):
        Sandbox.list()
    monkeypatch.setenv("DOPPEL_TOKEN", token)
    assert Sandbox.list() == []
    with Client(host, token="wrong") as client:
        with pytest.raises(Unauthorized):
            Sandbox.list(client=client)
    with pytest.raises(ValueError, match="in clear"):
        Client("http://192.0.2.1:7777")


# -- repetition


def test_lost_answer_makes_one_sandbox(faulty):
    faulty.drop["POST"] = 2
    with Sandbox.create("busybox", labels={"lost": "1"}) as sandbox:
        assert [d.id for d in Sandbox.list(labels={"lost": "1"})] == [sandbox.id]
        faulty.drop["POST"] = 1
        result = sandbox.commands.run("echo x >> once")
        assert result.exit_code == 0
        assert sandbox.files.read("/once") == "x\n"


def test_lost_answer_to_removal(faulty):
    sandbox = Sandbox.create("busybox")
    faulty.drop["DELETE"] = 1
    assert sandbox.kill()
    sandbox.close()


def test_gives_up(faulty, monkeypatch):
    monkeypatch.setattr("doppel._sync.client.PAUSES", (0.01, 0.01))
    before = len(faulty.requests)
    faulty.drop["GET"] = 100
    with pytest.raises(SupervisorUnreachable):
        Sandbox.list()
    assert faulty.requests[before:] == [("GET", "/v1/domains")] * 3


def test_file_is_sent_again_from_its_start(faulty, tmp_path):
    content = os.urandom(1 << 20)
    (tmp_path / "file").write_bytes(b"skipped" + content)
    with Sandbox.create("busybox") as sandbox:
        faulty.drop["PUT"] = 1
        with (tmp_path / "file").open("rb") as file:
            file.seek(7)
            sandbox.files.write("/copy", file)
        assert sandbox.files.read("/copy", "bytes") == content


# -- commands


def test_run(server):
    with Sandbox.create("busybox", env={"WHO": "sandbox"}) as sandbox:
        result = sandbox.commands.run("echo hello $WHO; echo oops >&2")
        assert (result.stdout, result.stderr, result.exit_code) == ("hello sandbox\n", "oops\n", 0)
        # A list goes nowhere near a shell.
        assert (sandbox.commands.run(["echo", "$WHO; ls"])).stdout == "$WHO; ls\n"
        assert (sandbox.commands.run("echo $A$WHO", env={"A": "b", "WHO": "me"})).stdout == "bme\n"


def test_exit_codes(server):
    with Sandbox.create("busybox") as sandbox:
        with pytest.raises(CommandExit, match=r"exit code 7.*sorry") as raised:
            sandbox.commands.run("echo out; echo sorry >&2; exit 7")
        assert raised.value.exit_code == 7
        assert raised.value.stdout == "out\n"
        assert raised.value.stderr == "sorry\n"
        assert (sandbox.commands.run("exit 9", check=False)).exit_code == 9
        assert (sandbox.commands.run("kill -TERM $$", check=False)).exit_code == 143
        with pytest.raises(CommandNotFound) as missing:
            sandbox.commands.run(["no-such-program"])
        assert missing.value.exit_code == 127
        assert isinstance(missing.value, FileNotFoundError)


def test_stdin(server):
    with Sandbox.create("busybox") as sandbox:
        assert (sandbox.commands.run("cat", stdin="täxt\n")).stdout == "täxt\n"
        data = os.urandom(700_000)
        assert (sandbox.commands.run(["cat"], stdin=data)).stdout_bytes == data
        assert (sandbox.commands.run("cat")).stdout == "", "without input there is none"
        # A program need not read what it is given.
        assert (sandbox.commands.run("head -c 3", stdin=b"x" * 1_000_000)).stdout == "xxx"
        with pytest.raises(ValueError, match="background"):
            sandbox.commands.run("cat", stdin=True)


def test_callbacks(server):
    out, err = [], []
    with Sandbox.create("busybox") as sandbox:
        # The second half of a character comes when the first has been seen.
        command = "printf 'a\\303'; until test -e /seen; do sleep 0.05; done; printf '\\244b'; echo c >&2"
        run = sandbox.commands.run
        job = run(command, on_stdout=out.append, on_stderr=err.append, background=True)
        until(lambda: out == ["a"])
        sandbox.files.write("/seen", "")
        result = job.wait()
    assert "".join(out) == result.stdout == "aäb"
    assert "".join(err) == "c\n"


def test_failing_callback_ends_the_command(server):
    def fail(text):
        raise RuntimeError("callback")

    with Sandbox.create("busybox") as sandbox:
        with pytest.raises(RuntimeError, match="callback"):
            sandbox.commands.run("echo x; exec sleep 87654", on_stdout=fail)
        assert gone(sandbox, "sleep 87654")


def test_command_timeout(server):
    with Sandbox.create("busybox") as sandbox:
        with pytest.raises(CommandTimeout) as raised:
            sandbox.commands.run("echo started; sleep 1000", timeout=3)
        assert isinstance(raised.value, TimeoutError)
        assert raised.value.result.stdout == "started\n"
        assert (sandbox.commands.run("echo on time", timeout=300)).stdout == "on time\n"


def test_timeouts_hold_whatever_the_server_does(server):
    def stand_still(*_):
        os.kill(server.process.pid, signal.SIGSTOP)

    def go_on():
        os.kill(server.process.pid, signal.SIGCONT)

    with Sandbox.create("busybox", name="sdk-hung") as sandbox:
        sandbox.files.write("/a", "text", timeout=60)
        try:
            with pytest.raises(CommandTimeout) as caught:
                sandbox.commands.run("echo first; sleep 1000", timeout=1, on_stdout=stand_still)
            assert caught.value.result.stdout == "first\n"
            with pytest.raises(CommandTimeout):
                sandbox.commands.run("id", timeout=0.2)
            for call in (
                sandbox.files.read,
                sandbox.files.list,
                sandbox.files.info,
                sandbox.files.exists,
                sandbox.files.remove,
                sandbox.files.mkdir,
            ):
                with pytest.raises(DoppelTimeout):
                    call("/a", timeout=0.2)
            with pytest.raises(DoppelTimeout):
                sandbox.files.write("/a", "other", timeout=0.2)
            with pytest.raises(DoppelTimeout):
                sandbox.wait(timeout=0.2)
            with pytest.raises(DoppelTimeout):
                sandbox.commands.list(timeout=0.2)
        finally:
            go_on()
        assert (sandbox.commands.run("echo again", timeout=60)).stdout == "again\n"


def test_nothing_runs_in_a_paused_sandbox(server):
    with Sandbox.create("busybox") as sandbox:
        sandbox.pause()
        for work in (
            lambda: sandbox.commands.run("id"),
            lambda: sandbox.files.read("/etc/passwd"),
            lambda: sandbox.files.write("/x", "y"),
            lambda: sandbox.commands.list(),
        ):
            with pytest.raises(WrongState, match="is paused, unpause it first"):
                work()
        sandbox.resume()
        assert not sandbox.files.exists("/x")


def test_background(server):
    with Sandbox.create("busybox") as sandbox:
        handle = sandbox.commands.run("read a; echo got $a; read b; echo got $b", background=True, stdin=True)
        assert handle.pid > 0
        assert handle.running
        with pytest.raises(DoppelTimeout):
            handle.wait(0.1)
        handle.send_stdin("one\n")
        until(lambda: handle.stdout == "got one\n")
        handle.send_stdin(b"two")
        handle.close_stdin()
        result = handle.wait()
        assert result.stdout == "got one\ngot two\n"
        assert not handle.running
        assert not handle.kill()


def test_background_kill(server):
    with Sandbox.create("busybox") as sandbox:
        handle = sandbox.commands.run("sleep 60", background=True)
        assert handle.kill()
        with pytest.raises(CommandExit) as raised:
            handle.wait()
        assert raised.value.exit_code == 137
        assert (handle.wait(check=False)).exit_code == 137
        handle = sandbox.commands.run("trap 'exit 5' USR1; while :; do sleep 0.05; done", background=True)
        listening(sandbox, handle.pid, "USR1")
        assert handle.kill("SIGUSR1")
        assert (handle.wait(check=False)).exit_code == 5


def test_background_connects_again(server):
    with Sandbox.create("busybox") as sandbox:
        first = sandbox.commands.run("echo early; read x; echo late", background=True, stdin=True)
        until(lambda: first.stdout == "early\n")
        with Sandbox.connect(sandbox.id) as other:
            second = other.commands.connect(first.id)
            assert second.pid == first.pid
            first.send_stdin("go on\n")
            assert (second.wait()).stdout == "early\nlate\n"


def test_many_at_once(server):
    with Sandbox.create("busybox") as sandbox:
        handles = [sandbox.commands.run(f"echo {i}; sleep 0.2", background=True) for i in range(20)]
        assert [(h.wait()).stdout for h in handles] == [f"{i}\n" for i in range(20)]


def test_processes(server):
    with Sandbox.create("busybox") as sandbox:
        handle = sandbox.commands.run(["sleep", "4321"], background=True)
        found = [p for p in sandbox.commands.list() if "sleep 4321" in p.command]
        assert [p.pid for p in found] == [handle.pid]
        assert sandbox.commands.kill(handle.pid)
        assert (handle.wait(check=False)).exit_code == 137
        assert not sandbox.commands.kill(2**22 - 1)


# -- files


def test_files(server):
    with Sandbox.create("busybox") as sandbox:
        files = sandbox.files
        files.write("/work/deep/hello.txt", "hellö\n", mode=0o640)
        assert files.read("/work/deep/hello.txt") == "hellö\n"
        assert files.read("/work/deep/hello.txt", format="bytes") == "hellö\n".encode()
        info = files.info("/work/deep/hello.txt")
        assert (info.name, info.kind, info.size_bytes, info.mode) == ("hello.txt", FileKind.FILE, 7, 0o640)
        assert info.path == "/work/deep/hello.txt"
        assert (sandbox.commands.run("cat deep/hello.txt", cwd="/work")).stdout == "hellö\n"
        sandbox.commands.run("ln -s deep link", cwd="/work")
        assert [(f.name, f.kind, f.target) for f in sorted(files.list("/work"), key=lambda f: f.name)] == [
            ("deep", FileKind.DIRECTORY, None),
            ("link", FileKind.SYMLINK, "deep"),
        ]
        assert files.exists("/work/link")
        assert not files.exists("/work/nothing")
        files.rename("/work/link", "/work/other")
        assert (files.info("/work/other")).kind == FileKind.SYMLINK
        with pytest.raises(FileNotFound):
            files.rename("/work/link", "/work/third")
        files.remove("/work/other")
        assert not files.exists("/work/link") and not files.exists("/work/other")
        assert files.exists("/work/deep/hello.txt")
        files.mkdir("/work/a/b/c")
        files.remove("/work", recursive=True)
        assert not files.exists("/work")
        with pytest.raises(FileNotFound) as missing:
            files.read("/work/deep/hello.txt")
        assert isinstance(missing.value, FileNotFoundError)


def test_odd_names_and_large_files(server, tmp_path):
    content = os.urandom(3 << 20)
    (tmp_path / "large").write_bytes(content)
    name = "/work/a b?c=d&e#f%41+\u2028 ü"
    with Sandbox.create("busybox") as sandbox:
        with (tmp_path / "large").open("rb") as file:
            sandbox.files.write(name, file)
        read = bytearray()
        with sandbox.files.open(name) as pieces:
            for piece in pieces:
                read += piece
        assert bytes(read) == content
        assert [f.name for f in sandbox.files.list("/work")] == [name.removeprefix("/work/")]


def test_watch(server):
    with Sandbox.create("busybox") as sandbox:
        sandbox.files.mkdir("/work")
        seen = []
        with sandbox.files.watch("/work") as changes:
            sandbox.files.write("/work/new\u2028name", "x")
            for change in changes:
                seen.append((change.kind, change.name))
                if change.kind == FileChangeKind.REMOVED:
                    break
                sandbox.files.remove("/work/new\u2028name") if len(seen) == 1 else None
        assert seen[0] == (FileChangeKind.CREATED, "new\u2028name")
        assert seen[-1] == (FileChangeKind.REMOVED, "new\u2028name")


def test_directories(server, tmp_path):
    up = tmp_path / "up"
    (up / "sub").mkdir(parents=True)
    (up / "sub/file").write_text("content")
    (up / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (up / "run.sh").chmod(0o755)
    (up / "link").symlink_to("sub/file")
    with Sandbox.create("busybox") as sandbox:
        sandbox.files.upload_dir(up, "/work/tree")
        assert (sandbox.commands.run("./run.sh", cwd="/work/tree")).stdout == "ran\n"
        assert (sandbox.files.info("/work/tree/link")).target == "sub/file"
        sandbox.commands.run("ln -s /etc/passwd out; mkfifo pipe; ln run.sh hard", cwd="/work/tree")
        left_out = sandbox.files.download_dir("/work/tree", tmp_path / "down")
    assert sorted(name.removeprefix("./") for name in left_out) == ["out", "pipe"]
    down = tmp_path / "down"
    assert (down / "sub/file").read_text() == "content"
    assert (down / "link").read_text() == "content"
    assert os.access(down / "run.sh", os.X_OK)
    assert (down / "hard").read_text() == (down / "run.sh").read_text()
    assert sorted(p.name for p in down.iterdir()) == ["hard", "link", "run.sh", "sub"]


# -- terminals


def test_pty(server):
    shown = bytearray()
    with Sandbox.create("busybox") as sandbox:
        shell = sandbox.pty.create(shown.extend, PtySize(rows=30, columns=90))
        shell.send("test -t 0 && echo is''tty; stty size\n")
        until(lambda: b"istty" in shown and b"30 90" in shown)
        shell.resize(PtySize(rows=40, columns=100))
        shell.send("stty size; echo $TERM\n")
        until(lambda: b"40 100" in shown and b"xterm-256color" in shown)
        # A child says that it runs: from then on keys are signals.
        shell.send("sh -c 'echo go''ing; exec sleep 1000'\n")
        until(lambda: b"going" in shown)
        shell.send("\x03")
        shell.send("echo ali''ve\n")
        until(lambda: b"alive" in shown)
        shell.send("exit 4\n")
        assert (shell.wait(60)).exit_code == 4
        other = sandbox.pty.create()
        assert other.kill()
        assert (other.wait(60)).exit_code == 137


# -- freezing


def test_freeze_and_clone(server):
    name = f"sdk-template-{os.getpid()}"
    with Sandbox.create("busybox") as sandbox:
        template = sandbox.freeze(name)
        assert template.report is not None
        assert template.report.bytes > 0
        assert sandbox.is_running()
        assert name in [f.name for f in Template.list()]
        assert (template.info()).image
        clones = template.clone(3, name="sdk-clone", labels={"clone": "1"})
        try:
            assert [c.name for c in clones] == ["sdk-clone-1", "sdk-clone-2", "sdk-clone-3"]
            assert all([c.is_running() for c in clones])
            assert (clones[0].info()).cloned_from == name
            with pytest.raises(InUse):
                template.remove()
            clones[1].kill()
            with pytest.raises(CloneError) as raised:
                template.clone(3, name="sdk-clone")
            assert [s.name for s in raised.value.sandboxes] == ["sdk-clone-2"]
            assert [type(e) for e in raised.value.errors] == [NameInUse, NameInUse]
            clones += raised.value.sandboxes
        finally:
            for clone in clones:
                clone.kill()
                clone.close()
        with template.fork() as one:
            assert one.is_running()
        template.remove()
        template.close()
        with pytest.raises(TemplateNotFound):
            Template(name).info()


def test_fork(server):
    with Sandbox.create("busybox") as sandbox:
        before = len(Template.list())
        one, two = sandbox.fork(2)
        assert len({sandbox.id, one.id, two.id}) == 3
        with one, two:
            assert one.is_running()
            assert len(Template.list()) == before + 1
        assert len(Template.list()) == before, "the last one removes what they were made from"


def forks_of(server, name):
    """Frozen images of forks and domains cloned from them that are there."""
    frozen = [f["name"] for f in server.get("/v1/frozen").ok() if f["name"].startswith("fork-")]
    domains = [d["id"] for d in server.get("/v1/domains?all=true").ok() if d.get("cloned_from", "").startswith("fork-")]
    return frozen, domains


def test_forks_leave_nothing(server, monkeypatch):
    with Sandbox.create("busybox") as sandbox:
        forks = sandbox.fork(2)
        assert isinstance(forks, list) and len(forks) == 2
        with pytest.raises(KeyError):
            with forks:
                assert len(forks_of(server, sandbox.name)[1]) == 2
                raise KeyError
        until(lambda: forks_of(server, sandbox.name) == ([], []))
        # Ended by others.
        one, two = sandbox.fork(2)
        for clone in (one, two):
            server.delete(f"/v1/domains/{clone.id}?force=true").ok()
        until(lambda: forks_of(server, sandbox.name) == ([], []))
        # Nobody cloned it, yet: it may still be.
        sandbox._freeze("fork-idle", in_memory=True, temporary=True)
        assert forks_of(server, sandbox.name) == (["fork-idle"], [])
        assert server.post("/v1/frozen/prune").ok()["removed"] == []
        with Template("fork-idle").fork():
            pass
        until(lambda: forks_of(server, sandbox.name) == ([], []))


def test_forks_live_while_they_are_held(server, monkeypatch):
    monkeypatch.setattr("doppel._sync.sandbox.LEASE", 2)
    with Sandbox.create("busybox") as sandbox:
        held, kept, timed = sandbox.fork(3)
        kept.close()
        timed.set_timeout(1000)
        deadline = lambda clone: server.get(f"/v1/domains/{clone.id}").ok().get("deadline")  # noqa: E731
        first, asked = deadline(held), deadline(timed)
        assert deadline(kept) is None
        until(lambda: deadline(held) > first)
        assert deadline(timed) == asked and deadline(kept) is None
        assert held.is_running()
        with held, timed:
            server.delete(f"/v1/domains/{kept.id}?force=true").ok()


def test_ports_and_networks(server):
    serve = "hostname > /tmp/index.html; exec httpd -f -p 80 -h /tmp"
    with Sandbox.create("busybox", command=serve, ports=[80], name="sdk-ports") as sandbox:
        at = sandbox.get_host(80)
        assert fetched(f"http://{at}/") == "sdk-ports\n"
        info = sandbox.info()
        assert info.network is not None
        assert info.network.ip4.startswith("10.88.")
        assert info.config.network.kind == NetworkKind.NAT
        assert info.network.ports[0].protocol == Protocol.TCP
        host, _, port = at.rpartition(":")
        with socket.create_connection((host, int(port))):
            deadline = time.monotonic() + 60
            while not (flows := (sandbox.flows()).flows):
                assert time.monotonic() < deadline
            assert flows[0].through == at and flows[0].state == FlowState.ESTABLISHED
            with Supervisor() as supervisor:
                everybodys = supervisor.flows(limit=10_000)
            assert any(flow.name == "sdk-ports" for flow in everybodys.flows)
        with pytest.raises(ValueError, match="81 is not published"):
            sandbox.get_host(81)
        taken = int(at.rpartition(":")[2])
        with pytest.raises(PortInUse, match=str(taken)):
            Sandbox.create("busybox", ports={80: taken})
        one = (sandbox.fork(ports=[80]))[0]
        with one:
            other = one.get_host(80)
            assert other != at
            assert fetched(f"http://{other}/") == "sdk-ports\n"
    with Sandbox.create("busybox") as sandbox:
        assert (sandbox.info()).network is None
    with pytest.raises(ValueError, match="need a network"):
        Sandbox.create("busybox", network=False, ports=[80])


def test_networks_by_name(server):
    serve = "echo hello > /tmp/index.html; exec httpd -f -p 80 -h /tmp"
    with (
        Sandbox.create("busybox", command=serve, network="sdk-net", name="sdk-named"),
        Sandbox.create("busybox", network="sdk-net") as client,
    ):
        assert (client.info()).config.network.name == "sdk-net"
        fetch = "until wget -q -O - http://sdk-named.sdk-net/; do sleep 0.1; done"
        assert (client.commands.run(fetch, timeout=60)).stdout == "hello\n"


def test_networks_that_are_made(server):
    made = VirtualNetwork.create("sdk-made", labels={"a": "b"}, internal=True)
    assert (made.name, made.internal, made.transient, made.labels) == ("sdk-made", True, False, {"a": "b"})
    with pytest.raises(NameInUse):
        VirtualNetwork.create("sdk-made")
    with Sandbox.create("busybox", network=["sdk-made", "sdk-open"]) as sandbox:
        asked = (sandbox.info()).config.network.networks
        assert asked is not None and [n.name for n in asked] == ["sdk-made", "sdk-open"]
        with pytest.raises(InUse):
            VirtualNetwork.remove("sdk-made")
        changed = VirtualNetwork.disconnect("sdk-made", sandbox)
        assert changed.network is not None and changed.network.networks == ["sdk-open"]
        changed = VirtualNetwork.connect("sdk-made", sandbox.id, aliases=["sdk-alias"])
        assert changed.network is not None and changed.network.networks == ["sdk-open", "sdk-made"]
        assert (VirtualNetwork.get("sdk-open")).transient
        assert {"default", "sdk-made", "sdk-open"} <= {n.name for n in VirtualNetwork.list()}
    assert VirtualNetwork.prune(label="a=b") == ["sdk-made"]
    with pytest.raises(NetworkNotFound):
        VirtualNetwork.get("sdk-made")
    VirtualNetwork.remove("sdk-made", force=True)


def test_shares_of_the_network_service(server):
    with Sandbox.create("busybox", network_weight=300, network_guarantee=1 << 20) as sandbox:
        network = (sandbox.info()).config.network
        assert (network.weight, network.guarantee) == (300, 1 << 20)
        changed = (sandbox.update(network_weight=50, network_guarantee=0)).config.network
        assert (changed.weight, changed.guarantee) == (50, None)


def test_networks_with_subnets(server):
    more = NetworkSubnet(subnet="fd00:221::/64", gateway="fd00:221::9")
    made = VirtualNetwork.create("sdk-subnet", subnets=["10.221.0.0/24", more])
    shown = [(s.subnet, s.gateway) for s in made.subnets]
    assert shown == [("10.221.0.0/24", "10.221.0.1"), (more.subnet, more.gateway)]
    on = NetworkMembership(name="sdk-subnet", ip4="10.221.0.7")
    with Sandbox.create("busybox", network=on) as sandbox:
        assert (sandbox.info()).addresses == {"sdk-subnet": ["10.221.0.7", "fd00:221::1"]}
        VirtualNetwork.disconnect("sdk-subnet", sandbox)
        back = VirtualNetwork.connect("sdk-subnet", sandbox, ip4="10.221.0.8")
        assert back.addresses["sdk-subnet"][0] == "10.221.0.8"
        with pytest.raises(InUse):
            Sandbox.create("busybox", network=NetworkMembership(name="sdk-subnet", ip4="10.221.0.8"))
    VirtualNetwork.remove("sdk-subnet")


def test_rules_of_networks(server):
    rules = [NetworkRule(action=RuleAction.DENY, pattern="192.0.2.0/24", log=True)]
    with Sandbox.create("busybox", rules=rules, allow=["10.88.0.1:80"]) as sandbox:
        made = (sandbox.info()).config.network
        assert (made.rules, made.allow) == (rules, ["10.88.0.1:80"])
        other = NetworkRule(action=RuleAction.ALLOW, pattern="any:22/tcp", direction=RuleDirection.IN, rate=5)
        changed = (sandbox.update(rules=[other])).config.network
        assert (changed.rules, changed.allow) == ([other], [])
        rate = NetworkRate(sent=1_000_000)
        changed = (sandbox.update(network_rate=rate)).config.network
        assert (changed.rules, changed.rate) == ([other], rate)
        with pytest.raises(InvalidRequest, match="no-pattern:"):
            sandbox.update(rules=[NetworkRule(action=RuleAction.DENY, pattern="no-pattern:")])
        traffic = (sandbox.stats()).network
        assert traffic is not None
        assert traffic.received.bytes == 0


def test_clones_have_the_files(server):
    with Sandbox.create("busybox") as sandbox:
        sandbox.files.write("/work/state", "warm")
        (clone,) = sandbox.fork()
        with clone:
            assert clone.files.read("/work/state") == "warm"
            clone.files.write("/work/state", "changed")
            assert sandbox.files.read("/work/state") == "warm"


def test_hibernate_and_wake(server):
    with Sandbox.create("busybox") as sandbox:
        report = sandbox.hibernate()
        assert report.bytes > 0
        assert (sandbox.info()).state == DomainState.HIBERNATED
        sandbox.wake()
        assert sandbox.is_running()


def test_rollback(server):
    with Sandbox.create("busybox") as sandbox:
        sandbox.files.write("/work/state", "warm")
        template = sandbox.freeze("sdk-rollback")
        try:
            for frozen in (template, "sdk-rollback"):
                sandbox.files.write("/work/state", "changed")
                domain = sandbox.rollback(frozen)
                assert (domain.id, domain.state) == (sandbox.id, DomainState.RUNNING)
                assert sandbox.files.read("/work/state") == "warm"
        finally:
            sandbox.kill()
            template.remove()


# -- images and the supervisor


def test_images(server):
    assert "busybox" in [i.name for i in Image.list()]
    assert (Image.get("busybox")).digest
    with pytest.raises(ImageNotFound):
        Image.get("registry.example/no/such:image")


def test_push_and_pull(server, registry):
    steps = []
    name = f"{registry}/library/tool:1"
    Image.push("busybox", name)
    pulled = Image.pull(name, plain_http=True, on_progress=steps.append)
    assert pulled.name == name
    assert pulled.digest == (Image.get("busybox")).digest
    assert steps
    assert steps[-1].done_bytes == steps[-1].total_bytes
    assert (Image.pull(name, name="tool")).name == "tool"
    with Sandbox.create("tool", command=["true"], auto_remove=False) as sandbox:
        assert (sandbox.wait()).exit_code == 0
    Image.remove("tool")
    Image.remove(name)
    with pytest.raises(RegistryError):
        Image.pull(f"{registry}/library/missing:1")


def test_interrupted_pull_is_cancelled(server, mute):
    def fail(progress):
        raise RuntimeError("stop")

    states = lambda: {o["id"]: o["state"] for o in server.get("/v1/operations").ok()}  # noqa: E731
    before = states()
    with pytest.raises(RuntimeError):
        Image.pull(f"{mute}/endless:1", on_progress=fail)
    until(lambda: [state for id, state in states().items() if id not in before] == ["cancelled"])


def test_load(server, tmp_path):
    import tarfile

    (tmp_path / "file").write_text("x")
    with tarfile.open(tmp_path / "tree.tar", "w") as tar:
        tar.add(tmp_path / "file", arcname="file")
    assert (Image.load(tmp_path / "tree.tar", "loaded")).name == "loaded"
    assert (Image.get("loaded")).files >= 1
    Image.remove("loaded")
    Image.prune()
    assert (Image.prune()).removed == []


def test_supervisor(server):
    with Supervisor() as supervisor:
        assert supervisor.ping()
        assert (supervisor.version()).version
        info = supervisor.info()
        assert info.cpus >= 1
        assert info.memory_bytes > 1 << 20
        assert "doppel_" in supervisor.metrics()


def test_events(server):
    seen = []
    with Supervisor() as supervisor:
        with supervisor.events() as events:
            with Sandbox.create("busybox") as sandbox:
                pass
            for event in events:
                if event.subject == sandbox.id:
                    seen.append(str(event.kind))
                    if event.kind == "remove":
                        break
    life = ["create", "start", "die", "remove"]
    assert [kind for kind in seen if kind in life] == life


def test_one_client_for_many(server):
    with Client() as client:
        sandboxes = [Sandbox.create("busybox", client=client) for _ in range(3)]
        tasks = [Task(s.commands.run, f"echo {i}") for i, s in enumerate(sandboxes)]
        assert [(t.join()).stdout for t in tasks] == ["0\n", "1\n", "2\n"]
        for sandbox in sandboxes:
            with sandbox:
                pass
        assert Sandbox.list(client=client) is not None
