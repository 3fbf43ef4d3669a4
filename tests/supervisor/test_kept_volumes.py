"""Volumes of a supervisor's domains: they outlive domains, keepers, supervisors and services."""
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from conftest import DOPPEL, eventually, ok, refused

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
# Adds a line to a file each time it is told to, and says so; in the same open file.
WRITER = 'exec 3>>/data/lines; while read -r word; do echo "$word" >&3; echo "wrote $word"; done'


@pytest.fixture
def own(new_doppeld, busybox):
    return new_doppeld().start()


@pytest.fixture(params=["para", "paene"])
def kind(request):
    return request.param


def test_domains_and_the_host_share_them(own, kind, tmp_path):
    """What one writes the others read, in a volume as in a directory of the host."""
    for source in ("shared", str(tmp_path)):
        for name in ("one", "two"):
            opts = ("--kind", kind, "--name", name, "-v", f"{source}:/data")
            ok(own.cli("run", "-d", *opts, "busybox", "sleep", "1000"))
        ok(own.cli("exec", "one", "sh", "-c", "echo 1 > /data/f; mkdir /data/d; mv /data/f /data/d/g"))
        assert ok(own.cli("exec", "two", "sh", "-c", "cat /data/d/g; echo 2 >> /data/d/g; ln -s g /data/d/h")) == "1\n"
        found = json.loads(ok(own.cli("inspect", "one")))[0]["mounts"]
        assert [(m["type"], m["destination"], m["rw"]) for m in found] == [
            ("volume" if source == "shared" else "bind", "/data", True)
        ]
        at = pathlib.Path(found[0]["source"])
        assert (at / "d/g").read_text() == "1\n2\n" and os.readlink(at / "d/h") == "g"
        (at / "d/g").write_text("3\n")
        assert ok(own.cli("exec", "one", "cat", "/data/d/h")) == "3\n"
        ok(own.cli("rm", "-f", "one", "two"))


def test_they_stay_through_stops_and_restarts(own, kind):
    script = "echo run >> /data/runs; wc -l < /data/runs; exec sleep 1000"
    ok(own.cli("run", "-d", "--kind", kind, "--name", "d", "-v", "kept:/data", "busybox", "sh", "-c", script))
    eventually(lambda: ok(own.cli("logs", "d")) == "1\n", "it has begun")
    ok(own.cli("restart", "-t", "0", "d"))
    eventually(lambda: ok(own.cli("logs", "d")) == "1\n2\n", "it has begun again")
    ok(own.cli("stop", "-t", "0", "d"))
    refused(own.cli("volume", "rm", "kept"), "is in use by domain")
    own.kill()
    own.start()
    refused(own.cli("volume", "rm", "kept"), "is in use by domain")
    ok(own.cli("start", "d"))
    eventually(lambda: ok(own.cli("logs", "d")) == "1\n2\n3\n", "it has begun a third time")
    ok(own.cli("rm", "-f", "d"))
    assert ok(own.cli("volume", "rm", "kept")) == "kept\n"
    refused(own.cli("volume", "inspect", "kept"), 'no volume "kept"')


def test_snapshots_and_clones(own, kind):
    """A snapshot stays as it is, a clone goes its own way; nobody copies what a domain is just writing."""
    run = lambda volume, script: own.cli("run", "--rm", "--kind", kind, "-v", volume, "busybox", "sh", "-c", script)
    ok(run("data:/d", "echo one > /d/f; mkdir /d/e; ln /d/f /d/e/g; ln -s f /d/l; chown 7:8 /d/f; chmod 4750 /d/f"))
    assert ok(own.cli("volume", "snapshot", "data", "then")) == "then\n"
    ok(run("data:/d", "echo two > /d/f"))
    assert ok(own.cli("volume", "clone", "--label", "a=b", "then", "again")) == "again\n"
    look = "cat /d/f /d/e/g; stat -c '%a %u %g %h' /d/f; readlink /d/l"
    assert ok(run("again:/d", look)) == ok(run("then:/d:ro", look)) == "one\none\n4750 7 8 2\nf\n"
    ok(run("again:/d", "echo three > /d/f"))
    assert ok(run("then:/d:ro", "cat /d/f")) == "one\n" and ok(run("data:/d", "cat /d/f")) == "two\n"
    refused(run("then:/d", "true"), "is a snapshot, which domains only read")
    assert ok(own.cli("volume", "ls", "--format", "{{.Name}} {{.Snapshot}}")) == "again no\ndata no\nthen yes\n"
    ok(own.cli("run", "-d", "--kind", kind, "--name", "d", "-v", "data:/d", "busybox", "sleep", "1000"))
    for verb in ("snapshot", "clone"):
        refused(own.cli("volume", verb, "data", "busy"), "is in use by domain")
    refused(own.cli("volume", "clone", "then", "data"), "already")
    ok(own.cli("stop", "-t", "0", "d"))
    ok(own.cli("volume", "clone", "data", "busy"))
    ok(own.cli("rm", "d"))


def test_volumes_of_another_domain(own, kind, tmp_path):
    opts = ("--kind", kind, "-v", "first:/a", "-v", f"{tmp_path}:/b:ro")
    ok(own.cli("run", "-d", "--name", "one", *opts, "busybox", "sh", "-c", "echo 1 > /a/f; exec sleep 1000"))
    eventually(lambda: own.cli("exec", "one", "cat", "/a/f").stdout == b"1\n", "it is written")
    script = "cat /a/f; touch /a/g /b/g"
    r = own.cli("run", "--rm", "--kind", kind, "--volumes-from", "one:ro", "busybox", "sh", "-c", script)
    assert r.stdout == b"1\n" and r.stderr.count(b"Read-only file system") == 2, r
    script = "ls /a; touch /a/g; touch /b/g"
    opts = ("--kind", kind, "--volumes-from", "one", "-v", "second:/a")
    r = own.cli("run", "--rm", *opts, "busybox", "sh", "-c", script)
    assert r.stdout == b"" and r.stderr.count(b"Read-only file system") == 1, r
    refused(own.cli("create", "--volumes-from", "one:z", "busybox", "true"), "neither ro nor rw")
    refused(own.cli("create", "--volumes-from", "none", "busybox", "true"), 'no domain "none"')
    for what in ("first", "/b", str(tmp_path)):
        assert ok(own.cli("ps", "--filter", f"volume={what}", "--format", "{{.Names}}")) == "one\n"
    assert ok(own.cli("ps", "-q", "--filter", "volume=second")) == ""


def test_volumes_without_a_name(own, kind):
    """They go with --rm and `rm -v`, and stay otherwise, until they are pruned."""
    ok(own.cli("run", "--rm", "--kind", kind, "-v", "/data", "busybox", "touch", "/data/x"))
    assert ok(own.cli("volume", "ls", "-q")) == ""
    for options in (["rm", "-v"], ["rm"]):
        name = ok(own.cli("create", "--kind", kind, "-v", "/data", "-v", "named:/more", "busybox", "true")).strip()
        assert len(ok(own.cli("volume", "ls", "-q")).split()) == 2
        ok(own.cli(*options, name))
    left = ok(own.cli("volume", "ls", "-q", "-f", "dangling=true")).split()
    assert len(left) == 2 and "named" in left
    assert ok(own.cli("volume", "prune", "-f")).split() == [one for one in left if one != "named"]
    assert ok(own.cli("volume", "prune", "-a", "-f")) == "named\n"


def test_what_the_image_has_is_copied_once(own, kind):
    """A new volume gets the files of the image at its place; one with files keeps these, and nocopy keeps it empty."""
    count = "ls /etc | wc -l"
    there = ok(own.cli("run", "--rm", "--kind", kind, "busybox", "sh", "-c", count))
    run = lambda volume, script: ok(own.cli("run", "--rm", "--kind", kind, "-v", volume, "busybox", "sh", "-c", script))
    assert run("copied:/etc", f"{count}; rm -r /etc/*; touch /etc/mine") == there
    assert run("copied:/etc", "ls /etc").split() == ["mine"]
    assert run("empty:/etc:nocopy", "ls /etc | grep -v -e hosts -e resolv.conf -e hostname; true") == ""


def attached(own, kind):
    """A domain that writes what it is told to, and a way to tell it."""
    argv = [DOPPEL, "run", "-i", "--kind", kind, "--name", "writer", "-v", "kept:/data", "busybox", "sh", "-c", WRITER]
    env = {**os.environ, "DOPPEL_HOST": f"unix://{own.socket}", "DOPPEL_STORE": str(own.store)}
    p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, env=env)

    def tell(word: str) -> None:
        p.stdin.write(f"{word}\n".encode())
        p.stdin.flush()
        assert p.stdout.readline() == f"wrote {word}\n".encode()

    return p, tell


def services(keeper: int) -> list[int]:
    """Storage services of a keeper."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            argv = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if b"storage-service" in argv and parent == keeper:
            found.append(int(entry.name))
    return found


def test_open_files_go_on(own, kind):
    """A program that has a file open goes on when the storage service, the keeper or the supervisor dies."""
    p, tell = attached(own, kind)
    told = ["first"]
    tell("first")

    def kill_service() -> None:
        for pid in services(own.keepers()[0]):
            os.kill(pid, signal.SIGKILL)

    def kill_keeper() -> None:
        old = own.keepers()[0]
        os.kill(old, signal.SIGKILL)
        eventually(lambda: (now := own.keepers()) and old not in now, "another keeper")

    for round in range(3):
        for harm in (kill_service, kill_keeper):
            harm()
            told.append(f"{harm.__name__}-{round}")
            tell(told[-1])
    p.stdin.close()
    assert p.wait(timeout=60) == 0
    p.stdout.close()
    assert (own.store / "volumes/kept/_data/lines").read_text().split() == told


def test_what_is_counted(own):
    """What a storage service does for a domain is in its accounts, and stays there; the service is listed."""
    script = "dd if=/dev/zero of=/data/f bs=64k count=16 conv=fsync 2>/dev/null; echo done; exec sleep 1000"
    ok(own.cli("run", "-d", "--name", "d", "-v", "data:/data", "busybox", "sh", "-c", script))
    eventually(lambda: ok(own.cli("logs", "d")) == "done\n", "it has written")
    now = own.get("/v1/domains/d/stats").ok()["storage"]
    assert now["written_bytes"] >= 1 << 20 and now["operations"] > 0 and now["seconds"] > 0 and now["errors"] == 0
    listed = [s for s in own.get("/v1/services").ok() if s["kind"] == "storage"]
    assert [(s["shard"], s["domains"], s["restarts"]) for s in listed] == [(0, 1, 0)] and listed[0]["pid"]
    text = own.get("/metrics").body.decode()
    assert 'doppel_storage_service_up{shard="0"} 1' in text and "doppel_domain_storage_written_bytes_total" in text
    os.kill(listed[0]["pid"], signal.SIGKILL)
    ok(own.cli("exec", "d", "cat", "/data/f"))
    eventually(lambda: own.get("/v1/services").ok()[-1]["restarts"] == 1, "another one serves")
    ok(own.cli("stop", "-t", "0", "d"))
    then = own.get("/v1/domains/d").ok()["usage"]["storage"]
    assert then["written_bytes"] >= now["written_bytes"] and then["operations"] > now["operations"]


def test_a_cached_bind_is_asked_about_now_and_then(own, tmp_path):
    """What the domain has read it keeps for a second; what it writes is the host's at once."""
    (tmp_path / "f").write_text("one")
    for name, how in (("plain", ""), ("cached", ":cached")):
        ok(own.cli("run", "-d", "--name", name, "-v", f"{tmp_path}:/data{how}", "busybox", "sleep", "1000"))
    look = "i=0; while [ $i -lt 3000 ]; do [ -e /data/f ] || exit 3; i=$((i+1)); done"

    def operations(name):
        before = own.get(f"/v1/domains/{name}/stats").ok()["storage"]["operations"]
        ok(own.cli("exec", name, "sh", "-c", look))
        return own.get(f"/v1/domains/{name}/stats").ok()["storage"]["operations"] - before

    assert operations("plain") >= 3000 and operations("cached") < 1500
    for text in ("two", "three"):
        (tmp_path / "f").write_text(text)
        eventually(lambda: ok(own.cli("exec", "cached", "cat", "/data/f")) == text, "it sees what the host writes")
    ok(own.cli("exec", "cached", "sh", "-c", "echo four > /data/f; mv /data/f /data/g"))
    assert (tmp_path / "g").read_text() == "four\n" and not (tmp_path / "f").exists()
    assert json.loads(ok(own.cli("inspect", "cached")))[0]["config"]["files"]["mounts"][0]["cached"] is True


def test_binds_lie_where_they_may(new_doppeld, busybox, tmp_path):
    """A supervisor that is told so gives directories below some others only, wherever links lead."""
    (tmp_path / "open").mkdir()
    (tmp_path / "closed").mkdir()
    (tmp_path / "open/link").symlink_to("../closed")
    d = new_doppeld(config=f'[volumes]\nbinds = ["{tmp_path}/open"]\n').start()
    run = lambda source: d.cli("run", "--rm", "--kind", "paene", "-v", f"{source}:/data", "busybox", "touch", "/data/x")
    ok(run(tmp_path / "open"))
    ok(run("named"))
    for path in ("closed", "open/link", "open/link/new", "open/../closed"):
        refused(run(tmp_path / path), "is not mounted: of this host, domains are given")
    assert not list((tmp_path / "closed").iterdir()) and (tmp_path / "open/x").exists()


def test_the_interface(own):
    """/v1/volumes, and what it refuses."""
    made = own.post("/v1/volumes", {"name": "data", "labels": {"a": "b"}}).ok(201)
    assert made["labels"] == {"a": "b"} and made["mountpoint"] == str(own.store / "volumes/data/_data")
    assert own.post("/v1/volumes", {"name": "data"}).ok(201) == made, "it stays as it is"
    assert own.get("/v1/volumes").ok() == [made] and own.get("/v1/volumes/data").ok() == made
    assert "no name of a volume" in own.post("/v1/volumes", {"name": "a/b"}).problem(400, "invalid_request")
    assert "no volume" in own.get("/v1/volumes/none").problem(404, "volume_not_found")
    mount = {"type": "volume", "source": "data", "target": "/data"}
    wanted = {"image": "busybox", "name": "d", "command": ["true"], "files": {"mounts": [mount]}}
    domain = own.post("/v1/domains", wanted).ok()["domain"]
    assert own.get("/v1/volumes/data").ok()["used_by"] == [domain["id"]]
    assert domain["id"] in own.delete("/v1/volumes/data").problem(409, "in_use")
    assert own.post("/v1/volumes/prune?all=true").ok() == {"removed": []}
    for wrong, why in (
        ({"type": "bind", "target": "/x"}, "needs a source"),
        ({"type": "bind", "source": "x", "target": "/x"}, "absolute path"),
        ({"type": "bind", "source": str(own.dir / "none"), "target": "/x"}, "does not exist"),
        ({"type": "volume", "source": "/x", "target": "/x"}, "no name of a volume"),
        ({"type": "tmpfs", "source": "x", "target": "/x"}, "no source"),
    ):
        body = {"image": "busybox", "command": ["true"], "files": {"mounts": [wrong]}}
        assert why in own.post("/v1/domains", body).problem(400, "invalid_request"), wrong
    own.delete("/v1/domains/d").ok()
    for wrong, why in (
        ({"name": "xx", "snapshot": True}, "of a `source`"),
        ({"source": "data"}, "has a name"),
        ({"name": "xx", "source": "data", "inodes": 5}, "limits of its source"),
    ):
        assert why in own.post("/v1/volumes", wrong).problem(400, "invalid_request"), wrong
    own.post("/v1/volumes", {"name": "xx", "source": "none"}).problem(404, "volume_not_found")
    own.post("/v1/volumes", {"name": "data", "source": "data"}).problem(409, "name_in_use")
    own.delete("/v1/volumes/data").ok()
    own.delete("/v1/volumes/data?force=true").ok()
    own.delete("/v1/volumes/data").problem(404, "volume_not_found")
