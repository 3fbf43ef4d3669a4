"""Programs in a running sandbox."""

from __future__ import annotations

import builtins
import time
import uuid
from collections.abc import Mapping
from typing import Any, Literal, overload

from .._output import Output
from .._wire import Command, argv, present, segment, strings
from ..errors import (
    CommandExit,
    CommandTimeout,
    DoppelTimeout,
    NotFound,
    SupervisorUnreachable,
    WrongState,
)
from ..models import CommandResult, ProcessInfo, decode
from .client import AsyncClient
from .tasks import AsyncTask, Callback, call

#: Exit code of a program that SIGKILL ended.
KILLED = 137
#: Bytes of standard input in one request.
INPUT = 64 * 1024
#: Seconds that the supervisor has for ending a program whose time is over, before it is waited for no longer.
GRACE = 1.0


class AsyncCommandHandle:
    """A program that runs in the background. What it prints is read all the while."""

    def __init__(
        self,
        client: AsyncClient,
        started: dict[str, Any],
        output: Output,
        on_stdout: Callback[Any] | None = None,
        on_stderr: Callback[Any] | None = None,
    ) -> None:
        self._client = client
        self._path = f"/v1/execs/{segment(started['id'])}"
        self._output = output
        self._callbacks = {"stdout": on_stdout, "stderr": on_stderr}
        self._began = time.monotonic()
        self._reader: AsyncTask[None] | None = None
        self._input_error: Exception | None = None
        self._overdue = False
        #: Id by which `Commands.connect` finds it again.
        self.id: str = started["id"]
        #: Process id inside the sandbox.
        self.pid: int = started["pid"]
        #: Command and arguments.
        self.command: list[str] = started["config"]["command"]
        self._timeout: float | None = started["config"].get("timeout_seconds")

    @property
    def stdout(self) -> str:
        """What it has printed so far."""
        return self._output.result().stdout

    @property
    def stderr(self) -> str:
        """What it has printed as errors so far."""
        return self._output.result().stderr

    @property
    def running(self) -> bool:
        """Whether its end has not been seen yet."""
        return not self._output.ended

    async def wait(self, timeout: float | None = None, *, check: bool = True) -> CommandResult:
        """Waits for its end. After `timeout` seconds `DoppelTimeout` is raised and the program goes on.

        With `check` an exit code other than 0 raises `CommandExit`.
        """
        if self._reader is None:
            self.watch()
        assert self._reader is not None
        try:
            await self._reader.join(timeout)
        except TimeoutError as error:
            raise DoppelTimeout(f"{self.command[-1]!r} still runs after {timeout} s") from error
        return self.outcome(check)

    async def kill(self, signal: str | int = "SIGKILL") -> bool:
        """Sends it a signal. `False` if it has ended already."""
        name = signal if isinstance(signal, str) else str(int(signal))
        try:
            await self._client.request("POST", f"{self._path}/kill", json={"signal": name})
        except (NotFound, WrongState):
            return False
        return True

    async def send_stdin(self, data: str | bytes) -> None:
        """Gives it input; it must have been started with `stdin=True`."""
        data = data.encode() if isinstance(data, str) else data
        for start in range(0, len(data), INPUT):
            await self._client.request("POST", f"{self._path}/input", body=data[start : start + INPUT])

    async def close_stdin(self) -> None:
        """Ends its input."""
        await self._client.request("POST", f"{self._path}/input", params={"close": True}, body=b"")

    def watch(self) -> None:
        """Begins to read its output."""
        self._reader = AsyncTask(self.read)

    async def read(self) -> None:
        """Reads its output to its end, or until its time is over whatever the supervisor does."""
        left = None
        if self._timeout is not None:
            left = max(0.001, self._began + self._timeout + GRACE - time.monotonic())
        try:
            async with self._client.lines(f"{self._path}/output", timeout=left) as lines:
                async for line in lines:
                    for stream, piece in self._output.feed(line):
                        await call(self._callbacks[stream], piece)
        except DoppelTimeout:
            self._overdue = True
            return
        if not self._output.ended:
            raise SupervisorUnreachable(f"the output of {self.command[-1]!r} broke off")

    async def feed(self, data: bytes) -> None:
        """Gives it all its input; a program that ends before it has read that is not at fault."""
        try:
            await self.send_stdin(data)
            await self.close_stdin()
        except (NotFound, WrongState):
            pass
        except Exception as error:  # it would wait for its input for ever
            self._input_error = error
            await self.kill()

    def outcome(self, check: bool) -> CommandResult:
        """The result of a program that has ended."""
        if self._input_error is not None:
            raise self._input_error
        result = self._output.result()
        if self._overdue:
            raise CommandTimeout(f"{self.command[-1]!r} has not ended after {self._timeout} s", result)
        killed = result.reason is not None or result.exit_code == KILLED
        # Its time began after ours, so that one that is killed sooner was not killed for that.
        if killed and self._timeout is not None and time.monotonic() - self._began >= self._timeout:
            raise CommandTimeout(f"{self.command[-1]!r} was killed after {self._timeout} s", result)
        if check and result.exit_code != 0:
            raise CommandExit(self.command, result)
        return result


class AsyncCommands:
    """The programs of one sandbox."""

    def __init__(self, client: AsyncClient, domain: str) -> None:
        self._client = client
        self._domain = domain

    @overload
    async def run(
        self,
        command: Command,
        *,
        background: Literal[False] = False,
        stdin: str | bytes | None = None,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        check: bool = True,
        on_stdout: Callback[str] | None = None,
        on_stderr: Callback[str] | None = None,
    ) -> CommandResult: ...

    @overload
    async def run(
        self,
        command: Command,
        *,
        background: Literal[True],
        stdin: str | bytes | bool | None = None,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        on_stdout: Callback[str] | None = None,
        on_stderr: Callback[str] | None = None,
    ) -> AsyncCommandHandle: ...

    async def run(
        self,
        command: Command,
        *,
        background: bool = False,
        stdin: str | bytes | bool | None = None,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        check: bool = True,
        on_stdout: Callback[str] | None = None,
        on_stderr: Callback[str] | None = None,
    ) -> CommandResult | AsyncCommandHandle:
        """Runs a program and waits for its end, or with `background` returns at once.

        A list is run as it is; text is run by the sandbox's `/bin/sh -c`. `stdin` is the whole input; in the
        background `True` keeps it open for `send_stdin`. After `timeout` seconds the program is killed and
        `CommandTimeout` raised. `on_stdout` and `on_stderr` get text as it comes. An exit code other than 0
        raises `CommandExit`, unless `check` is off. `timeout` holds also if the supervisor, or the sandbox, does not
        answer.
        """
        if stdin is True and not background:
            raise ValueError("stdin=True is for background=True; give the input itself")
        data = stdin.encode() if isinstance(stdin, str) else stdin if isinstance(stdin, bytes) else None
        wanted = present(
            command=argv(command),
            env=strings(env),
            working_dir=cwd,
            user=user,
            stdin=stdin is True or data is not None,
            timeout_seconds=timeout,
        )
        began = time.monotonic()
        path, key = f"/v1/domains/{self._domain}/exec", uuid.uuid4().hex
        limit = None if timeout is None else timeout + GRACE
        try:
            started = await self._client.request("POST", path, json=wanted, key=key, timeout=limit)
        except DoppelTimeout as error:
            if timeout is None:
                raise
            # The supervisor takes it back, as its client has gone.
            text = f"{argv(command)[-1]!r} did not start within {timeout} s"
            raise CommandTimeout(text, Output().result()) from error
        except Exception:
            raise
        except BaseException:  # interrupted: it may run already, and only the supervisor knows by which id
            started = await self._client.request("POST", path, json=wanted, key=key)
            await AsyncCommandHandle(self._client, started, Output(), None, None).kill()
            raise
        handle = AsyncCommandHandle(self._client, started, Output(), on_stdout, on_stderr)
        handle._began = began
        feeder = AsyncTask(handle.feed, data) if data is not None else None
        if background:
            handle.watch()
            return handle
        try:
            await handle.read()
        except BaseException:  # interrupted, or a callback failed: nobody waits for it any more
            await handle.kill()
            raise
        finally:
            if feeder is not None:
                feeder.abandon()
        return handle.outcome(check)

    async def connect(
        self,
        id: str,
        *,
        on_stdout: Callback[str] | None = None,
        on_stderr: Callback[str] | None = None,
    ) -> AsyncCommandHandle:
        """A program that was started before, by its handle's `id`; its output comes from its start."""
        started = await self._client.request("GET", f"/v1/execs/{segment(id)}")
        handle = AsyncCommandHandle(self._client, started, Output(), on_stdout, on_stderr)
        handle.watch()
        return handle

    async def list(self, *, timeout: float | None = None) -> builtins.list[ProcessInfo]:
        """All processes of the sandbox."""
        path = f"/v1/domains/{self._domain}/top"
        return decode(list[ProcessInfo], await self._client.request("GET", path, timeout=timeout))

    async def kill(self, pid: int, signal: str = "KILL") -> bool:
        """Sends a signal to any process of the sandbox; `False` if there is none of this number."""
        script = ["/bin/sh", "-c", 'kill -s "$0" "$1"', signal.removeprefix("SIG"), str(int(pid))]
        return (await self.run(script, check=False)).exit_code == 0
