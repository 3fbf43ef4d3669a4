"""Instances that work at the same time."""
import subprocess
import time

from harness.runtimes import OWN, Failed


def ahead(instances):
    """A moment by which so many instances have started."""
    return time.time() + 1.5 + instances * 0.05


def outputs(runtimes, command, image=OWN, timeout=120):
    """What the command prints in an instance of each of these, all started at once; `command(i)` if it differs."""
    started = []
    try:
        for i, r in enumerate(runtimes):
            argv = r.argv(*(command(i) if callable(command) else command), image=image)
            started.append((r, subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)))
        out = []
        for r, p in started:
            said, error = p.communicate(timeout=timeout)
            if p.returncode:
                raise Failed(f"{r.name}: {command[0]} ended with {p.returncode}: {error.strip()[-200:]}")
            out.append(said)
        return out
    finally:
        for r, p in started:
            if p.poll() is None:
                r.clean()
                p.kill()
                p.wait()
