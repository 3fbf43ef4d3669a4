"""Input that comes after a while in which the command said nothing to the supervisor."""
import os
import subprocess
import threading
import time
from typing import Any

from conftest import DOPPEL

IDLE = 0.5


def test_input_after_a_while(new_doppeld: Any, busybox: Any) -> None:
    """The supervisor closes connections that say nothing; the command makes another, and loses no lines and no end."""
    own = new_doppeld(config=f"[http]\nhead_seconds = {IDLE}\n").start()
    env = {**os.environ, "DOPPEL_HOST": f"unix://{own.socket}", "DOPPEL_STORE": str(own.store)}
    for argv in (["run", "-i", "--name", "d", "busybox", "cat"], ["exec", "-i", "d", "cat"]):
        if argv[0] == "exec":
            assert own.cli("run", "-d", "--name", "d", "busybox", "sleep", "1000").returncode == 0
        with subprocess.Popen([DOPPEL, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as p:
            assert p.stdin is not None and p.stdout is not None
            late = threading.Timer(60, p.kill)
            late.start()
            for n in range(3):
                p.stdin.write(b"%d\n" % n)
                p.stdin.flush()
                assert p.stdout.readline() == b"%d\n" % n
                time.sleep(3 * IDLE)
            p.stdin.close()
            assert p.wait() == 0
            late.cancel()
        own.cli("rm", "-f", "d")
