"""Trees of files as tar archives, in both directions.

What comes out of a sandbox was written by whoever runs in it: it is unpacked without ever following a link, below
one directory, without devices, set-id bits or owners, and only up to a size. (`tarfile`'s own filters came in
versions that not every Python 3.11 has.)
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tarfile
from pathlib import PurePosixPath
from typing import IO

from .errors import DoppelError


class ArchiveError(DoppelError):
    """An archive is damaged, or would write outside its directory."""


def pack(directory: str, file: IO[bytes]) -> None:
    """Writes what is in a directory, with root as the owner: the users of this machine mean nothing elsewhere."""

    def owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    if not os.path.isdir(directory):
        raise NotADirectoryError(directory)
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(os.listdir(directory)):
            tar.add(os.path.join(directory, name), arcname=name, filter=owned_by_root)


def unpack(file: IO[bytes], directory: str, max_bytes: int, top: str = "") -> list[str]:
    """Unpacks a stranger's archive, or what it has below `top`, below a directory, which is made.

    Devices, pipes and links that lead out of the directory are left out; their names are returned.
    """
    os.makedirs(directory, exist_ok=True)
    left_out = []
    modes: list[tuple[str, int]] = []
    root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                parts = _parts(member.name, top)
                if not parts:
                    continue
                if member.isreg():
                    max_bytes -= member.size
                    if max_bytes < 0:
                        raise ArchiveError("the archive is larger than max_bytes allows")
                with _parent(root, parts) as parent:
                    if not _put(tar, member, root, parent, parts, top):
                        left_out.append("/".join(parts))
                    elif member.isdir():
                        modes.append(("/".join(parts), member.mode & 0o777))
        for path, mode in reversed(modes):  # last, so that a directory without write permission can be filled
            with _parent(root, path.split("/")) as parent, contextlib.suppress(OSError):
                fd = os.open(path.split("/")[-1], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
                try:
                    os.fchmod(fd, mode | stat.S_IRWXU)
                finally:
                    os.close(fd)
    except (tarfile.TarError, EOFError) as error:
        raise ArchiveError(f"the archive is damaged: {error}") from error
    finally:
        os.close(root)
    return left_out


def _parts(name: str, top: str) -> list[str]:
    parts = [p for p in name.split("/") if p not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise ArchiveError(f"the archive has a name that leaves its directory: {name!r}")
    return parts[1:] if parts[:1] == [top] else parts


@contextlib.contextmanager
def _parent(root: int, parts: list[str]):  # type: ignore[no-untyped-def]
    """Opens the directory that holds an entry, making those above it, following no link."""
    fd = os.dup(root)
    try:
        for part in parts[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=fd)
            try:
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            except OSError as error:
                raise ArchiveError(f"{'/'.join(parts)!r} goes through something that is no directory") from error
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def _put(
    tar: tarfile.TarFile, member: tarfile.TarInfo, root: int, parent: int, parts: list[str], top: str
) -> bool:
    """Makes one entry; `False` if it is of a kind that is left out."""
    name = parts[-1]
    if member.isdir():
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=parent)
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise ArchiveError(f"{member.name!r} is there and no directory")
        return True
    if member.issym():
        target = PurePosixPath(member.linkname)
        depth = len(parts) - 1
        if target.is_absolute():
            return False
        for part in target.parts:
            depth += -1 if part == ".." else 1
            if depth < 0:
                return False
        _clear(name, parent)
        os.symlink(member.linkname, name, dir_fd=parent)
        return True
    if member.islnk():
        source = _parts(member.linkname, top)
        if not source:
            raise ArchiveError(f"{member.name!r} is a link to nothing")
        with _parent(root, source) as beside:
            kind = os.stat(source[-1], dir_fd=beside, follow_symlinks=False).st_mode
            if not stat.S_ISREG(kind):
                return False
            _clear(name, parent)
            os.link(source[-1], name, src_dir_fd=beside, dst_dir_fd=parent, follow_symlinks=False)
        return True
    if member.isreg():
        data = tar.extractfile(member)
        assert data is not None
        _clear(name, parent)
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=parent)
        with open(fd, "wb") as out:
            shutil.copyfileobj(data, out, 1 << 20)
            os.fchmod(fd, member.mode & 0o777)
            os.utime(fd, (member.mtime, member.mtime))
        return True
    return False


def _clear(name: str, parent: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)
