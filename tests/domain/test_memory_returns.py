"""Memory of the guest kernel goes back to the host when it is no longer needed."""
import json
import os

import pytest
from conftest import DOPPEL, call, descendants, eventually

# A child does what takes much kernel memory and ends; its parent then waits for a line.
HARD = r"""
import os, signal, socket, subprocess, sys, threading
def hard():
    files = []
    for i in range(1500):
        a, b = socket.socketpair()
        a.send(b"x" * 2000)
        files += [a, b, *os.pipe()]
    end = threading.Event()
    threads = [threading.Thread(target=end.wait) for _ in range(100)]
    for t in threads: t.start()
    for i in range(400): open(f"/tmp/{i}", "w").close()
    for i in range(int(sys.argv[1])): subprocess.run(["/bin/true"], check=True)
    children = [os.fork() or signal.pause() for _ in range(20)]
    print("peak", flush=True)
    sys.stdin.readline()
    for c in children: os.kill(c, 9)
    for c in children: os.waitpid(c, 0)
    end.set()
    for t in threads: t.join()
    for i in range(400): os.unlink(f"/tmp/{i}")
    os._exit(0)
print("start", flush=True)
sys.stdin.readline()
if (pid := os.fork()) == 0: hard()
assert os.waitpid(pid, 0)[1] == 0
print("end", flush=True)
sys.stdin.readline()
"""


def arena_kib(pid):
    """Memory of the arena of the domain whose command has this pid."""
    first = min(descendants(pid))
    return os.stat(f"/proc/{first}/fd/1").st_blocks // 2


@pytest.mark.parametrize("execs", [10, 150], ids=["few processes", "many processes"])
def test_what_was_freed_goes_back(domain, execs):
    p = domain.start(
        "python3", "-c", HARD.replace("sys.argv[1]", str(execs)), opts=["-i", "--name", f"returns-{os.getpid()}"]
    )
    frozen = f"returns-{os.getpid()}"

    def step(expected):
        assert p.stdout.readline().strip().decode() == expected
        return arena_kib(p.pid)

    try:
        start = step("start")
        p.stdin.write(b"go\n")
        p.stdin.flush()
        peak = step("peak")
        assert peak > start + 4096, (start, peak)
        p.stdin.write(b"end\n")
        p.stdin.flush()
        step("end")
        assert eventually(lambda: arena_kib(p.pid) < start + 512), (start, peak, arena_kib(p.pid))
        # A frozen image has no more of it than one that was made before.
        call([DOPPEL, "freeze", "--in-memory", frozen, frozen], b"", 60).ok()
        copied = json.loads(call([DOPPEL, "frozen", "inspect", frozen], b"", 60).ok())["copied_bytes"]
        assert copied < (start + 512) << 10, (start, copied)
    finally:
        p.kill()
        p.wait()
        call([DOPPEL, "frozen", "rm", frozen], b"", 60)
