"""What `_async/tasks.py` has for asyncio, for threads. Written by hand; its neighbours are generated."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")

#: Called with what comes.
Callback = Callable[[T], None]


class Task(Generic[T]):
    """A function that runs beside its caller."""

    def __init__(self, function: Callable[..., T], *args: Any) -> None:
        self._result: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function, args), name="doppel", daemon=True)
        self._thread.start()

    def _run(self, function: Callable[..., T], args: tuple[Any, ...]) -> None:
        try:
            self._result = function(*args)
        except BaseException as error:  # handed to whoever joins
            self._error = error

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def abandon(self) -> None:
        """Nobody waits for it any more: a thread ends by itself, or with its process."""

    def join(self, timeout: float | None = None) -> T:
        """Its result, or its exception; `TimeoutError` if it takes longer."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return cast(T, self._result)


class Limit:
    """Ends reads inside, by `TimeoutError`, when its time is over; `None`: never.

    A thread cannot be interrupted, but what it waits for can be: the connection of the answer is shut down.
    """

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._left = False
        #: Whether it has ended something.
        self.over = False

    def __enter__(self) -> Limit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # From here on the connection may be another request's.
        with self._lock:
            self._left = True
        if self._timer is not None:
            self._timer.cancel()
        if self.over and isinstance(error, Exception):
            raise TimeoutError from error

    def guard(self, response: Any) -> None:
        """Reads of this answer end then too."""
        if self._end is None:
            return
        connection = response.extensions["network_stream"].get_extra_info("socket")
        self._timer = threading.Timer(max(0.0, self._end - time.monotonic()), self._shut, (connection,))
        self._timer.daemon = True
        self._timer.start()

    def _shut(self, connection: socket.socket) -> None:
        with self._lock:
            if not self._left:
                self.over = True
                with suppress(OSError):  # the other side may have ended it
                    connection.shutdown(socket.SHUT_RDWR)


def call(callback: Callback[T] | None, value: T) -> None:
    """Calls a callback."""
    if callback is not None:
        callback(value)


def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Calls a function that blocks."""
    return function(*args)


def sleep(seconds: float) -> None:
    """Waits."""
    time.sleep(seconds)
