"""
Trees of files as tar archives, written and read as streams of bounded size.

Reading trusts nothing in an archive: it comes from a container.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from anyio import CapacityLimiter, to_thread

from ...errors import TransferError
from ..tree import stays_inside

_CHUNK_BYTES = 1024 * 1024
_BUFFER_BYTES = 64 * 1024
"""What ``tarfile`` holds; it copies all of it for each small file."""
_MAX_ENTRIES = 2_000_000
_END = bytes(2 * tarfile.BLOCKSIZE)


@dataclass(slots=True, kw_only=True)
class PackedTree:
    """
    A file or tree of this machine as an archive, as GNU tar writes it: names are bytes.

    Iterating over it asynchronously reads the files in worker threads. Pipes, sockets and devices are
    left out, set-user-id bits are dropped.

    Args:
        name: What the source is called in the archive.
        uid: Who the files belong to in the session.
        limiter: Limits the threads.
        failure: Why a file could not be read, once that has happened.
    """

    source: Path
    name: str
    limiter: CapacityLimiter
    uid: int = 0
    gid: int = 0
    failure: OSError | None = None
    _stopped: bool = False

    def stop(self) -> None:
        """End the archive after the file that is under way."""
        self._stopped = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = self._pieces()
        try:
            while piece := await to_thread.run_sync(next, pieces, b"", limiter=self.limiter):
                yield piece
        except OSError as error:
            self.failure = error  # the HTTP client reports only that the body broke off
            raise

    def _pieces(self) -> Iterator[bytes]:
        """Yield the archive in large pieces."""
        buffer = bytearray()
        for part in self._parts():
            buffer += part
            if len(buffer) >= _CHUNK_BYTES:
                yield bytes(buffer)
                buffer.clear()
        yield bytes(buffer) + _END

    def _parts(self) -> Iterator[bytes]:
        for path, name in _walk(str(self.source), self.name):
            if self._stopped:
                return
            status = os.lstat(path)
            info = self._info(name, status)
            if stat.S_ISREG(status.st_mode):
                yield from _packed_file(path, info)
            elif stat.S_ISLNK(status.st_mode):
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)  # noqa: PTH115
                yield _header(info)
            elif stat.S_ISDIR(status.st_mode):
                info.type = tarfile.DIRTYPE
                yield _header(info)

    def _info(self, name: str, status: os.stat_result) -> tarfile.TarInfo:
        info = tarfile.TarInfo(name)
        info.mode = status.st_mode & 0o777
        info.mtime = int(status.st_mtime)
        info.uid, info.gid = self.uid, self.gid
        return info


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _packed_file(path: str, info: tarfile.TarInfo) -> Iterator[bytes]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        info.size = rest = os.fstat(descriptor).st_size
        yield _header(info)
        while rest:
            chunk = os.read(descriptor, min(rest, _CHUNK_BYTES))
            if not chunk:  # it was cut short meanwhile, but its size is told already
                chunk = bytes(min(rest, _CHUNK_BYTES))
            yield chunk
            rest -= len(chunk)
    finally:
        os.close(descriptor)
    yield bytes(-info.size % tarfile.BLOCKSIZE)


def _walk(source: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield path and name of the source and of everything below it, each directory before its content."""
    todo = [(source, name)]
    while todo:
        path, inner = todo.pop()
        yield path, inner
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            entries = sorted(os.listdir(path), reverse=True)  # noqa: PTH208
            todo += [(f"{path}/{entry}", f"{inner}/{entry}") for entry in entries]


@dataclass(slots=True, kw_only=True)
class ArchiveReader:
    """
    Unpack an archive with one root entry into a new file or directory.

    Links that may lead out of the tree are left out, like pipes, sockets and devices; set-user-id bits
    are dropped. Only names below directories that it has made itself are ever written to.

    Args:
        target: What the root entry becomes; must not exist.
        max_bytes: The most that all files together may have.
    """

    target: Path
    max_bytes: int
    _directories: dict[PurePosixPath, tarfile.TarInfo] = field(default_factory=dict)
    _files: set[PurePosixPath] = field(default_factory=set)
    _bytes: int = 0

    def unpack(self, stream: IO[bytes]) -> None:
        """
        Unpack everything; blocks.

        Raises:
            TransferError: The archive holds too much, or is not what a daemon writes.
            OSError: A file cannot be written.
        """
        try:
            with tarfile.open(
                fileobj=stream, mode="r|", bufsize=_BUFFER_BYTES, encoding="utf-8", errors="surrogateescape"
            ) as archive:
                for number, info in enumerate(archive):
                    if number >= _MAX_ENTRIES:
                        raise TransferError(info.name, f"more than {_MAX_ENTRIES} files")
                    self._entry(archive, info)
                    archive.members.clear()  # type: ignore[attr-defined]  # it keeps all for ever
        except tarfile.TarError as error:
            raise TransferError(str(self.target), f"the daemon sent no valid archive: {error}") from error
        for path in sorted(self._directories, key=lambda path: len(path.parts), reverse=True):
            self._finish_directory(path)

    def finish_root(self, place: Path) -> None:
        """Give the root, wherever it is by now, its mode; that may forbid to move it."""
        if root := self._directories.get(PurePosixPath()):
            place.chmod(root.mode & 0o777)

    def _entry(self, archive: tarfile.TarFile, info: tarfile.TarInfo) -> None:
        parts = PurePosixPath(info.name).parts
        path = PurePosixPath(*parts[1:])
        if ".." in parts or info.name.startswith("/"):
            raise TransferError(info.name, "the daemon sent a name that leads out of the archive")
        if parts[1:] and path.parent not in self._directories:
            return  # below something that was left out
        if info.isdir():
            if path not in self._directories:
                os.mkdir(self._place(path), 0o700)  # noqa: PTH102
            self._directories[path] = info
        elif info.issym():
            if parts[1:] and stays_inside(info.linkname, len(path.parts) - 1):
                os.symlink(info.linkname, self._place(path))  # noqa: PTH211
        elif info.isreg() or info.islnk():
            self._file(archive, info, path)

    def _file(self, archive: tarfile.TarFile, info: tarfile.TarInfo, path: PurePosixPath) -> None:
        if info.islnk():
            original = PurePosixPath(*PurePosixPath(info.linkname).parts[1:])
            if original in self._files:
                os.link(self._place(original), self._place(path))
                self._files.add(path)
            return
        self._bytes += info.size
        if self._bytes > self.max_bytes:
            raise TransferError(info.name, f"more than {self.max_bytes} bytes")
        content = archive.extractfile(info)
        assert content is not None
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(self._place(path), flags, 0o600), "wb") as file:  # noqa: PTH123
            shutil.copyfileobj(content, file, _CHUNK_BYTES)
            file.flush()
            os.fchmod(file.fileno(), info.mode & 0o777)
            os.utime(file.fileno(), (info.mtime, info.mtime))
        self._files.add(path)

    def _finish_directory(self, path: PurePosixPath) -> None:
        info, place = self._directories[path], self._place(path)
        os.utime(place, (info.mtime, info.mtime))
        if path.parts:
            os.chmod(place, info.mode & 0o777)  # noqa: PTH101

    def _place(self, path: PurePosixPath) -> str:
        return f"{self.target}/{path}" if path.parts else str(self.target)
