"""Copy files into and out of a container through the daemon's archive interface, with bounded memory."""

from __future__ import annotations

import base64
import json
import os
import secrets
import tarfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast
from urllib.parse import quote

import aiohttp
import anyio
from anyio import from_thread, to_thread

from ...errors import TransferError
from ..directories import remove_tree
from ..tree import TreeCopy, place_of
from ..unpacking import Unpacker
from .archive import PackedTree
from .daemon import FAILURES, Daemon
from .finish import finish

_MODE_DIRECTORY, _MODE_LINK = 1 << 31, 1 << 27
_NOT_REGULAR = _MODE_DIRECTORY | _MODE_LINK | 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21 | 1 << 19
"""Bits of Go's ``fs.FileMode``, in which the daemon states the kind of a file: the last five are devices,
pipes, sockets, character devices and what is none of all these."""
_MAX_LINKS = 8


@dataclass(frozen=True, slots=True)
class _Stat:
    size: int
    mode: int
    link_target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """
    The file transfers of one container; paths in it are absolute.

    Args:
        limiter: Limits the threads that pack and unpack.
        uid: Who uploaded files belong to.
    """

    daemon: Daemon
    container_id: str
    limiter: anyio.CapacityLimiter
    max_download_bytes: int
    uid: int = 0
    gid: int = 0

    async def read(self, path: str, *, max_bytes: int) -> bytes:
        """Read a file; see ``Session.read``."""
        async with self._archive(path, follow=True) as (status, response):
            if status.mode & _NOT_REGULAR:
                raise TransferError(path, "not a regular file")
            if status.size > max_bytes:
                raise TransferError(path, f"larger than {max_bytes} bytes")
            content: list[bytes] = []
            await self._unpack(response, lambda stream: content.append(_only_file(stream)))
        return content[0]

    async def download(self, path: str, target: Path) -> None:
        """Copy a file or a tree out of the container; see ``Session.download``."""
        async with self._archive(path, follow=False) as (status, response):
            if status.mode & _NOT_REGULAR & ~_MODE_DIRECTORY:
                raise TransferError(path, "neither a file nor a directory")
            place = await to_thread.run_sync(_new_neighbour, target, limiter=self.limiter)
            reader = Unpacker(target=place, max_bytes=self.max_download_bytes)
            try:
                await self._unpack(response, reader.unpack)
                await to_thread.run_sync(_put_in_place, reader, target, limiter=self.limiter)
            finally:
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(_discard, place)

    async def upload(self, source: Path, path: str) -> None:
        """
        Copy a file or a tree into the container; see ``Session.upload``.

        When it is cancelled the file that is under way is still completed, within a limit of time.
        """
        tree = PackedTree(
            source=source, name=path.lstrip("/"), limiter=self.limiter, uid=self.uid, gid=self.gid
        )
        await finish(lambda: self._put(tree), hurry=tree.stop)

    async def _put(self, tree: PackedTree) -> None:
        try:
            async with self.daemon.request(
                "PUT", self._path, params={"path": "/"}, data=tree, content_type="application/x-tar"
            ) as response:
                await response.read()
        except FAILURES as error:
            raise tree.failure or error from None

    @property
    def _path(self) -> str:
        return f"containers/{self.container_id}/archive"

    @asynccontextmanager
    async def _archive(
        self, path: str, *, follow: bool
    ) -> AsyncIterator[tuple[_Stat, aiohttp.ClientResponse]]:
        """Ask for the archive of a path; what a final link leads to if ``follow``."""
        for _ in range(_MAX_LINKS):
            async with self.daemon.request(
                "GET", self._path, params={"path": quote(_encode(path))}
            ) as response:
                status = _stat(response)
                if not follow or not status.mode & _MODE_LINK:
                    yield status, response
                    return
            path = status.link_target
        raise TransferError(path, "too many levels of links")

    async def _unpack(self, response: aiohttp.ClientResponse, unpack: Callable[[IO[bytes]], None]) -> None:
        stream = cast("IO[bytes]", _BodyReader(response.content))
        await to_thread.run_sync(unpack, stream, limiter=self.limiter)


class _BodyReader:
    """The body of a response as a blocking file for a worker thread."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, less only at the end."""
        pieces, missing = [self._rest], size - len(self._rest)
        while missing > 0 and (piece := from_thread.run(self._content.readany)):
            pieces.append(piece)
            missing -= len(piece)
        data = b"".join(pieces)
        self._rest = data[size:]
        return data[:size]


def _stat(response: aiohttp.ClientResponse) -> _Stat:
    values = json.loads(base64.b64decode(response.headers["X-Docker-Container-Path-Stat"]))
    return _Stat(size=values["size"], mode=values["mode"], link_target=values["linkTarget"])


def _encode(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _only_file(stream: IO[bytes]) -> bytes:
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        info = archive.next()
        content = archive.extractfile(info) if info else None
        return content.read() if content else b""


def _new_neighbour(target: Path) -> Path:
    """Choose a name beside the target, whose parents are created."""
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.with_name(f".{secrets.token_hex(8)}")


def _put_in_place(reader: Unpacker, target: Path) -> None:
    """Move what was unpacked to its place, or merge it into what is there."""
    source = reader.target
    if not os.path.lexists(target) or not (source.is_dir() or target.is_dir()):
        source.replace(target)
        reader.finish_root(target)
    else:
        reader.finish_root(source)
        with place_of(source) as origin, place_of(target) as goal:
            TreeCopy(from_session=True, checkpoint=lambda: None).copy(origin, goal)


def _discard(place: Path) -> None:
    with suppress(FileNotFoundError):
        if place.is_dir():
            remove_tree(place)
        else:
            place.unlink()
