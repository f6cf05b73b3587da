"""Trees of files as tar archives, written as streams of bounded memory."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from anyio import CapacityLimiter, to_thread

_CHUNK_BYTES = 1024 * 1024
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
        for path, name, status in _walk(str(self.source), self.name):
            if self._stopped:
                return
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


def _walk(source: str, name: str) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield path, name and status of the source and all below it, each directory before its content."""
    todo = [(source, name)]
    while todo:
        path, inner = todo.pop()
        status = os.lstat(path)
        yield path, inner, status
        if stat.S_ISDIR(status.st_mode):
            entries = sorted(os.listdir(path), reverse=True)  # noqa: PTH208
            todo += [(f"{path}/{entry}", f"{inner}/{entry}") for entry in entries]
