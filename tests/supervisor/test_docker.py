"""What hands that know Docker type: users, copies, health, filters, further programs, freezing, all over the
supervisor."""

import io
import json
import os
import tarfile
import time

import pytest

PASSWD = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:web:/srv:/bin/sh\n"
GROUP = "root:x:0:\nwww:x:34:\nstaff:x:50:web\nadm:x:4:syslog,web\n"


@pytest.fixture
def d(supervisor, busybox):
    """The supervisor; what a test leaves behind is removed."""
    yield supervisor
    for line in supervisor.cli("ps", "-aq", "--no-trunc").stdout.decode().split():
        supervisor.cli("rm", "-f", line)


@pytest.fixture
def box(d):
    """A domain that runs, with users of its own."""
    ok(
        d.cli(
            "run",
            "-d",
            "--name",
            "box",
            "-e",
            "A=domain",
            "-w",
            "/tmp",
            "busybox",
            "sh",
            "-c",
            "echo up; exec sleep 1000",
        )
    )
    ok(d.cli("exec", "box", "mkdir", "-p", "/srv"))
    ok(d.cli("exec", "-i", "box", "sh", "-c", "cat > /etc/passwd", stdin=PASSWD.encode()))
    ok(d.cli("exec", "-i", "box", "sh", "-c", "cat > /etc/group", stdin=GROUP.encode()))
    return d


def ok(p):
    assert p.returncode == 0, (p.args[1:], p.returncode, p.stdout[-2000:], p.stderr[-2000:])
    return p.stdout.decode()


def eventually(check, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def test_users(box):
    """Names are looked up in the running domain, which has others than its image by now."""
    run = lambda *opts: ok(box.cli("exec", *opts, "box", "sh", "-c", "id -u; id -g; id -G; echo $HOME")).split()
    assert run("-u", "web") == ["33", "34", "34", "4", "50", "/srv"]
    assert run("-u", "33") == ["33", "34", "34", "4", "50", "/srv"]
    assert run("-u", "web:staff") == ["33", "50", "50", "/srv"]
    assert run("-u", "4242:7") == ["4242", "7", "7", "/"]
    assert run() == ["0", "0", "0", "/root"]
    p = box.cli("exec", "-u", "nobody-here", "box", "true")
    assert p.returncode == 125 and b"nobody-here" in p.stderr, p.stderr
    # The groups count: a file of one of them can be read.
    ok(box.cli("exec", "box", "sh", "-c", "echo secret > /srv/s; chgrp 50 /srv/s; chmod 640 /srv/s"))
    assert ok(box.cli("exec", "-u", "web", "box", "cat", "/srv/s")) == "secret\n"
    assert box.cli("exec", "-u", "web:www", "box", "cat", "/srv/s").returncode == 1


def test_exec(box, tmp_path):
    (tmp_path / "env").write_text("# comment\nB=file\nA=file\n")
    out = ok(
        box.cli(
            "exec",
            "-e",
            "C=option",
            "--env-file",
            str(tmp_path / "env"),
            "-w",
            "/etc",
            "box",
            "sh",
            "-c",
            "echo $A $B $C; pwd",
        )
    )
    assert out == "file file option\n/etc\n"
    assert ok(box.cli("exec", "box", "sh", "-c", "echo $A; pwd")) == "domain\n/tmp\n"
    assert ok(box.cli("exec", "-i", "box", "wc", "-c", stdin=bytes(100_000))).strip() == "100000"
    assert box.cli("exec", "box", "sh", "-c", "exit 3").returncode == 3
    assert box.cli("exec", "box", "no-such-command").returncode == 127
    assert box.cli("exec", "box", "/etc").returncode == 126
    assert box.cli("exec", "box", "sh", "-c", "kill -9 $$").returncode == 137
    assert box.cli("exec", "nobody", "true").returncode == 125
    ident = ok(box.cli("exec", "-d", "box", "sh", "-c", "echo done > /tmp/mark; exec sleep 1000")).strip()
    assert len(ident) == 16
    eventually(lambda: box.cli("exec", "box", "cat", "/tmp/mark").stdout == b"done\n", "it does not run")
    rows = ok(box.cli("top", "box")).splitlines()
    assert rows[0].split()[:3] == ["UID", "PID", "PPID"] and sum("sleep 1000" in r for r in rows) == 2, rows
    assert any(json.loads(line)["Command"] == "sleep 1000" for line in ok(box.cli("top", "--json", "box")).splitlines())


def test_copies(box, tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub/file").write_bytes(data := os.urandom(300_000))
    (tree / "link").symlink_to("sub/file")
    (tree / "run").write_text("#!/bin/sh\necho ran\n")
    (tree / "run").chmod(0o755)
    # To a name that is not there, into a directory that is, and only what is in it.
    ok(box.cli("cp", str(tree), "box:/new"))
    ok(box.cli("cp", str(tree), "box:/srv"))
    ok(box.cli("cp", f"{tree}/.", "box:/tmp"))
    assert (
        ok(box.cli("exec", "box", "sh", "-c", "/new/run; /srv/tree/run; /tmp/run; readlink /new/link"))
        == "ran\nran\nran\nsub/file\n"
    )
    # Paths begin at the root, and links to directories are directories.
    ok(box.cli("exec", "box", "ln", "-s", "/srv", "/way"))
    ok(box.cli("cp", str(tree / "run"), "box:way"))
    assert ok(box.cli("exec", "box", "/srv/run")) == "ran\n"
    ok(box.cli("cp", "box:/new", str(tmp_path / "back")))
    assert (tmp_path / "back/sub/file").read_bytes() == data and os.readlink(tmp_path / "back/link") == "sub/file"
    ok(box.cli("cp", "box:/new/sub/file", str(tmp_path)))
    assert (tmp_path / "file").read_bytes() == data
    # Archives on the standard streams.
    archive = tarfile.open(fileobj=io.BytesIO(box.cli("cp", "box:/new", "-").stdout))
    assert sorted(archive.getnames()) == ["new", "new/link", "new/run", "new/sub", "new/sub/file"]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        entry = tarfile.TarInfo("from/tar")
        entry.size = 3
        tar.addfile(entry, io.BytesIO(b"abc"))
    ok(box.cli("cp", "-", "box:/srv", stdin=packed.getvalue()))
    assert ok(box.cli("exec", "box", "cat", "/srv/from/tar")) == "abc"
    for argv in (
        ("box:/nothing", str(tmp_path)),
        (str(tmp_path / "nothing"), "box:/"),
        ("box:/a", "box:/b"),
        (str(tree), "box:/new/run"),
        ("nobody:/a", str(tmp_path)),
    ):
        p = box.cli("cp", *argv)
        assert p.returncode == 125 and p.stderr.startswith(b"doppel: "), (argv, p.stderr)


def test_archives_with_hostile_names_stay_inside(box, tmp_path):
    """What a domain puts into an archive, and what an archive does to a domain."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("../escaped", "a/../../escaped"):
            entry = tarfile.TarInfo(name)
            entry.size = 1
            tar.addfile(entry, io.BytesIO(b"x"))
    p = box.cli("cp", "-", "box:/srv", stdin=packed.getvalue())
    assert p.returncode == 125, p.stderr
    assert box.cli("exec", "box", "test", "-e", "/escaped").returncode == 1
    # Through a link that the archive itself brings.
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        link = tarfile.TarInfo("out")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(link)
        entry = tarfile.TarInfo("out/passwd")
        entry.size = 1
        tar.addfile(entry, io.BytesIO(b"x"))
    box.cli("cp", "-", "box:/srv", stdin=packed.getvalue())
    assert ok(box.cli("exec", "box", "cat", "/etc/passwd")) == PASSWD
    # A link of the domain's, to a place here: nothing is written through it.
    ok(box.cli("exec", "box", "sh", "-c", f"mkdir /bad; ln -s {tmp_path} /bad/here; echo x > /bad/file"))
    (tmp_path / "to").mkdir()
    ok(box.cli("cp", "box:/bad", str(tmp_path / "to")))
    assert os.readlink(tmp_path / "to/bad/here") == str(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["to"]


def test_health(d):
    ok(
        d.cli(
            "run",
            "-d",
            "--name",
            "well",
            "--health-cmd",
            "test -e /tmp/well",
            "--health-interval",
            "100ms",
            "--health-timeout",
            "30s",
            "--health-retries",
            "2",
            "busybox",
            "sleep",
            "1000",
        )
    )
    ok(d.cli("run", "-d", "--name", "other", "busybox", "sleep", "1000"))
    state = lambda: ok(d.cli("inspect", "-f", "{{.Health}}", "well")).strip()
    eventually(lambda: state() == "unhealthy", "it is not found out")
    assert ok(d.cli("ps", "-f", "health=unhealthy", "--format", "{{.Names}}")) == "well\n"
    ok(d.cli("exec", "well", "touch", "/tmp/well"))
    eventually(lambda: state() == "healthy", "it does not recover")
    assert "(healthy)" in ok(d.cli("ps", "--filter", "name=well", "--format", "{{.Status}}"))
    assert ok(d.cli("ps", "-f", "health=none", "--format", "{{.Names}}")) == "other\n"
    kinds = ok(
        d.cli(
            "events",
            "--since",
            "10m",
            "--until",
            "0s",
            "--filter",
            "event=health",
            "-f",
            "domain=well",
            "--format",
            "{{.Kind}} {{.Name}}",
        )
    )
    assert set(kinds.splitlines()) == {"health well"}


def test_filters(d):
    first = ok(d.cli("run", "-d", "--name", "f-one", "-l", "a=1", "-l", "b", "busybox", "sleep", "1000")).strip()
    ok(d.cli("create", "--name", "f-two", "-l", "a=2", "busybox", "sh", "-c", "exit 3"))
    assert d.cli("start", "-a", "f-two").returncode == 3
    names = lambda *filters: ok(
        d.cli("ps", "-a", *(w for f in filters for w in ("-f", f)), "--format", "{{.Names}}")
    ).split()
    assert names(f"id={first[:6]}") == ["f-one"]
    assert names("ancestor=busybox") == ["f-two", "f-one"] and names("ancestor=other") == []
    assert names("exited=3") == ["f-two"] and names("exited=0") == []
    assert names("label=a=1") == ["f-one"] and names("label=b", "status=running") == ["f-one"]
    assert ok(d.cli("ps", "-n", "1", "-f", "ancestor=busybox", "--format", "{{.Names}}")) == "f-two\n"
    assert ok(d.cli("ps", "-lq", "--no-trunc")).strip() != first
    for bad in ("exited=x", "health=good", "colour=red", "name"):
        assert d.cli("ps", "-f", bad).returncode == 125, bad


def test_answers_as_json(d):
    ok(d.cli("create", "--name", "j", "busybox", "sleep", "1000"))
    says = lambda *argv: json.loads(ok(d.cli(*argv, "--json", "j")))
    assert says("start")["state"] == "running"
    assert says("pause")["state"] == "paused"
    assert says("unpause")["state"] == "running"
    assert says("update", "--pids-limit", "60")["config"]["resources"]["pids"] == 60
    assert says("restart", "-t", "0")["state"] == "running"
    assert says("kill") == {"name": "j"}
    assert says("wait")["exit"]["exit_code"] == 137
    assert says("inspect")["name"] == "j"
    assert says("stop")["state"] == "exited"
    assert says("rm") == {"name": "j"}


def test_freezing_and_cloning(d):
    ok(d.cli("run", "-d", "--name", "origin", "busybox", "sh", "-c", "echo up; exec sleep 1000"))
    try:
        # Its first process is there when it prints; a domain runs before that.
        eventually(lambda: ok(d.cli("logs", "origin")) == "up\n", "no log")
        assert json.loads(ok(d.cli("freeze", "--json", "origin", "docker-warm")))["bytes"] > 0
        assert "docker-warm" in ok(d.cli("frozen", "ls", "-q")).split()
        assert "docker-warm disk\n" in ok(d.cli("frozen", "ls", "--format", "{{.Name}} {{.Place}}"))
        assert int(ok(d.cli("frozen", "inspect", "--format", "{{.Processes}}", "docker-warm"))) >= 1
        assert json.loads(ok(d.cli("inspect", "docker-warm")))[0]["name"] == "docker-warm"
        ids = ok(d.cli("clone", "-d", "--rm", "-n", "2", "--name", "copy", "docker-warm")).split()
        assert len(ids) == 2 and ok(d.cli("ps", "-f", "name=copy-", "-q", "--no-trunc")).split() == ids[::-1]
        # Image and command are those of the domain that was frozen.
        command = "sh -c echo up; exec sleep 1000"
        assert (
            ok(d.cli("ps", "-f", "name=copy-1", "--no-trunc", "--format", "{{.Image}} {{.Command}}"))
            == f'busybox "{command}"\n'
        )
        row = next(x for x in ok(d.cli("ps")).splitlines() if x.endswith("copy-2"))
        assert row.split()[1] == "busybox" and '"sh -c echo up; exec …"' in row
        found = json.loads(ok(d.cli("inspect", "copy-1")))[0]
        assert (found["config"]["image"], " ".join(found["command"]), found["cloned_from"]) == (
            "busybox",
            command,
            "docker-warm",
        )
        assert " ".join(json.loads(ok(d.cli("inspect", "docker-warm")))[0]["command"]) == command
        for name in ("copy-1", "copy-2"):
            assert ok(d.cli("exec", name, "hostname")) == f"{name}\n"
            ok(d.cli("kill", name))
        eventually(lambda: ok(d.cli("ps", "-aq", "-f", "name=copy-")) == "", "clones with --rm are still there")
        assert ok(d.cli("hibernate", "origin")).startswith("origin: ")
        assert ok(d.cli("ps", "-a", "--format", "{{.Status}}")).startswith("Hibernated (uid 0) ")
        ok(d.cli("wake", "origin"))
        assert ok(d.cli("exec", "origin", "hostname")) == "origin\n"
    finally:
        d.cli("rm", "-f", "copy-1", "copy-2", "origin")
        # Whoever ran on it holds it for a moment longer.
        eventually(lambda: d.cli("frozen", "rm", "docker-warm").returncode == 0, "it is not let go")


def test_images(d):
    assert "busybox" in ok(d.cli("images", "-q")).split() and "busybox" in ok(d.cli("image", "ls", "--quiet")).split()
    assert ok(d.cli("images")).split()[:4] == ["NAME", "DIGEST", "SIZE", "FILES"]
    row = next(r for r in map(json.loads, ok(d.cli("images", "--json")).splitlines()) if r["name"] == "busybox")
    ident = row["digest"][:12]
    assert f"busybox latest {ident}\n" in ok(d.cli("image", "ls", "--format", "{{.Repository}} {{.Tag}} {{.ID}}"))
    ok(d.cli("image", "tag", "busybox", "docker-hands:1"))
    assert ok(d.cli("run", "--rm", "docker-hands:1", "echo", "hi")) == "hi\n"
    ok(d.cli("rmi", "docker-hands:1"))
    assert d.cli("rmi", "docker-hands:1").returncode == 125
    ok(d.cli("rmi", "-f", "docker-hands:1"))
    assert d.cli("pull", "a b").returncode == 125


def test_origins_are_known(new_doppeld, busybox):
    """Image and command of what was frozen: after kill -9, when the name is gone, to clones of clones; and not those of
    another image that had the name."""
    one = new_doppeld().start()
    shown = lambda name: ok(
        one.cli("ps", "-f", f"name={name}", "--no-trunc", "--format", "{{.Image}} {{.Command}}")
    ).strip()
    ok(one.cli("image", "tag", busybox, "origin-test:1"))
    ok(one.cli("run", "-d", "--name", "first", "origin-test:1", "sleep", "1000"))
    ok(one.cli("freeze", "first", "origin-a"))
    ok(one.cli("rmi", "origin-test:1"))
    one.kill()
    one.start()
    ok(one.cli("clone", "-d", "--name", "second", "origin-a"))
    assert shown("second") == 'origin-test:1 "sleep 1000"'
    ok(one.cli("freeze", "second", "origin-b"))
    ok(one.cli("clone", "-d", "--name", "third", "origin-b"))
    assert shown("third") == 'origin-test:1 "sleep 1000"'
    # A program beside what was frozen is the clone's own command.
    ok(one.cli("clone", "-d", "--name", "own", "origin-b", "--", "sleep", "999"))
    assert shown("own") == 'origin-test:1 "sleep 999"'
    ok(one.cli("rm", "-f", "first", "second", "third", "own"))
    eventually(lambda: one.cli("frozen", "rm", "origin-a").returncode == 0, "it is not let go")
    # A domain that freezes itself, under the name that is free again.
    script = "echo freeze > /sys/power/state; exec sleep 998"
    made = one.post(
        "/v1/domains?start=true",
        {"image": busybox, "command": ["sh", "-c", script], "name": "self", "freeze_as": "origin-a"},
    ).ok(201)
    assert made["domain"]["command"] == ["sh", "-c", script]
    eventually(
        lambda: one.get("/v1/frozen/origin-a").status == 200 and one.get("/v1/frozen/origin-a").json["command"],
        "it is not noted",
    )
    ok(one.cli("clone", "-d", "--name", "fourth", "origin-a"))
    assert shown("fourth") == f'{busybox} "sh -c {script}"'
