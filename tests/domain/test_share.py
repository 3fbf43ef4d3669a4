"""Page sharing after the checkpoint: clones that build the same structure come to share it."""
import json
import os
import subprocess

import pytest
from conftest import DOPPEL, call, eventually

FROZEN = f"test-share-{os.getpid()}"
N = 4
PROGRAM = r'''
import array, hashlib, os, time
def say(*words): print(*words, flush=True)
say("warm")
open("/sys/power/state", "w").write("freeze\n")
# Pages that differ among each other and are the same in every clone: 20 MiB.
data = array.array("Q", ((i * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF for i in range(20 * 131072)))
own = bytearray(os.urandom(1 << 20))
hot = bytearray(1 << 16)
before = hashlib.sha256(data).hexdigest(), hashlib.sha256(own).hexdigest()
turn = 0
while not os.path.exists("/tmp/end"):
    turn += 1
    for at in range(0, len(hot), 4096):
        hot[at:at + 8] = turn.to_bytes(8, "little")
    time.sleep(0.05)
after = hashlib.sha256(data).hexdigest(), hashlib.sha256(own).hexdigest()
assert before == after, "contents changed"
# Written pages are copies: the others' stay as they were.
clone = int(open("/sys/doppel/clone_index").read())
for at in range(0, len(data), 5120):
    data[at] = clone
assert all(data[at] == clone for at in range(0, len(data), 5120))
for at in range(0, len(data), 5120):
    data[at] = (at * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
assert hashlib.sha256(data).hexdigest() == before[0]
say("right", before[0])
'''


def stats(*names):
    out = subprocess.run([DOPPEL, "stats", "--json", *names], capture_output=True, text=True, timeout=60).stdout
    return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def frozen(domain):
    subprocess.run([DOPPEL, "frozen", "rm", FROZEN], capture_output=True)
    p = domain.start("python3", "-c", PROGRAM, opts=("--freeze-as", FROZEN, "--in-memory"))
    assert p.stdout.readline() == b"warm\n"
    assert eventually(lambda: FROZEN in subprocess.run([DOPPEL, "frozen", "ls"], capture_output=True, text=True).stdout)
    p.kill()
    p.wait()
    yield FROZEN
    subprocess.run([DOPPEL, "frozen", "rm", FROZEN], capture_output=True)


def test_equal_pages_are_shared_and_stay_right(frozen):
    prefix = "sharing-test"
    p = subprocess.Popen(
        [DOPPEL, "clone", "--share", "--json", "-n", str(N), "--name", prefix, frozen],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    names = [f"{prefix}-{i}" for i in range(1, N + 1)]
    duplicates = (N - 1) * 20 << 20
    series, sharing = [], {}

    def shared():
        """Whether most of what could be is shared, and the processes' own memory has fallen."""
        rows = stats(*names)
        if len(rows) == N:
            series.append({
                "private": sum(r["private_bytes"] for r in rows),
                "saved": sum(r["saved_bytes"] for r in rows),
            })
            sharing.update(rows[0]["sharing"] or {})
            return (
                series[-1]["saved"] >= duplicates * 2 / 3
                and series[-1]["private"] <= (N * 20 << 20) - duplicates * 2 / 3
                and sharing.get("hot_pages", 0) > 0
            )
        assert p.poll() is None, p.communicate()

    try:
        assert eventually(shared, 120), (series[-1:], sharing)
        for name in names:
            call([DOPPEL, "exec", name, "touch", "/tmp/end"], b"", 60).ok()
        out, err = p.communicate(timeout=60)
    finally:
        p.kill()
        p.wait()
    assert p.returncode == 0, err
    ends = [json.loads(line) for line in out.splitlines()]
    hashes = {e["stdout"].split()[-1] for e in ends}
    assert len(ends) == N and len(hashes) == 1, ends
    assert sharing["file_bytes"] < 60 << 20, "what only one clone has is not kept"
    levels = sharing["levels"]
    assert [level["key_bits"] for level in levels] == [16, 16, 32]
    assert all(v["collisions"] <= v["matches"] <= v["lookups"] for v in levels)


def test_without_share_nothing_is_shared(domain):
    p = domain.start("sleep", "1000", image="busybox", opts=("--name", f"unshared-{os.getpid()}"))
    try:
        # A process that is just being executed has no memory.
        assert eventually(lambda: (rows := stats(f"unshared-{os.getpid()}")) and rows[0]["private_bytes"])
        rows = stats(f"unshared-{os.getpid()}")
        assert rows[0]["shared_bytes"] == 0 and rows[0]["saved_bytes"] == 0 and rows[0]["sharing"] is None
    finally:
        p.kill()
        p.wait()
