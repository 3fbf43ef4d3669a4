"""Instances that work at the same time."""
import copy
import select
import subprocess
import time
from collections.abc import Callable
from typing import Any

from harness.runtimes import OWN, Doppel, Failed


def ahead(instances: int, attempt: int) -> float:
    """A moment by which so many instances have started, if they had not before."""
    return time.time() + (1.5 + instances * 0.05) * 2**attempt


def outputs(runtimes: list[Any], command: Callable[[int], Any], image: str = OWN, timeout: float = 120) -> Any:
    """What the command prints in an instance of each of these, all started at once; `command(i)` if it differs."""
    started = []
    try:
        for i, r in enumerate(runtimes):
            argv = r.argv(*(command(i) if callable(command) else command), image=image)
            started.append((
                r,
                subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                ),
            ))
        return collected(started, time.monotonic() + timeout)
    finally:
        end_all(started)


def collected(started: Any, end: float) -> Any:
    """What these say until they end, all before then."""
    out = []
    for r, p in started:
        said, error = p.communicate(timeout=max(1, end - time.monotonic()))
        if p.returncode:
            raise Failed(f"{r.name}: one of {len(started)} ended with {p.returncode}: {error.strip()[-200:]}")
        out.append(said)
    return out


def end_all(started: Any) -> None:
    """Ends those that have not ended."""
    for r, p in started:
        if p.poll() is None:
            r.clean()
            p.kill()
            p.wait()


def reads(runtime: Any) -> Any:
    """The runtime, whose commands read what is written to them."""
    if not isinstance(runtime, Doppel):
        return runtime
    one = copy.copy(runtime)
    one.options = [*one.options, "--interactive"]
    return one


def when_ready(runtimes: list[Any], command: Any, image: str = OWN, timeout: float = 180) -> Any:
    """As `outputs`, but each says "ready" and waits for a line, which they get when all are: `command(i)`."""
    started, end = [], time.monotonic() + timeout
    try:
        for i, r in enumerate(runtimes):
            argv = reads(r).argv(*command(i), image=image)
            started.append((
                r,
                subprocess.Popen(
                    argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                ),
            ))
        for r, p in started:
            if not select.select([p.stdout], [], [], max(0, end - time.monotonic()))[0]:
                raise Failed(f"{r.name}: not all of {len(started)} are ready after {timeout} s")
            if p.stdout.readline() != "ready\n":
                raise Failed(f"{r.name}: one of {len(started)} was not ready: {p.communicate()[1].strip()[-200:]}")
        for _, p in started:
            p.stdin.write("go\n")
            p.stdin.flush()
        return collected(started, end)
    finally:
        end_all(started)
