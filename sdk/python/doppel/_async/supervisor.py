"""The supervisor itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from types import TracebackType
from typing import Any

from .._wire import present
from ..errors import DoppelError
from ..models import Event, FlowList, Info, PruneReport, Version, decode
from .client import AsyncClient, connection


class AsyncSupervisor:
    """The supervisor: versions, capacity, events."""

    def __init__(self, *, client: AsyncClient | None = None) -> None:
        self._client = connection(client)

    async def __aenter__(self) -> AsyncSupervisor:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection."""
        await self._client.close()

    async def ping(self) -> bool:
        """Whether it answers."""
        try:
            await self._client.request("GET", "/v1/ping")
        except DoppelError:
            return False
        return True

    async def version(self) -> Version:
        """Its versions."""
        return decode(Version, await self._client.request("GET", "/v1/version"))

    async def info(self) -> Info:
        """Capacity of the host, and what is set aside of it."""
        return decode(Info, await self._client.request("GET", "/v1/info"))

    async def flows(self, *, limit: int | None = None, after: str | None = None) -> FlowList:
        """Connections and flows of datagrams of all sandboxes, as of one."""
        params = present(limit=limit, after=after)
        return decode(FlowList, await self._client.request("GET", "/v1/network/flows", params=params))

    async def metrics(self) -> str:
        """Its numbers as Prometheus reads them."""
        answer: bytes = await self._client.request("GET", "/metrics")
        return answer.decode()

    @asynccontextmanager
    async def events(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        subject: str | None = None,
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """What happens, from the moment this is entered or from `since` on."""
        params = present(since=_time(since), until=_time(until), subject=subject)
        async with self._client.lines("/v1/events", params) as lines:
            yield _events(lines)

    async def prune(self) -> PruneReport:
        """Removes the sandboxes that have ended."""
        return decode(PruneReport, await self._client.request("POST", "/v1/domains/prune", unlimited=True))


def _time(value: datetime | None) -> str | None:
    if value is None:
        return None
    if value.tzinfo is None:
        raise ValueError(f"{value} has no time zone")
    return value.isoformat()


async def _events(lines: AsyncIterator[Any]) -> AsyncIterator[Event]:
    async for line in lines:
        yield decode(Event, line)
