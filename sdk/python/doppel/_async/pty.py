"""Terminals in a running sandbox."""

from __future__ import annotations

from collections.abc import Mapping

from .._output import Output
from .._wire import Command, argv, present, strings
from ..models import CommandResult, PtySize
from .client import AsyncClient
from .commands import AsyncCommandHandle
from .tasks import Callback


class AsyncPtyHandle(AsyncCommandHandle):
    """A program that runs on a terminal."""

    async def send(self, data: str | bytes) -> None:
        """Types something."""
        await self.send_stdin(data)

    async def resize(self, size: PtySize) -> None:
        """Gives the terminal another size."""
        body = {"rows": size.rows, "columns": size.columns}
        await self._client.request("POST", f"{self._path}/resize", json=body)

    async def wait(self, timeout: float | None = None, *, check: bool = False) -> CommandResult:
        """Waits for the program's end; its output went to `on_data`."""
        return await super().wait(timeout, check=check)


class AsyncPty:
    """The terminals of one sandbox."""

    def __init__(self, client: AsyncClient, domain: str) -> None:
        self._client = client
        self._domain = domain

    async def create(
        self,
        on_data: Callback[bytes] | None = None,
        size: PtySize | None = None,
        *,
        command: Command = ("/bin/sh",),
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = None,
    ) -> AsyncPtyHandle:
        """Starts a program, a shell unless told otherwise, on a terminal; `on_data` gets what it shows."""
        size = size or PtySize()
        wanted = present(
            command=argv(command),
            env={"TERM": "xterm-256color", **strings(env)},
            working_dir=cwd,
            user=user,
            tty=True,
            terminal={"rows": size.rows, "columns": size.columns},
            stdin=True,
            timeout_seconds=timeout,
        )
        started = await self._client.request("POST", f"/v1/domains/{self._domain}/exec", json=wanted)
        output = Output(keep=False, raw=True)
        handle = AsyncPtyHandle(self._client, started, output, on_data, on_data)
        handle.watch()
        return handle
