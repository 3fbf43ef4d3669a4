"""Fixtures of the tests of paene domains: `doppel run --kind paene` alone, and through a supervisor."""
import importlib.util
import os
import pathlib
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

HERE = pathlib.Path(__file__).resolve().parent
DOPPEL = os.environ.get("DOPPEL", str(HERE.parent.parent / "target/release/doppel"))


def beside(path: Any) -> Any:
    """A module of another directory of tests."""
    spec = importlib.util.spec_from_file_location(f"beside_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


supervisors = beside(HERE.parent / "supervisor/conftest.py")
Doppeld, of_group = supervisors.Doppeld, supervisors.of_group


def argv(*command: Any, image: str = "busybox", opts: Sequence[str] = ()) -> list[str]:
    return [DOPPEL, "run", "--standalone", "--kind", "paene", *opts, image, "--", *command]


def run(*command: Any, image: str = "busybox", opts: Sequence[str] = (), stdin: Any = None, timeout: float = 60) -> Any:
    """Runs a command in a paene domain of its own."""
    opts = [*opts, *(["-i"] if stdin is not None else [])]
    return subprocess.run(
        argv(*command, image=image, opts=opts), input=stdin or b"", capture_output=True, timeout=timeout
    )


def text(p: Any) -> Any:
    """What it printed, after checking that it succeeded."""
    assert p.returncode == 0, (p.args, p.returncode, p.stdout[-2000:], p.stderr[-2000:])
    return p.stdout.decode()


def eventually(check: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return found


def have_image(name: str) -> bool:
    return subprocess.run([DOPPEL, "image", "inspect", "--quick", name], capture_output=True).returncode == 0


@pytest.fixture(autouse=True, scope="session")
def possible() -> None:
    if not os.path.exists(DOPPEL):
        pytest.skip(f"no {DOPPEL}: make build")
    if os.geteuid() != 0:
        pytest.skip("paene domains need root")
    if not have_image("busybox"):
        pytest.skip("no image busybox: make test-images")


@pytest.fixture
def image() -> Any:
    """Skips unless there is an image of this name."""

    def need(name: str) -> Any:
        if not have_image(name):
            pytest.skip(f"no image {name}: make test-images")
        return name

    return need


@pytest.fixture
def started() -> Iterator[Any]:
    """Starts commands that are ended with the test."""
    all = []

    def start(*command: Any, image: str = "busybox", opts: Sequence[str] = (), **kw: Any) -> Any:
        kw = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kw}
        all.append(subprocess.Popen(argv(*command, image=image, opts=opts), **kw))
        return all[-1]

    yield start
    for p in all:
        p.kill()
        p.wait()
        for stream in (p.stdin, p.stdout, p.stderr):
            if stream:
                stream.close()


@pytest.fixture(scope="module")
def doppeld() -> Iterator[Any]:
    one = Doppeld().start()
    yield one
    one.close()
