# Made by generate.py of doppel/_async/disk.py: change that.
"""Disks: block devices that are kept under names, apart from sandboxes."""

from __future__ import annotations

import builtins
from typing import Any

from .. import _wire
from .._wire import present, segment
from ..models import DiskInfo, decode
from .client import Client, connection


class Disk:
    """What can be done with disks; `Sandbox.create(disks=["NAME"])` gives a sandbox one."""

    @staticmethod
    def create(
        name: str,
        *,
        size: int | str | None = None,
        source: str | None = None,
        snapshot: bool | None = None,
        client: Client | None = None,
    ) -> DiskInfo:
        """Makes a disk of `size` (`"10g"`), all zero, or one that begins with the bytes of the disk `source`.

        `snapshot`: nothing of it changes, and it is only read (`"NAME:ro"`). A sandbox may be writing to the source: it
        stands still for some milliseconds, and the disk has all that was written by then.
        """
        body: dict[str, Any] = present(
            name=name, size_bytes=_wire.size(size), source=source, snapshot=snapshot
        )
        with connection(client) as http:
            return decode(DiskInfo, http.request("POST", "/v1/disks", json=body))

    @staticmethod
    def list(*, client: Client | None = None) -> builtins.list[DiskInfo]:
        """All disks."""
        with connection(client) as http:
            return decode(list[DiskInfo], http.request("GET", "/v1/disks"))

    @staticmethod
    def get(name: str, *, client: Client | None = None) -> DiskInfo:
        """The disk of this name."""
        with connection(client) as http:
            return decode(DiskInfo, http.request("GET", f"/v1/disks/{segment(name)}"))

    @staticmethod
    def resize(name: str, size: int | str, *, client: Client | None = None) -> DiskInfo:
        """Gives a disk that no running sandbox has another size; what is behind a new end is lost."""
        with connection(client) as http:
            body = {"size_bytes": _wire.size(size)}
            return decode(DiskInfo, http.request("PATCH", f"/v1/disks/{segment(name)}", json=body))

    @staticmethod
    def remove(name: str, *, force: bool = False, client: Client | None = None) -> None:
        """Removes a disk; refused (`InUse`) while a sandbox runs with it. With `force` it may be missing."""
        with connection(client) as http:
            http.request("DELETE", f"/v1/disks/{segment(name)}", params={"force": force})
