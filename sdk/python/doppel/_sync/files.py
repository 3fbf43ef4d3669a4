# Made by generate.py of doppel/_async/files.py: change that.
"""Files of a running sandbox."""

from __future__ import annotations

import builtins
import os
import posixpath
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import IO, Any, Literal, overload

from .._archive import pack, unpack
from .._wire import present
from ..errors import FileNotFound
from ..models import FileChange, FileInfo, decode
from .client import Client
from .tasks import in_thread

#: Archives up to this many bytes stay in memory.
SPOOL = 4 << 20


class Files:
    """The files of one sandbox. Paths are absolute paths inside it.

    With `timeout` a call takes at most so many seconds, whatever sandbox and supervisor do; then it is cancelled, and
    `DoppelTimeout` raised.
    """

    def __init__(self, client: Client, domain: str) -> None:
        self._client = client
        self._path = f"/v1/domains/{domain}"

    @overload
    def read(self, path: str, format: Literal["text"] = "text", *, timeout: float | None = None) -> str: ...

    @overload
    def read(self, path: str, format: Literal["bytes"], *, timeout: float | None = None) -> bytes: ...

    def read(
        self, path: str, format: Literal["text", "bytes"] = "text", *, timeout: float | None = None
    ) -> str | bytes:
        """The content of a file."""
        content = bytearray()
        with self.open(path, timeout=timeout) as pieces:
            for piece in pieces:
                content += piece
        return content.decode() if format == "text" else bytes(content)

    def open(
        self, path: str, *, timeout: float | None = None
    ) -> AbstractContextManager[Iterator[bytes]]:
        """The content of a file piece by piece, for files too large for memory."""
        return self._client.stream("GET", f"{self._path}/files", {"path": path}, timeout)

    def write(
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
        self._client.request(
            "PUT", f"{self._path}/files", params=params, body=body, unlimited=True, timeout=timeout
        )

    def list(self, path: str, *, timeout: float | None = None) -> builtins.list[FileInfo]:
        """What is in a directory."""
        answer = self._client.request(
            "GET", f"{self._path}/files/list", params={"path": path}, timeout=timeout
        )
        return decode(list[FileInfo], answer)

    def info(self, path: str, *, timeout: float | None = None) -> FileInfo:
        """What a file is; of a symbolic link, the link itself."""
        answer = self._client.request(
            "GET", f"{self._path}/files/info", params={"path": path}, timeout=timeout
        )
        return decode(FileInfo, answer)

    def exists(self, path: str, *, timeout: float | None = None) -> bool:
        """Whether there is a file of this name."""
        try:
            self.info(path, timeout=timeout)
        except FileNotFound:
            return False
        return True

    def remove(self, path: str, *, recursive: bool = False, timeout: float | None = None) -> None:
        """Removes a file, or with `recursive` a directory and all that is in it."""
        params: dict[str, Any] = {"path": path, "recursive": recursive}
        self._client.request(
            "DELETE", f"{self._path}/files", params=params, unlimited=True, timeout=timeout
        )

    def mkdir(self, path: str, *, timeout: float | None = None) -> None:
        """Makes a directory and those above it."""
        params = {"path": path}
        self._client.request("POST", f"{self._path}/files/directory", params=params, timeout=timeout)

    def rename(self, path: str, to: str, *, timeout: float | None = None) -> None:
        """Gives a file or directory another path; a file that has it is replaced."""
        params = {"path": path, "to": to}
        self._client.request("POST", f"{self._path}/files/rename", params=params, timeout=timeout)

    @contextmanager
    def watch(self, path: str) -> Iterator[Iterator[FileChange]]:
        """Changes in a directory, from the moment this is entered."""
        with self._client.lines(f"{self._path}/files/watch", {"path": path}) as lines:
            yield _changes(lines)

    def upload_dir(
        self, local: str | os.PathLike[str], path: str, *, timeout: float | None = None
    ) -> None:
        """Copies what is in a directory of this machine into one of the sandbox, which is made if need be."""
        with tempfile.SpooledTemporaryFile(SPOOL) as archive:
            in_thread(pack, os.fspath(local), archive)
            archive.seek(0)
            began = time.monotonic()
            self.mkdir(path, timeout=timeout)
            left = None if timeout is None else timeout - (time.monotonic() - began)
            self._client.request(
                "PUT",
                f"{self._path}/archive",
                params={"path": path},
                body=archive,
                unlimited=True,
                timeout=left,
            )

    def download_dir(
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
            with self._client.stream("GET", f"{self._path}/archive", {"path": path}, timeout) as pieces:
                for piece in pieces:
                    size += len(piece)
                    if size > max_bytes * 2 + SPOOL:  # names and padding are not content
                        break
                    in_thread(archive.write, piece)
            archive.seek(0)
            # The archive has the directory's own name before each entry.
            top = posixpath.basename(posixpath.normpath(path))
            return in_thread(unpack, archive, os.fspath(local), max_bytes, top)


def _changes(lines: Iterator[Any]) -> Iterator[FileChange]:
    for line in lines:
        yield decode(FileChange, line)
