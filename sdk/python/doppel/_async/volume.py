"""Volumes: directories that are kept under names, apart from sandboxes."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from .. import _wire
from .._wire import present, segment, strings
from ..models import VolumeInfo, VolumePruneReport, decode
from .client import AsyncClient, connection


class AsyncVolume:
    """What can be done with volumes; `AsyncSandbox.create(volumes={"/data": "NAME"})` mounts one."""

    @staticmethod
    async def create(
        name: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        size: int | str | None = None,
        inodes: int | None = None,
        source: str | None = None,
        snapshot: bool | None = None,
        client: AsyncClient | None = None,
    ) -> VolumeInfo:
        """Makes a volume, or finds that of this name; without a name it gets a random one.

        Its files take at most `size` bytes of the host's disk (`"1g"`), and there are at most `inodes`; only para
        sandboxes have it then. With `source` it begins with the files of that volume, which no running sandbox has, and
        has its limits; `snapshot`: it is only read.
        """
        body: dict[str, Any] = present(
            name=name,
            labels=strings(labels),
            size_bytes=_wire.size(size),
            inodes=inodes,
            source=source,
            snapshot=snapshot,
        )
        async with connection(client) as http:
            return decode(VolumeInfo, await http.request("POST", "/v1/volumes", json=body))

    @staticmethod
    async def list(*, client: AsyncClient | None = None) -> builtins.list[VolumeInfo]:
        """All volumes."""
        async with connection(client) as http:
            return decode(list[VolumeInfo], await http.request("GET", "/v1/volumes"))

    @staticmethod
    async def get(name: str, *, client: AsyncClient | None = None) -> VolumeInfo:
        """The volume of this name."""
        async with connection(client) as http:
            return decode(VolumeInfo, await http.request("GET", f"/v1/volumes/{segment(name)}"))

    @staticmethod
    async def remove(name: str, *, force: bool = False, client: AsyncClient | None = None) -> None:
        """Removes a volume with its files; refused (`InUse`) while a sandbox has it. With `force` it may be missing."""
        async with connection(client) as http:
            await http.request("DELETE", f"/v1/volumes/{segment(name)}", params={"force": force})

    @staticmethod
    async def prune(
        *, all: bool = False, label: str | None = None, client: AsyncClient | None = None
    ) -> builtins.list[str]:
        """Removes volumes that no sandbox has: those made without a name, or `all`. Names of those removed."""
        async with connection(client) as http:
            params = present(all=all, label=label)
            answer = await http.request("POST", "/v1/volumes/prune", params=params, unlimited=True)
            return decode(VolumePruneReport, answer).removed
