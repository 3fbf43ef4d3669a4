"""What the host says of its processes."""
import os
import pathlib
import time

# Longest that a process is taken to be just being executed, in seconds.
PATIENCE = 1


def words(pid: int | str) -> list[bytes]:
    """A process' arguments; none if it is no more. Those of one that is just being executed are waited for."""
    entry = pathlib.Path(f"/proc/{pid}")
    deadline = time.monotonic() + PATIENCE
    try:
        while True:
            text = (entry / "cmdline").read_bytes()
            # 0 while the kernel has not placed them. A domain's processes had theirs placed, and have given them up.
            placed = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[45])
            if text or placed or time.monotonic() > deadline:
                return text.split(b"\0")
            # Only one that has memory will have arguments: no thread of the kernel, nobody who has ended.
            os.readlink(entry / "exe")
            time.sleep(0.001)
    except OSError:
        return []
