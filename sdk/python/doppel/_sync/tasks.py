"""What `_async/tasks.py` has for asyncio, for threads. Written by hand; its neighbours are generated."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
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
