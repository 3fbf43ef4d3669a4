"""Domains made ready before they are wanted: the next start takes one, and nobody can tell but by the clock."""
import os
import re
import signal
import time

import leftovers
import pytest


@pytest.fixture
def own(new_doppeld, busybox):
    return new_doppeld().start()


def ok(p):
    assert p.returncode == 0, (p.args[1:], p.returncode, p.stdout[-2000:], p.stderr[-2000:])
    return p.stdout.decode()


def taken(d, kind="boot"):
    """How many domains were ready before they were wanted."""
    wanted = rf'^doppel_start_stage_seconds_count{{kind="{kind}",stage="spare"}} (\d+)'
    found = re.search(wanted, d.get("/metrics").body.decode(), re.M)
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


def clones_taken(d):
    """How many clones were ready before they were wanted."""
    return taken(d, "clone")


def clone_out_of_spare(d, frozen, **how):
    """Clones until one was ready before; gives it, and leaves none of the others."""
    deadline = time.monotonic() + 60
    while True:
        before = clones_taken(d)
        made = d.post(f"/v1/frozen/{frozen}/clone", how).ok(201)["results"][0]["domain"]
        if clones_taken(d) > before:
            return made
        d.delete(f"/v1/domains/{made['id']}?force=true").ok()
        assert time.monotonic() < deadline, "none is ever ready"
        time.sleep(0.05)


@pytest.mark.parametrize("kept", [True, False], ids=["in a layer", "in memory"])
def test_a_clone_is_the_one_that_was_wanted(own, kept):
    """Its name, host name, arguments, limits, identity and files are its own, whether they stay or are in memory."""
    # As many as stay in the layer's file when it is frozen.
    big = "head -c 20000000 /dev/zero > /big; " if kept else ""
    command = ["sh", "-c", f"{big}echo before > /tmp/x; echo before > /f; sleep 1000"]
    asked = {"image": "busybox", "name": "parent", "command": command, "files": {"persist": kept}}
    parent = own.post("/v1/domains?start=true", asked).ok(201)["domain"]
    look = "until [ -s /f ]; do sleep 0.01; done; cat /proc/sys/kernel/random/boot_id"
    own_ids = {ok(own.cli("exec", "parent", "sh", "-c", look))}
    ok(own.cli("freeze", "parent", "warm"))
    for name in ("one", "two"):
        made = clone_out_of_spare(own, "warm", name=name, args=["a", name], resources={"pids": 70})
        script = "hostname; cat /sys/doppel/args /sys/doppel/clone_index /tmp/x /f; echo after | tee /f > /tmp/x"
        assert ok(own.cli("exec", name, "sh", "-c", script)).split() == [name, "a", name, "1", "before", "before"]
        own_ids.add(ok(own.cli("exec", name, "sh", "-c", look)))
        assert own.get(f"/v1/domains/{name}").ok()["config"]["resources"]["pids"] == 70
        assert made["cloned_from"] == "warm"
    assert len(own_ids) == 3, own_ids
    assert ok(own.cli("exec", "parent", "cat", "/tmp/x", "/f")) == "before\nbefore\n"
    if kept:
        ok(own.cli("exec", "one", "sh", "-c", "head -c 20000000 /dev/zero | cmp - /big; sync"))
        ok(own.cli("stop", "-t", "0", "one"))
        assert "/f" in ok(own.cli("diff", "one")), "it has a layer of its own"
    # It outlives the keeper like any other.
    pid = own.get("/v1/domains/two").ok()["pid"]
    os.kill(own.keeper_of(own.get("/v1/domains/two").ok()["id"]), signal.SIGKILL)
    assert ok(own.cli("exec", "two", "cat", "/f")) == "after\n"
    assert own.get("/v1/domains/two").ok()["pid"] == pid
    ok(own.cli("rm", "-f", "parent", "one", "two"))
    # What is ready of an image does not keep it, nor does it come back of another that is called so.
    ok(own.cli("frozen", "rm", "warm"))
    asked["command"] = ["sh", "-c", "echo other > /f; sleep 1000"]
    own.post("/v1/domains?start=true", asked).ok(201)
    ok(own.cli("exec", "parent", "sh", "-c", "until [ -s /f ]; do sleep 0.01; done"))
    ok(own.cli("freeze", "parent", "warm"))
    made = own.post("/v1/frozen/warm/clone", {}).ok(201)["results"][0]["domain"]
    assert ok(own.cli("exec", made["id"], "cat", "/f")) == "other\n"
    clone_out_of_spare(own, "warm", name="last")
    ok(own.cli("rm", "-f", "parent", "last", made["id"]))
    assert parent["id"] != made["id"]
    own.post("/v1/frozen/prune", {}).ok()
    assert [f["name"] for f in own.get("/v1/frozen").ok()] == []
    leftovers.none_of(own)
