"""Callers that do not wait for the end: what they started is ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import h11
import pytest

from doppel import AsyncSandbox, Sandbox
from test_sync import gone, until


async def test_cancelled_command_is_ended(server):
    async with await AsyncSandbox.create("busybox") as sandbox:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sandbox.commands.run(["sleep", "7531"]), 0.3)
        assert await asyncio.to_thread(gone_by_name, sandbox.name, "sleep 7531")


def gone_by_name(name, command):
    with Sandbox.connect(name) as sandbox:
        return gone(sandbox, command)


async def test_cancelled_wait_ends_nothing(server):
    async with await AsyncSandbox.create("busybox") as sandbox:
        handle = await sandbox.commands.run("read x; echo done", background=True, stdin=True)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(handle.wait(), 0.1)
        await handle.send_stdin("go on\n")
        assert (await handle.wait()).stdout == "done\n"


async def test_a_hundred_commands_of_one_sandbox(server):
    async with await AsyncSandbox.create("busybox") as sandbox:
        results = await asyncio.gather(*(sandbox.commands.run(["echo", str(n)]) for n in range(100)))
        assert [r.stdout for r in results] == [f"{n}\n" for n in range(100)]


PROGRAM = """
from doppel import Sandbox
with Sandbox.connect({name!r}) as sandbox:
    print("begin", flush=True)
    sandbox.commands.run(["sleep", "9753"])
"""


def test_ctrl_c_ends_the_command(server):
    with Sandbox.create("busybox") as sandbox:
        program = [sys.executable, "-c", PROGRAM.format(name=sandbox.name)]
        user = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        try:
            assert user.stdout.readline() == b"begin\n"
            until(lambda: any("sleep 9753" in p.command for p in sandbox.commands.list()))
            os.kill(user.pid, signal.SIGINT)
            assert b"KeyboardInterrupt" in user.communicate(timeout=60)[1]
        finally:
            user.kill()
        assert gone(sandbox, "sleep 9753")
        assert sandbox.is_running(), "it was only connected to"


def test_interrupt_between_two_requests_breaks_nothing(server):
    # httpcore marks a connection as idle, then begins h11's next cycle; an interrupt may come between the two.
    with Sandbox.create("busybox") as sandbox:
        sandbox.is_running()
        pool = sandbox.commands._client._http._transport._pool
        assert pool.connections
        for connection in pool.connections:
            ended = h11.Connection(our_role=h11.CLIENT)
            ended.send(h11.Request(method="GET", target="/", headers=[("host", "doppel")]))
            ended.send(h11.EndOfMessage())
            connection._connection._h11_state = ended
        assert sandbox.commands.run(["echo", "on"]).stdout == "on\n"


def test_ctrl_c_before_the_supervisor_has_answered(server, monkeypatch):
    with Sandbox.create("busybox") as sandbox:
        client = sandbox.commands._client
        request, asked = client.request, []

        def interrupted(method, path, **kw):
            answer = request(method, path, **kw)
            if path.endswith("/exec") and not asked:
                asked.append(answer["id"])
                raise KeyboardInterrupt
            return answer

        monkeypatch.setattr(client, "request", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sandbox.commands.run(["sleep", "9754"])
        assert asked and gone(sandbox, "sleep 9754")
        assert sandbox.commands.run(["echo", "on"]).stdout == "on\n"
