"""A supervisor to test against: a real `doppeld` over a directory of its own, by the fixtures of tests/supervisor.

`server` is it; `faulty` is a way to it that loses answers. Both put the address in `DOPPEL_HOST`, so that tests say
nothing of connections, as users do.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from faulty import Faulty

# A job in the background of a shell starts with SIGINT ignored, and what it starts inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[3]


def load(path):
    """A module of another directory's tests, which are no package."""
    spec = importlib.util.spec_from_file_location("of_" + path.replace("/", "_").removesuffix(".py"), ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Sets the tests' own image store.
load("tests/store.py")


def of_supervisor_tests():
    """The fixtures of tests/supervisor, which start `doppeld`."""
    return load("tests/supervisor/conftest.py")


@pytest.fixture(scope="session")
def doppeld():
    fixtures = of_supervisor_tests()
    if not os.path.exists(fixtures.DOPPELD):
        pytest.skip(f"no {fixtures.DOPPELD}: make build")
    if os.geteuid() != 0:
        pytest.skip("doppeld runs as root")
    server = fixtures.Doppeld().start()
    yield server
    server.close()


@pytest.fixture
def server(doppeld, monkeypatch):
    monkeypatch.setenv("DOPPEL_HOST", f"unix://{doppeld.socket}")
    monkeypatch.delenv("DOPPEL_TOKEN", raising=False)
    return doppeld


@pytest.fixture
def faulty(server, monkeypatch, tmp_path):
    way = Faulty(str(tmp_path / "way.sock"), str(server.socket))
    monkeypatch.setenv("DOPPEL_HOST", way.host)
    yield way
    way.close()


@pytest.fixture
def guarded(doppeld, tmp_path):
    """A supervisor that listens on TCP too; its address and a token."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tcp = f"[tcp]\nlisten = '127.0.0.1:{port}'\ntokens = '{tmp_path}/tokens'\n"
    fixtures = of_supervisor_tests()
    server = fixtures.Doppeld(config=tcp)
    add = [fixtures.DOPPELD, "token", "--config", server.config, "add", "test"]
    token = subprocess.run(add, check=True, capture_output=True, text=True).stdout.strip()
    server.start()
    yield f"http://127.0.0.1:{port}", token
    server.close()


@pytest.fixture(scope="session")
def registry(tmp_path_factory):
    """Debian's docker-registry, empty."""
    oci = load("tests/images/oci.py")
    if not os.path.exists("/usr/bin/docker-registry"):
        pytest.skip("no docker-registry: make setup")
    server = oci.Registry(tmp_path_factory.mktemp("registry"))
    yield server.host
    server.stop()


@pytest.fixture
def mute():
    """A registry that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def pytest_pyfunc_call(pyfuncitem):
    """Tests written with `async` run in an event loop of their own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {n: pyfuncitem.funcargs[n] for n in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True
