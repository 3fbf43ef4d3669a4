# Made by generate.py of doppel/_async/pty.py: change that.
"""Terminals in a running sandbox."""

from __future__ import annotations

from collections.abc import Mapping

from .._output import Output
from .._wire import Command, argv, present, strings
from ..models import CommandResult, PtySize
from .client import Client
from .commands import CommandHandle
from .tasks import Callback


class PtyHandle(CommandHandle):
    """A program that runs on a terminal."""

    def send(self, data: str | bytes) -> None:
        """Types something."""
        self.send_stdin(data)

    def resize(self, size: PtySize) -> None:
        """Gives the terminal another size."""
        body = {"rows": size.rows, "columns": size.columns}
        self._client.request("POST", f"{self._path}/resize", json=body)

    def wait(self, timeout: float | None = None, *, check: bool = False) -> CommandResult:
        """Waits for the program's end; its output went to `on_data`."""
        return super().wait(timeout, check=check)


class Pty:
    """The terminals of one sandbox."""

    def __init__(self, client: Client, domain: str) -> None:
        self._client = client
        self._domain = domain

    def create(
        self,
        on_data: Callback[bytes] | None = None,
        size: PtySize | None = None,
        *,
        command: Command = ("/bin/sh",),
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = None,
    ) -> PtyHandle:
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
        started = self._client.request("POST", f"/v1/domains/{self._domain}/exec", json=wanted)
        output = Output(keep=False, raw=True)
        handle = PtyHandle(self._client, started, output, on_data, on_data)
        handle.watch()
        return handle
