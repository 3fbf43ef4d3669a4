"""Paene domains through the supervisor: the same verbs, limits, accounts, and what is refused by name."""
import json
import os
import pathlib

import pytest
from conftest import eventually, text


@pytest.fixture
def d(doppeld):
    """The supervisor; what a test leaves behind is removed."""
    yield doppeld
    for line in doppeld.cli("ps", "-aq", "--no-trunc").stdout.decode().split():
        doppeld.cli("rm", "-f", line)


def start(d, *command, opts=()):
    return text(d.cli("run", "-d", "--kind", "paene", *opts, "busybox", *command)).strip()


def test_run(d):
    p = d.cli("run", "--rm", "--kind", "paene", "-e", "A=1", "busybox", "sh", "-c", "echo $A; echo err >&2; exit 7")
    assert (p.returncode, p.stdout, p.stderr) == (7, b"1\n", b"err\n")
    assert d.cli("run", "--rm", "--kind", "paene", "busybox", "no-such-command").returncode == 127
    assert (
        d.cli("run", "--rm", "-i", "--kind", "paene", "busybox", "cat", stdin=b"x" * 300_000).stdout == b"x" * 300_000
    )
    assert text(d.cli("ps", "-aq")) == ""


def test_life(d):
    id = start(
        d,
        "sh",
        "-c",
        "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.1; done",
        opts=["--name", "paene-life"],
    )
    shown = d.get(f"/v1/domains/{id}").json
    assert shown["config"]["kind"] == "paene" and shown["state"] == "running"
    eventually(lambda: text(d.cli("logs", "paene-life")) == "up\n", "its log")
    assert text(d.cli("exec", "paene-life", "sh", "-c", "echo $$ > /tmp/f; cat /tmp/f")).strip().isdigit()
    processes = {p["pid"]: p["command"] for p in d.get(f"/v1/domains/{id}/top").json}
    assert processes[1].startswith("sh -c trap"), processes
    text(d.cli("stop", "paene-life"))
    assert d.get(f"/v1/domains/{id}").json["exit"]["exit_code"] == 3
    assert text(d.cli("logs", "paene-life")) == "up\nbye\n"
    text(d.cli("start", "paene-life"))
    eventually(lambda: text(d.cli("logs", "paene-life")).count("up\n") == 2, "it runs again")
    text(d.cli("kill", "paene-life"))
    assert text(d.cli("wait", "paene-life")).strip() == "137"
    text(d.cli("rm", "paene-life"))


def test_pause(d):
    id = start(d, "sh", "-c", "i=0; while :; do i=$((i+1)); echo $i > /n; done")
    count = lambda: int(d.get(f"/v1/domains/{id}/stats").json["cpu_seconds"] * 1000)
    text(d.cli("pause", id))
    assert d.get(f"/v1/domains/{id}").json["state"] == "paused"
    # What stands still uses no CPU time, however long that is looked at.
    before = count()
    assert all(count() == before for _ in range(20))
    text(d.cli("unpause", id))
    eventually(lambda: count() > before, "it goes on")
    text(d.cli("pause", id))
    # Even so it can be removed.
    text(d.cli("rm", "-f", id))


def test_files(d, tmp_path):
    id = start(d, "sleep", "1000")
    assert d.put(f"/v1/domains/{id}/files", b"hello", path="/new/dir/file").status in (200, 204)
    assert d.get(f"/v1/domains/{id}/files", path="/new/dir/file").body == b"hello"
    listed = d.get(f"/v1/domains/{id}/files/list", path="/new/dir").json
    assert [(f["name"], f["size_bytes"]) for f in listed] == [("file", 5)]
    assert d.delete(f"/v1/domains/{id}/files", path="/new/dir/file").status == 204
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/sub/file").write_text("content")
    text(d.cli("cp", str(tmp_path / "tree"), f"{id}:/tree"))
    assert text(d.cli("exec", id, "cat", "/tree/sub/file")) == "content"
    text(d.cli("cp", f"{id}:/tree", str(tmp_path / "back")))
    assert (tmp_path / "back/sub/file").read_text() == "content"


def test_limits_and_accounts(d):
    id = start(
        d,
        "sh",
        "-c",
        "while :; do :; done",
        opts=["--memory", "64m", "--pids-limit", "20", "--disk", "4m", "--inodes", "100"],
    )
    assert d.cli("exec", id, "sh", "-c", "dd if=/dev/zero of=/x bs=1M count=8").returncode == 1
    text(d.cli("exec", id, "rm", "/x"))
    stats = eventually(
        lambda: (s := d.get(f"/v1/domains/{id}/stats").json)["cpu_seconds"] > 0.2 and s, "CPU time is counted"
    )
    assert stats["memory"]["usage_bytes"] > 0 and 0 < stats["pids"] <= 20
    text(d.cli("update", "--memory", "32m", "--pids-limit", "30", id))
    assert d.get(f"/v1/domains/{id}").json["config"]["resources"]["memory_bytes"] == 32 << 20
    text(d.cli("kill", id))
    text(d.cli("wait", id))
    assert d.get(f"/v1/domains/{id}/stats").json["cpu_seconds"] >= stats["cpu_seconds"], "kept after its end"


def test_weights_and_caps(d):
    id = start(d, "sh", "-c", "sleep 1000 & sleep 1000", opts=["--cpus", "0.5", "--cpu-weight", "200"])
    groups = [pathlib.Path(g) for g, _, _ in os.walk("/sys/fs/cgroup") if id in g]
    first = lambda *names: next(p.read_text().strip() for g in groups for n in names if (p := g / n).exists())
    assert first("cpu.cfs_quota_us", "cpu.max") in ("50000", "50000 100000")
    assert first("cpu.shares", "cpu.weight") in ("2048", "200")
    eventually(
        lambda: all(len((g / "cgroup.procs").read_text().split()) >= 3 for g in groups),
        "attendant and programs in each",
    )
    text(d.cli("update", "--cpus", "0.25", "--cpu-weight", "50", id))
    assert first("cpu.cfs_quota_us", "cpu.max") in ("25000", "25000 100000")
    assert first("cpu.shares", "cpu.weight") in ("512", "50")


def test_out_of_memory_is_told(d):
    id = start(d, "tail", "/dev/zero", opts=["--memory", "32m"])
    assert text(d.cli("wait", id)).strip() == "137"
    assert d.get(f"/v1/domains/{id}").json["exit"]["out_of_memory"] is True


def test_survives_the_supervisor(d):
    id = start(d, "sh", "-c", "echo up; exec sleep 1000")
    pid = d.get(f"/v1/domains/{id}").json["pid"]
    d.kill()
    d.start()
    again = d.get(f"/v1/domains/{id}").json
    assert (again["state"], again["pid"]) == ("running", pid)
    assert text(d.cli("exec", id, "echo", "still here")) == "still here\n"
    text(d.cli("stop", "-t", "0", id))


def test_what_only_para_domains_can(d):
    id = start(d, "sleep", "1000")
    for verb in (["freeze", id, "paene-frozen"], ["hibernate", id]):
        p = d.cli(*verb)
        assert p.returncode != 0 and b"paene" in p.stderr, p
    assert d.get(f"/v1/domains/{id}").json["state"] == "running", "unharmed"
    for more in ({"freeze_as": "x"}, {"resources": {"memory_target_bytes": 64 << 20}}):
        detail = d.post("/v1/domains", {"image": "busybox", "command": ["true"], "kind": "paene", **more}).problem(
            501, "unsupported"
        )
        assert "paene" in detail or "para" in detail
    bounded = {"image": "busybox", "command": ["true"], "resources": {"disk_bytes": 1 << 20}}
    d.post("/v1/domains", {**bounded, "auto_remove": True}).problem(501, "unsupported")
    assert json.loads(text(d.cli("inspect", id)))[0]["config"]["kind"] == "paene"
