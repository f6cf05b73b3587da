"""Unpack tar archives that come from sessions or strangers, as streams: nothing in them is trusted."""

from __future__ import annotations

import os
import shutil
import tarfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from ..errors import TransferError
from .tree import stays_inside

_CHUNK_BYTES = 1024 * 1024
_BUFFER_BYTES = 64 * 1024
"""What ``tarfile`` holds; it copies all of it for each small file."""
_MAX_ENTRIES = 2_000_000


@dataclass(slots=True, kw_only=True)
class Unpacker:
    """
    Unpack an archive into a new file or directory.

    Pipes, sockets and devices are left out, set-user-id bits are dropped. Only names below directories that
    it has made itself are ever written to, never through a link.

    Args:
        target: What the archive becomes; must not exist.
        max_bytes: The most that all files together may have.
        is_root: The archive is a root file system: its entries go below the target, and all links are kept,
            since they will be followed inside that root. Otherwise it has one root entry, which becomes the
            target, and links that may lead out of it are left out.
    """

    target: Path
    max_bytes: int
    is_root: bool = False
    _directories: dict[PurePosixPath, tarfile.TarInfo] = field(default_factory=dict)
    _files: set[PurePosixPath] = field(default_factory=set)
    _bytes: int = 0

    def unpack(self, stream: IO[bytes]) -> None:
        """
        Unpack everything; blocks.

        Raises:
            TransferError: The archive holds too much, is damaged, or has names that lead out of it.
            OSError: A file cannot be written.
        """
        if self.is_root:
            self._make_directories(PurePosixPath())
        try:
            with tarfile.open(
                fileobj=stream,
                mode="r|*" if self.is_root else "r|",
                bufsize=_BUFFER_BYTES,
                encoding="utf-8",
                errors="surrogateescape",
            ) as archive:
                for number, info in enumerate(archive):
                    if number >= _MAX_ENTRIES:
                        raise TransferError(info.name, f"more than {_MAX_ENTRIES} files")
                    self._entry(archive, info)
                    archive.members.clear()  # type: ignore[attr-defined]  # it keeps all for ever
        except tarfile.TarError as error:
            raise TransferError(str(self.target), f"no valid archive: {error}") from error
        for path in sorted(self._directories, key=lambda path: len(path.parts), reverse=True):
            self._finish_directory(path)

    def finish_root(self, place: Path) -> None:
        """Give the root, wherever it is by now, its mode; that may forbid to move it."""
        if root := self._directories.get(PurePosixPath()):
            place.chmod(root.mode & 0o777)

    def _entry(self, archive: tarfile.TarFile, info: tarfile.TarInfo) -> None:
        path = self._path(info.name)
        if ".." in PurePosixPath(info.name).parts or info.name.startswith("/"):
            raise TransferError(info.name, "a name that leads out of the archive")
        if self.is_root:
            self._make_directories(path.parent)
        if path.parts and path.parent not in self._directories:
            return  # below something that is no directory here
        if info.isdir():
            if path not in self._directories:
                os.mkdir(self._place(path), 0o700)  # noqa: PTH102
            self._directories[path] = info
        elif info.issym():
            if self.is_root or (path.parts and stays_inside(info.linkname, len(path.parts) - 1)):
                os.symlink(info.linkname, self._place(path))  # noqa: PTH211
        elif info.isreg() or info.islnk():
            self._file(archive, info, path)

    def _path(self, name: str) -> PurePosixPath:
        parts = PurePosixPath(name).parts
        return PurePosixPath(*(parts if self.is_root else parts[1:]))

    def _make_directories(self, path: PurePosixPath) -> bool:
        """Make directories that the archive has no entries for; False where something else is in the way."""
        if path in self._directories:
            return True
        if path.parts and not self._make_directories(path.parent):
            return False
        if os.path.lexists(self._place(path)):
            return False
        os.mkdir(self._place(path), 0o700)  # noqa: PTH102
        self._directories[path] = _implied_directory()
        return True

    def _file(self, archive: tarfile.TarFile, info: tarfile.TarInfo, path: PurePosixPath) -> None:
        if info.islnk():
            original = self._path(info.linkname)
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


def _implied_directory() -> tarfile.TarInfo:
    info = tarfile.TarInfo()
    info.mode = 0o755
    return info
