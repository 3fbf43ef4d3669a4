"""Disks of a supervisor's domains: they outlive domains, keepers and services."""
import os
import signal
import subprocess
import sys

import pytest
from conftest import DOPPEL, eventually, ok, refused
from test_kept_volumes import services

# Writes each word to a block of its own, in the same open file, and says what stands there then.
WRITER = r"""
import os, sys
fd, at = os.open("/dev/vda", os.O_RDWR), 0
for line in sys.stdin:
    os.pwrite(fd, line.encode(), at)
    print("wrote", os.pread(fd, len(line), at).decode(), end="", flush=True)
    at += 4096
"""


@pytest.fixture
def own(new_doppeld, busybox):
    own = new_doppeld().start()
    ok(own.cli("disk", "create", "--size", "64m", "db"))
    return own


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_open_disks_go_on(own, kind):
    """A program that has a disk open goes on when the storage service or the keeper dies, and nobody else gets it."""
    opts = ["-i", "--name", "writer", "--kind", kind, "--block-device", "db"]
    argv = [DOPPEL, "run", *opts, "debian", "python3", "-c", WRITER]
    env = {**os.environ, "DOPPEL_HOST": f"unix://{own.socket}", "DOPPEL_STORE": str(own.store)}
    p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, env=env)
    told = []

    def tell(word: str) -> None:
        told.append(word)
        p.stdin.write(f"{word}\n".encode())
        p.stdin.flush()
        assert p.stdout.readline() == f"wrote {word}\n".encode()

    def kill_service() -> None:
        for pid in services(own.keepers()[0]):
            os.kill(pid, signal.SIGKILL)

    def kill_keeper() -> None:
        old = own.keepers()[0]
        os.kill(old, signal.SIGKILL)
        eventually(lambda: (now := own.keepers()) and old not in now, "another keeper")

    tell("first")
    for round in range(2):
        for harm in (kill_service, kill_keeper):
            harm()
            tell(f"{harm.__name__}-{round}")
    for use in ("db", "db:ro"):
        refused(own.cli("run", "--rm", "--block-device", use, "busybox", "true"), "another domain runs with disk")
    refused(own.cli("disk", "flatten", "db"), "in use")
    if kind == "paene":
        refused(own.cli("disk", "snapshot", "db", "snap"), "paene domain: the disk can be copied when")
    p.stdin.close()
    try:
        assert p.wait(timeout=60) == 0
    except subprocess.TimeoutExpired:
        looks = (("debug", "stacks", "writer"), ("ps", "-a"), ("logs", "writer"))
        seen = [own.cli(*look).stdout.decode() for look in looks]
        pytest.fail("\n".join(["it does not end", *seen]))
    p.stdout.close()
    ok(own.cli("disk", "snapshot", "db", "snap"))
    block = 'dd if=/dev/vda bs=4096 skip=$n count=1 2>/dev/null | tr -d "\\0"'
    read = f"n=0; while [ $n -lt 5 ]; do {block}; n=$((n + 1)); done"
    for use in ("db", "snap:ro"):
        run = own.cli("run", "--rm", "--block-device", use, "busybox", "sh", "-c", read)
        assert ok(run).split() == told


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_they_stay_through_restarts(own, kind):
    """Also what nobody has synced when the domain is killed."""
    script = "head -c 4 /dev/vda | tr '\\0' -; echo; echo -n runs > /dev/vda; exec sleep 1000"
    ok(own.cli("run", "-d", "--name", "d", "--kind", kind, "--block-device", "db", "busybox", "sh", "-c", script))
    eventually(lambda: ok(own.cli("logs", "d")) == "----\n", "it has begun")
    ok(own.cli("restart", "-t", "0", "d"))
    eventually(lambda: ok(own.cli("logs", "d")) == "----\nruns\n", "it has begun again")
    config = own.get("/v1/domains/d").ok()["config"]
    assert config["files"]["disks"] == [{"name": "db"}]
    refused(own.cli("disk", "rm", "db"), "in use")
    ok(own.cli("rm", "-f", "d"))
    assert ok(own.cli("disk", "rm", "db")) == "db\n"


def test_what_is_refused(own):
    ok(own.cli("disk", "snapshot", "db", "snap"))
    for opts, why in (
        (("--block-device", "none"), "no disk"),
        (("--block-device", "snap"), "is a snapshot"),
        (("--kind", "paene", "--block-device", "snap"), "is a snapshot"),
    ):
        refused(own.cli("run", "--rm", *opts, "busybox", "true"), why)


def test_the_interface(own):
    made = own.post("/v1/disks", {"name": "one", "size_bytes": 1 << 20}).ok(201)
    assert made == own.get("/v1/disks/one").ok()
    assert (made["size_bytes"], made["snapshot"], made["layers"]) == (1 << 20, False, 1)
    own.post("/v1/disks", {"name": "one", "size_bytes": 1 << 20}).problem(409, "name_in_use")
    assert own.post("/v1/disks", {"name": "two", "source": "one"}).ok(201)["layers"] == 2
    assert own.post("/v1/disks", {"name": "snap", "source": "one", "snapshot": True}).ok(201)["snapshot"]
    assert own.patch("/v1/disks/two", {"size_bytes": 2 << 20}).ok()["size_bytes"] == 2 << 20
    assert [disk["name"] for disk in own.get("/v1/disks").ok()] == ["db", "one", "snap", "two"]
    for body in ({"name": "x1"}, {"name": "x1", "size_bytes": 4097},
                 {"name": "x1", "size_bytes": 4096, "source": "one"},
                 {"name": "x1", "size_bytes": 4096, "snapshot": True}, {"name": "../x", "size_bytes": 4096}):
        own.post("/v1/disks", body).problem(400, "invalid_request")
    own.post("/v1/disks", {"name": "x1", "source": "none"}).problem(404, "disk_not_found")
    own.patch("/v1/disks/snap", {"size_bytes": 4096}).problem(400, "invalid_request")
    ok(own.cli("run", "-d", "--name", "d", "--block-device", "one", "busybox", "sleep", "1000"))
    assert own.get("/v1/disks/one").ok()["in_use"]
    own.delete("/v1/disks/one").problem(409, "in_use")
    ok(own.cli("rm", "-f", "d"))
    for name in ("one", "two", "snap"):
        own.delete(f"/v1/disks/{name}").ok(204)
    own.delete("/v1/disks/one").problem(404, "disk_not_found")
    own.delete("/v1/disks/one?force=true").ok(204)
