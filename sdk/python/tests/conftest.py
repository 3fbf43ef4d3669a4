"""A supervisor to test against: the fake, and the real one.

`server` is either; a test that asks for it runs with both. `fake` is the fake alone, for its faults. Both put the
address in `DOPPEL_HOST`, so that tests say nothing of connections, as users do. The real one is `doppeld` over a
directory of its own, by the fixtures of tests/supervisor.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import os
import re
import signal
from pathlib import Path

import pytest

from doppel import Client, CommandNotFound, InvalidRequest, Sandbox, Unsupported

from fake import Fake

# A job in the background of a shell starts with SIGINT ignored, and what it starts inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs/api.md"


def documented():
    """Methods and paths of docs/api.md, each as a regular expression."""
    before = ""
    for methods, paths in re.findall(r"^\| ([A-Z, ]+) (/[^|]*) \|", DOCUMENT.read_text(), re.M):
        for path in paths.split(", "):
            path = path.split("?")[0].strip()
            if not path.startswith(("/v1", "/metrics")):  # `/a/b/pause, /unpause`: as before up to there
                path = before.rsplit("/", path.count("/"))[0] + path
            before = path
            for method in methods.split(", "):
                yield f"{method} " + re.sub(r"\{\w+\}", "[^/]+", path)


@pytest.fixture(scope="session")
def fake_server(tmp_path_factory):
    server = Fake(str(tmp_path_factory.mktemp("fake") / "doppeld.sock"))
    yield server
    server.close()
    known = re.compile("|".join(documented()))
    undocumented = {f"{m} {p}" for m, p in server.supervisor.requests if not known.fullmatch(f"{m} {p}")}
    assert not undocumented, "requests that docs/api.md does not have"
    assert len(server.supervisor.requests) > 0


@pytest.fixture
def fake(fake_server, monkeypatch):
    monkeypatch.setenv("DOPPEL_HOST", fake_server.host)
    monkeypatch.delenv("DOPPEL_TOKEN", raising=False)
    yield fake_server.supervisor
    fake_server.supervisor.drop.clear()
    fake_server.supervisor.delays.clear()


def of_supervisor_tests():
    """The fixtures of tests/supervisor, which start `doppeld`."""
    spec = importlib.util.spec_from_file_location("supervisor_fixtures", ROOT / "tests/supervisor/conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lacks(host):
    """What a guest kernel without commands of its own for files and processes answers, or nothing."""
    with Client(host) as client, Sandbox.create("busybox", client=client) as sandbox:
        try:
            sandbox.files.write("/probe", "")
        except (CommandNotFound, Unsupported):
            return (CommandNotFound, InvalidRequest)
    return ()


@pytest.fixture(scope="session")
def doppeld():
    fixtures = of_supervisor_tests()
    if not os.path.exists(fixtures.DOPPELD):
        pytest.skip(f"no {fixtures.DOPPELD}: make build")
    if os.geteuid() != 0:
        pytest.skip("doppeld runs as root")
    server = fixtures.Doppeld().start()
    server.lacks = lacks(f"unix://{server.socket}")
    yield server
    server.close()


@pytest.fixture
def real(doppeld, monkeypatch):
    monkeypatch.setenv("DOPPEL_HOST", f"unix://{doppeld.socket}")
    monkeypatch.delenv("DOPPEL_TOKEN", raising=False)
    return doppeld


@pytest.fixture(params=["fake", "real"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """What the real supervisor says it cannot do yet is skipped, with what it said."""
    try:
        return (yield)
    except Exception as refused:
        server = item.funcargs.get("server")
        if not isinstance(refused, (Unsupported, *getattr(server, "lacks", ()))) or not hasattr(server, "lacks"):
            raise
        pytest.skip(f"doppeld: {refused}")


def pytest_pyfunc_call(pyfuncitem):
    """Tests written with `async` run in an event loop of their own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {n: pyfuncitem.funcargs[n] for n in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True
