"""Disks: block devices that are kept under names, apart from sandboxes."""

from __future__ import annotations

import builtins
from typing import Any

from .. import _wire
from .._wire import present, segment
from ..models import DiskInfo, decode
from .client import AsyncClient, connection


class AsyncDisk:
    """What can be done with disks; `AsyncSandbox.create(disks=["NAME"])` gives a sandbox one."""

    @staticmethod
    async def create(
        name: str,
        *,
        size: int | str | None = None,
        source: str | None = None,
        snapshot: bool | None = None,
        client: AsyncClient | None = None,
    ) -> DiskInfo:
        """Makes a disk of `size` (`"10g"`), all zero, or one that begins with the bytes of the disk `source`.

        `snapshot`: nothing of it changes, and it is only read (`"NAME:ro"`). A sandbox may be writing to the source: it
        stands still for some milliseconds, and the disk has all that was written by then.
        """
        body: dict[str, Any] = present(
            name=name, size_bytes=_wire.size(size), source=source, snapshot=snapshot
        )
        async with connection(client) as http:
            return decode(DiskInfo, await http.request("POST", "/v1/disks", json=body))

    @staticmethod
    async def list(*, client: AsyncClient | None = None) -> builtins.list[DiskInfo]:
        """All disks."""
        async with connection(client) as http:
            return decode(list[DiskInfo], await http.request("GET", "/v1/disks"))

    @staticmethod
    async def get(name: str, *, client: AsyncClient | None = None) -> DiskInfo:
        """The disk of this name."""
        async with connection(client) as http:
            return decode(DiskInfo, await http.request("GET", f"/v1/disks/{segment(name)}"))

    @staticmethod
    async def resize(name: str, size: int | str, *, client: AsyncClient | None = None) -> DiskInfo:
        """Gives a disk that no running sandbox has another size; what is behind a new end is lost."""
        async with connection(client) as http:
            body = {"size_bytes": _wire.size(size)}
            return decode(DiskInfo, await http.request("PATCH", f"/v1/disks/{segment(name)}", json=body))

    @staticmethod
    async def remove(name: str, *, force: bool = False, client: AsyncClient | None = None) -> None:
        """Removes a disk; refused (`InUse`) while a sandbox runs with it. With `force` it may be missing."""
        async with connection(client) as http:
            await http.request("DELETE", f"/v1/disks/{segment(name)}", params={"force": force})
