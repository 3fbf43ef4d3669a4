"""The few things that waiting with asyncio and waiting with threads do differently.

`_sync/tasks.py` has the same names for threads; everything else in `_sync` is generated from `_async`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Called with what comes; may be a coroutine function.
Callback = Callable[[T], Awaitable[None] | None]


class AsyncTask(Generic[T]):
    """A function that runs beside its caller."""

    def __init__(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> None:
        self._task = asyncio.create_task(function(*args))
        # An outcome nobody waits for is no error of the event loop's.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._task.done()

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        self._task.cancel()

    async def join(self, timeout: float | None = None) -> T:
        """Its result, or its exception; `TimeoutError` if it takes longer."""
        done, _ = await asyncio.wait({self._task}, timeout=timeout)
        if not done:
            raise TimeoutError
        return self._task.result()


class AsyncLimit:
    """Ends what is awaited inside, by `TimeoutError`, when its time is over; `None`: never."""

    def __init__(self, seconds: float | None) -> None:
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> AsyncLimit:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._timeout.__aexit__(kind, error, trace)

    @property
    def over(self) -> bool:
        """Whether it has ended something."""
        return self._timeout.expired()

    def guard(self, response: Any) -> None:
        """Reads of this answer end then too. Nothing to do here: whatever is awaited ends."""


async def call(callback: Callback[T] | None, value: T) -> None:
    """Calls a callback."""
    if callback is not None:
        outcome = callback(value)
        if inspect.isawaitable(outcome):
            await outcome


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Calls a function that blocks."""
    return await asyncio.to_thread(function, *args)


async def sleep(seconds: float) -> None:
    """Waits."""
    await asyncio.sleep(seconds)
