"""Domains that die while they have no keeper: what they printed last is in their log, and how they ended is known."""
import os
import pathlib
import signal
import struct

import pytest
from conftest import eventually, output_of
from test_keeper_kills import check, follow, own, start, the_keeper  # noqa: F401 (`own` is a fixture)

# Less than a ring holds, so that it all is printed without anybody who takes it.
LAST = "echo ready; read x; n=0; while [ $n -lt 2000 ]; do echo \"out $n\"; echo \"err $n\" >&2; n=$((n + 1)); done; %s"
# Where the console's rings begin in a domain's control area, where they end, and its state (`common/abi/machine`); with
# a network that is in the channel (`common/abi/service`).
RINGS, END, STATE, CHANNEL_STATE, EXITED = 256 * 4096, 257 * 4096 + (4 << 16), 4096 + 12, (12 << 10) + 12, 2

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def control_area(pid, kind):
    return pathlib.Path(f"/proc/{pid}/fd/{0 if kind == 'para' else 9}").open("rb")


def printed_last(pid, kind):
    with control_area(pid, kind) as area:
        area.seek(RINGS)
        data = area.read(END - RINGS)
    return b"out 1999\n" in data and b"err 1999\n" in data


def has_exited(pid, kind, network):
    with pathlib.Path(f"/proc/{pid}/fd/7").open("rb") if network else control_area(pid, kind) as area:
        area.seek(CHANNEL_STATE if network else STATE)
        return struct.unpack("<I", area.read(4))[0] == EXITED


@pytest.mark.parametrize("kind, network", [("para", {}), ("para", {"network": {"kind": "nat"}}), ("paene", {})])
@pytest.mark.parametrize("ends", [False, True])
def test_what_was_printed_last(own, kind, network, ends):
    script = LAST % ("exit 9" if ends else "exec sleep 100000")
    start(own, "b0", script, kind=kind, stdin=True, **network)
    followed = []
    follower = follow(own, "b0", followed)
    eventually(lambda: output_of(followed)[0] == b"ready\n", "it waits")
    pid, keeper = own.get("/v1/domains/b0").ok()["pid"], the_keeper(own)
    own.post("/v1/domains/b0/input", b"go\n").ok()
    os.kill(keeper, signal.SIGSTOP)
    # The keeper may have had time for the beginning of it.
    eventually(lambda: printed_last(pid, kind), "it has printed")
    if ends:
        eventually(lambda: has_exited(pid, kind, network), "it has ended")
    os.kill(pid, signal.SIGKILL)
    dead = pathlib.Path(f"/proc/{pid}/stat")
    eventually(lambda: dead.read_text().rpartition(")")[2].split()[0] == "Z", "it is dead")
    os.kill(keeper, signal.SIGKILL)
    exit = own.post("/v1/domains/b0/wait").ok()["exit"]
    if ends:
        assert (exit["exit_code"], exit.get("reason")) == (9, None), exit
    else:
        assert exit["exit_code"] == 125 and "keeper" in exit["reason"], exit
    follower.join()
    for lines in own.get("/v1/domains/b0/logs").lines, followed:
        out, err, _ = output_of(lines)
        assert (check(out, "out"), check(err, "err")) == (2000, 2000)
    # Nothing of it is held any more.
    files = pathlib.Path(f"/proc/{own.process.pid}/fd").iterdir()
    held = [name for name in map(os.path.realpath, files) if "doppel-control" in name or "doppel-channel" in name]
    assert not held, held
