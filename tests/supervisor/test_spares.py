"""Domains made ready before they are wanted: the next start takes one, and nobody can tell but by the clock."""
import re
import time

import leftovers
import pytest


@pytest.fixture
def own(new_doppeld, busybox):
    return new_doppeld().start()


def ok(p):
    assert p.returncode == 0, (p.args[1:], p.returncode, p.stdout[-2000:], p.stderr[-2000:])
    return p.stdout.decode()


def taken(d):
    """How many domains were ready before they were wanted."""
    found = re.search(
        r'^doppel_start_stage_seconds_count{kind="boot",stage="spare"} (\d+)', d.get("/metrics").body.decode(), re.M
    )
    return int(found[1]) if found else 0


def out_of_spare(d, *argv):
    """Runs it until it came out of a spare; gives what it printed. Whether one is ready in time is not ours to say."""
    deadline = time.monotonic() + 60
    while True:
        before = taken(d)
        printed = ok(d.cli("run", "--rm", *argv))
        if taken(d) > before:
            return printed
        assert time.monotonic() < deadline, "none is ever ready"
        time.sleep(0.05)


def test_it_is_the_domain_that_was_wanted(own):
    script = (
        "hostname; echo $HOSTNAME $A $HOME; id -u; id -g; pwd; awk '/MemTotal/ {print int($2 / 1024)}' "
        "/proc/meminfo; cat /proc/1/cmdline | tr '\\0' ' '; set -- /proc/[0-9]*; echo $#"
    )
    asked = (
        "-e",
        "A=b",
        "-w",
        "/made/here",
        "-u",
        "7:8",
        "--hostname",
        "other",
        "-m",
        "96m",
        "--pids-limit",
        "70",
        "busybox",
        "sh",
        "-c",
        script,
    )
    lines = out_of_spare(own, *asked).splitlines()
    assert lines[:6] == ["other", "other b /", "7", "8", "/made/here", "96"], lines
    assert lines[6].startswith("sh -c hostname"), lines
    # The same as one that was started for it.
    first = ok(own.cli("run", "--rm", "-i", *asked)).splitlines()
    assert first == lines
    # Each is used once: nothing of one domain is in the next.
    for _ in range(3):
        assert (
            out_of_spare(own, "busybox", "sh", "-c", "ls /tmp | wc -l; touch /tmp/x; dmesg 2>/dev/null | wc -l")
            == "0\n0\n"
        )


def test_it_has_the_files_that_were_wanted(own, tmp_path):
    (tmp_path / "given").write_text("given\n")
    for n in (1, 2):
        asked = ("--persist=web", "-v", "kept:/kept", "-v", f"{tmp_path}:/bind:ro", "--tmpfs", "/own")
        script = "for f in /runs /kept/runs /own/runs; do echo run >> $f; wc -l < $f; done; cat /bind/given"
        counts = ok(own.cli("run", "--rm", *asked, "busybox", "sh", "-c", script)).split()
        assert counts == [str(n), str(n), "1", "given"], counts
    counts = out_of_spare(own, *asked, "busybox", "sh", "-c", script).split()
    assert int(counts[0]) == int(counts[1]) > 2 and counts[2:] == ["1", "given"], counts


def test_names_limits_and_ends(own):
    out_of_spare(own, "busybox", "true")
    deadline = time.monotonic() + 60
    while True:
        before = taken(own)
        made = own.post(
            "/v1/domains?start=true",
            {
                "image": "busybox",
                "command": ["sh", "-c", "echo up; exec sleep 1000"],
                "name": "kept",
                "resources": {"pids": 70, "cpu_weight": 200},
            },
        ).ok(201)["domain"]
        if taken(own) > before:
            break
        own.delete("/v1/domains/kept?force=true")
        assert time.monotonic() < deadline, "none is ever ready"
        time.sleep(0.05)
    assert ok(own.cli("exec", "kept", "hostname")) == "kept\n"
    assert own.get("/v1/domains/kept/stats").ok()["pids"] >= 1
    assert own.get("/v1/domains/kept").ok()["pid"] == made["pid"]
    # It outlives the supervisor like any other, and is frozen like any other.
    own.kill()
    own.start()
    assert own.get("/v1/domains/kept").ok()["state"] == "running"
    ok(own.cli("freeze", "kept", "spare-warm"))
    ok(own.cli("clone", "-d", "--name", "copy", "spare-warm"))
    assert ok(own.cli("exec", "copy", "hostname")) == "copy\n"
    ok(own.cli("rm", "-f", "kept", "copy"))
    # What is wrong is said, whether one is ready or not.
    for _ in range(3):
        refused = own.cli("run", "--rm", "busybox", "/no/such/program")
        assert refused.returncode == 127, refused.stderr
    # Those that nobody wants go.
    leftovers.none_of(own)
