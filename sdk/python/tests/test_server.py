"""The supervisor dies and comes back; many sandboxes at once; what it says of its interface."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

import pytest

import doppel._sync.client
from conftest import of_supervisor_tests
from doppel import AsyncClient, AsyncSandbox, Client, Sandbox, SandboxNotFound, Supervisor, Template


@pytest.fixture
def mortal(doppeld, monkeypatch):
    """A supervisor for one test, which may kill it."""
    server = of_supervisor_tests().Doppeld().start()
    monkeypatch.setenv("DOPPEL_HOST", f"unix://{server.socket}")
    # It takes as long to start as the machine is busy.
    monkeypatch.setattr("doppel._sync.client.PAUSES", (*doppel._sync.client.PAUSES, *[1.0] * 60))
    yield server
    server.close()


def test_sandboxes_outlive_the_supervisor(mortal):
    with Sandbox.create("busybox", name="survivor", labels={"a": "b"}) as sandbox:
        before = sandbox.info()
        mortal.kill()
        mortal.start()
        # The same object, whose connection broke.
        after = sandbox.info()
        assert (after.id, after.state, after.pid, after.started_at) == (
            before.id,
            before.state,
            before.pid,
            before.started_at,
        )
        assert [d.name for d in Sandbox.list(labels={"a": "b"})] == ["survivor"]
    with pytest.raises(SandboxNotFound):
        Sandbox.connect("survivor")


def test_requests_wait_for_a_supervisor_that_starts_again(mortal):
    with Client() as client, Supervisor(client=client) as supervisor:
        assert supervisor.ping()
        mortal.kill()
        again = threading.Timer(0.4, mortal.start)
        again.start()
        with Sandbox.create("busybox", client=client) as sandbox:
            assert sandbox.is_running()
        again.join()


def test_forks_of_a_program_that_died_are_collected(server):
    """Killed, it can clean up nothing itself."""
    program = """
import doppel, os, signal
import doppel._sync.sandbox
doppel._sync.sandbox.LEASE = 1
sandbox = doppel.Sandbox.create("busybox", timeout=1)
forks = sandbox.fork(3)
print(*[f.id for f in forks], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    ids = done.stdout.split()
    assert len(ids) == 3, done.stderr
    end = time.monotonic() + 120
    while True:
        there = [d.id for d in Sandbox.list(all=True) if d.id in ids]
        frozen = [t.name for t in Template.list() if t.name.startswith("fork-")]
        if not there and not frozen:
            break
        assert time.monotonic() < end, (there, frozen)
        time.sleep(0.1)


async def test_forty_sandboxes_at_once(server):
    async with AsyncClient() as client:
        sandboxes = await asyncio.gather(*(AsyncSandbox.create("busybox", client=client) for _ in range(40)))
        assert all(await asyncio.gather(*(s.is_running() for s in sandboxes)))
        assert len({s.id for s in sandboxes}) == len({s.name for s in sandboxes}) == 40
        assert all(await asyncio.gather(*(s.kill() for s in sandboxes)))
        assert not {s.id for s in sandboxes} & {d.id for d in await AsyncSandbox.list(client=client)}
        for sandbox in sandboxes:
            await sandbox.close()


def test_answers_have_what_the_document_says(server):
    """Every dataclass against the OpenAPI document of the server."""
    import dataclasses

    import httpx

    from doppel import models

    with httpx.Client(transport=httpx.HTTPTransport(uds=str(server.socket))) as http:
        schemas = http.get("http://doppel/v1/openapi.json").json()["components"]["schemas"]
    checked = 0
    for name, cls in vars(models).items():
        schema = schemas.get({"ImageInfo": "Image"}.get(name, name))
        if dataclasses.is_dataclass(cls) and schema and "properties" in schema:
            fields = dataclasses.fields(cls)
            required = {f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING}
            assert {f.name for f in fields} == set(schema["properties"]), name
            assert required <= set(schema.get("required", ())) | {"image"}, name
            checked += 1
    assert checked >= 18


def test_the_document_is_openapi(server):
    """By the validator of the OpenAPI 3.1 specification's own schema."""
    from openapi_spec_validator import OpenAPIV31SpecValidator

    document = server.get("/v1/openapi.json").ok()
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


@pytest.mark.parametrize("rounds", [5])
def test_supervisor_killed_during_creation(mortal, rounds):
    """Whatever the moment, a creation that was answered is there, and one that was repeated is there once."""
    for i in range(rounds):
        killer = threading.Timer(0.003 * (i + 1), lambda: (mortal.kill(), mortal.start()))
        killer.start()
        with Sandbox.create("busybox", labels={"round": str(i)}) as sandbox:
            killer.join()
            assert sandbox.id in [d.id for d in Sandbox.list(all=True, labels={"round": str(i)})]
            made = Sandbox.list(all=True, labels={"round": str(i)})
            assert len([d for d in made if d.state == "running"]) == 1
