"""Files of a running sandbox."""

from __future__ import annotations

import builtins
import os
import posixpath
import tempfile
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
    """The files of one sandbox. Paths are absolute paths inside it."""

    def __init__(self, client: AsyncClient, domain: str) -> None:
        self._client = client
        self._path = f"/v1/domains/{domain}"

    @overload
    async def read(self, path: str, format: Literal["text"] = "text") -> str: ...

    @overload
    async def read(self, path: str, format: Literal["bytes"]) -> bytes: ...

    async def read(self, path: str, format: Literal["text", "bytes"] = "text") -> str | bytes:
        """The content of a file."""
        content = bytearray()
        async with self.open(path) as pieces:
            async for piece in pieces:
                content += piece
        return content.decode() if format == "text" else bytes(content)

    def open(self, path: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The content of a file piece by piece, for files too large for memory."""
        return self._client.stream("GET", f"{self._path}/files", {"path": path})

    async def write(self, path: str, data: str | bytes | IO[bytes], *, mode: int | None = None) -> None:
        """Writes a file, given its content or an open file; missing directories are made."""
        params = present(path=path, mode=None if mode is None else f"{mode:o}")
        body = data.encode() if isinstance(data, str) else data
        await self._client.request("PUT", f"{self._path}/files", params=params, body=body, unlimited=True)

    async def list(self, path: str) -> builtins.list[FileInfo]:
        """What is in a directory."""
        answer = await self._client.request("GET", f"{self._path}/files/list", params={"path": path})
        return decode(list[FileInfo], answer)

    async def info(self, path: str) -> FileInfo:
        """What a file is; of a symbolic link, the link itself."""
        return decode(
            FileInfo, await self._client.request("GET", f"{self._path}/files/info", params={"path": path})
        )

    async def exists(self, path: str) -> bool:
        """Whether there is a file of this name."""
        try:
            await self.info(path)
        except FileNotFound:
            return False
        return True

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Removes a file, or with `recursive` a directory and all that is in it."""
        params: dict[str, Any] = {"path": path, "recursive": recursive}
        await self._client.request("DELETE", f"{self._path}/files", params=params, unlimited=True)

    async def mkdir(self, path: str) -> None:
        """Makes a directory and those above it."""
        await self._client.request("POST", f"{self._path}/files/directory", params={"path": path})

    async def rename(self, path: str, to: str) -> None:
        """Gives a file or directory another path; a file that has it is replaced."""
        params = {"path": path, "to": to}
        await self._client.request("POST", f"{self._path}/files/rename", params=params)

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator[AsyncIterator[FileChange]]:
        """Changes in a directory, from the moment this is entered."""
        async with self._client.lines(f"{self._path}/files/watch", {"path": path}) as lines:
            yield _changes(lines)

    async def upload_dir(self, local: str | os.PathLike[str], path: str) -> None:
        """Copies what is in a directory of this machine into one of the sandbox, which is made if need be."""
        with tempfile.SpooledTemporaryFile(SPOOL) as archive:
            await in_thread(pack, os.fspath(local), archive)
            archive.seek(0)
            await self.mkdir(path)
            await self._client.request(
                "PUT", f"{self._path}/archive", params={"path": path}, body=archive, unlimited=True
            )

    async def download_dir(
        self, path: str, local: str | os.PathLike[str], *, max_bytes: int = 4 << 30
    ) -> builtins.list[str]:
        """Copies what is in a directory of the sandbox into one of this machine, which is made if need be.

        Whoever runs in the sandbox decides what comes: nothing is written outside `local`, and no more than
        `max_bytes`. Devices, pipes and symbolic links that lead out are left out; their names are returned.
        """
        with tempfile.SpooledTemporaryFile(SPOOL) as archive:
            size = 0
            async with self._client.stream("GET", f"{self._path}/archive", {"path": path}) as pieces:
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
