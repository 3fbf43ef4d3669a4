"""Files of a running sandbox."""

from __future__ import annotations

import builtins
import os
import posixpath
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import IO, Any, Literal, overload

from .._archive import pack, unpack
from .._wire import present
from ..errors import FileNotFound
from ..models import FileChange, FileInfo, decode
from .client import AsyncClient
from .tasks import in_thread

#: Archives up to this many bytes stay in memory.
SPOOL = 4 << 20


class AsyncFiles:
    """The files of one sandbox. Paths are absolute paths inside it.

    With `timeout` a call takes at most so many seconds, whatever sandbox and supervisor do; then it is cancelled, and
    `DoppelTimeout` raised.
    """

    def __init__(self, client: AsyncClient, domain: str) -> None:
        self._client = client
        self._path = f"/v1/domains/{domain}"

    @overload
    async def read(self, path: str, format: Literal["text"] = "text", *, timeout: float | None = None) -> str: ...

    @overload
    async def read(self, path: str, format: Literal["bytes"], *, timeout: float | None = None) -> bytes: ...

    async def read(
        self, path: str, format: Literal["text", "bytes"] = "text", *, timeout: float | None = None
    ) -> str | bytes:
        """The content of a file."""
        content = bytearray()
        async with self.open(path, timeout=timeout) as pieces:
            async for piece in pieces:
                content += piece
        return content.decode() if format == "text" else bytes(content)

    def open(
        self, path: str, *, timeout: float | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The content of a file piece by piece, for files too large for memory."""
        return self._client.stream("GET", f"{self._path}/files", {"path": path}, timeout)

    async def write(
        self,
        path: str,
        data: str | bytes | IO[bytes],
        *,
        mode: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Writes a file, given its content or an open file; missing directories are made."""
        params = present(path=path, mode=None if mode is None else f"{mode:o}")
        body = data.encode() if isinstance(data, str) else data
        await self._client.request(
            "PUT", f"{self._path}/files", params=params, body=body, unlimited=True, timeout=timeout
        )

    async def list(self, path: str, *, timeout: float | None = None) -> builtins.list[FileInfo]:
        """What is in a directory."""
        answer = await self._client.request(
            "GET", f"{self._path}/files/list", params={"path": path}, timeout=timeout
        )
        return decode(list[FileInfo], answer)

    async def info(self, path: str, *, timeout: float | None = None) -> FileInfo:
        """What a file is; of a symbolic link, the link itself."""
        answer = await self._client.request(
            "GET", f"{self._path}/files/info", params={"path": path}, timeout=timeout
        )
        return decode(FileInfo, answer)

    async def exists(self, path: str, *, timeout: float | None = None) -> bool:
        """Whether there is a file of this name."""
        try:
            await self.info(path, timeout=timeout)
        except FileNotFound:
            return False
        return True

    async def remove(self, path: str, *, recursive: bool = False, timeout: float | None = None) -> None:
        """Removes a file, or with `recursive` a directory and all that is in it."""
        params: dict[str, Any] = {"path": path, "recursive": recursive}
        await self._client.request(
            "DELETE", f"{self._path}/files", params=params, unlimited=True, timeout=timeout
        )

    async def mkdir(self, path: str, *, timeout: float | None = None) -> None:
        """Makes a directory and those above it."""
        params = {"path": path}
        await self._client.request("POST", f"{self._path}/files/directory", params=params, timeout=timeout)

    async def rename(self, path: str, to: str, *, timeout: float | None = None) -> None:
        """Gives a file or directory another path; a file that has it is replaced."""
        params = {"path": path, "to": to}
        await self._client.request("POST", f"{self._path}/files/rename", params=params, timeout=timeout)

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator[AsyncIterator[FileChange]]:
        """Changes in a directory, from the moment this is entered."""
        async with self._client.lines(f"{self._path}/files/watch", {"path": path}) as lines:
            yield _changes(lines)

    async def upload_dir(
        self, local: str | os.PathLike[str], path: str, *, timeout: float | None = None
    ) -> None:
        """Copies what is in a directory of this machine into one of the sandbox, which is made if need be."""
        with tempfile.SpooledTemporaryFile(SPOOL) as archive:
            await in_thread(pack, os.fspath(local), archive)
            archive.seek(0)
            began = time.monotonic()
            await self.mkdir(path, timeout=timeout)
            left = None if timeout is None else timeout - (time.monotonic() - began)
            await self._client.request(
                "PUT",
                f"{self._path}/archive",
                params={"path": path},
                body=archive,
                unlimited=True,
                timeout=left,
            )

    async def download_dir(
        self,
        path: str,
        local: str | os.PathLike[str],
        *,
        max_bytes: int = 4 << 30,
        timeout: float | None = None,
    ) -> builtins.list[str]:
        """Copies what is in a directory of the sandbox into one of this machine, which is made if need be.

        Whoever runs in the sandbox decides what comes: nothing is written outside `local`, and no more than
        `max_bytes`. Devices, pipes and symbolic links that lead out are left out; their names are returned.
        """
        with tempfile.SpooledTemporaryFile(SPOOL) as archive:
            size = 0
            async with self._client.stream("GET", f"{self._path}/archive", {"path": path}, timeout) as pieces:
                async for piece in pieces:
                    size += len(piece)
                    if size > max_bytes * 2 + SPOOL:  # names and padding are not content
                        break
                    await in_thread(archive.write, piece)
            archive.seek(0)
            # The archive has the directory's own name before each entry.
            top = posixpath.basename(posixpath.normpath(path))
            return await in_thread(unpack, archive, os.fspath(local), max_bytes, top)


async def _changes(lines: AsyncIterator[Any]) -> AsyncIterator[FileChange]:
    async for line in lines:
        yield decode(FileChange, line)
