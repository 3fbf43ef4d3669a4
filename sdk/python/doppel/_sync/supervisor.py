# Made by generate.py of doppel/_async/supervisor.py: change that.
"""The supervisor itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any

from .._wire import present
from ..errors import DoppelError
from ..models import Event, FlowList, Info, PruneReport, Version, decode
from .client import Client, connection


class Supervisor:
    """The supervisor: versions, capacity, events."""

    def __init__(self, *, client: Client | None = None) -> None:
        self._client = connection(client)

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self._client.close()

    def ping(self) -> bool:
        """Whether it answers."""
        try:
            self._client.request("GET", "/v1/ping")
        except DoppelError:
            return False
        return True

    def version(self) -> Version:
        """Its versions."""
        return decode(Version, self._client.request("GET", "/v1/version"))

    def info(self) -> Info:
        """Capacity of the host, and what is set aside of it."""
        return decode(Info, self._client.request("GET", "/v1/info"))

    def flows(self, *, limit: int | None = None, after: str | None = None) -> FlowList:
        """Connections and flows of datagrams of all sandboxes, as of one."""
        params = present(limit=limit, after=after)
        return decode(FlowList, self._client.request("GET", "/v1/network/flows", params=params))

    def metrics(self) -> str:
        """Its numbers as Prometheus reads them."""
        answer: bytes = self._client.request("GET", "/metrics")
        return answer.decode()

    @contextmanager
    def events(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        subject: str | None = None,
    ) -> Iterator[Iterator[Event]]:
        """What happens, from the moment this is entered or from `since` on."""
        params = present(since=_time(since), until=_time(until), subject=subject)
        with self._client.lines("/v1/events", params) as lines:
            yield _events(lines)

    def prune(self) -> PruneReport:
        """Removes the sandboxes that have ended."""
        return decode(PruneReport, self._client.request("POST", "/v1/domains/prune", unlimited=True))


def _time(value: datetime | None) -> str | None:
    if value is None:
        return None
    if value.tzinfo is None:
        raise ValueError(f"{value} has no time zone")
    return value.isoformat()


def _events(lines: Iterator[Any]) -> Iterator[Event]:
    for line in lines:
        yield decode(Event, line)
