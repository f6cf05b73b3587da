"""
Read, write and copy files of a session's directory, byte for byte and never through a symbolic link.

Blocking; what comes in is a name in an open directory, and further names are opened relative to theirs.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ..errors import TransferError

_CHUNK_BYTES = 1024 * 1024
_MAX_DEPTH = 100
"""Each level of a tree costs two open descriptors."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""Not blocking, because it may turn out to be a pipe that nobody writes to."""


class Place(NamedTuple):
    """A name, which need not exist, in an open directory."""

    directory: int
    name: str


@contextmanager
def place_of(path: Path, *, make_parents: bool = False) -> Iterator[Place]:
    """Open the directory of a path of this machine, links in which are resolved already."""
    if make_parents:
        path.parent.mkdir(parents=True, exist_ok=True)
    with _opened(path.parent, _DIRECTORY) as directory:
        yield Place(directory, path.name)


def stays_inside(link: str, depth: int) -> bool:
    """
    Tell whether a symbolic link cannot lead out of the tree that it is in, whatever other links are there.

    Args:
        link: What it holds. Steps upwards are allowed only at its beginning, where no link can precede them.
        depth: How many directories lie between the root of the tree and the link.
    """
    parts = PurePosixPath(link).parts
    ups = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    return not link.startswith("/") and ups <= depth and ".." not in parts[ups:]


def read_file(place: Place, *, max_bytes: int) -> bytes:
    """
    Read a regular file.

    Raises:
        TransferError: It is something else, or too large.
    """
    with _opened(place.name, _FILE, parent=place.directory, unlock=True) as descriptor:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise TransferError(place.name, "not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise TransferError(place.name, f"larger than {max_bytes} bytes")
    return data


def write_file(place: Place, data: bytes, *, mode: int) -> None:
    """Write a file so that nobody ever sees half of it."""
    with (
        _new_file(place.name, place.directory, mode=mode) as descriptor,
        open(descriptor, "wb", closefd=False) as file,
    ):
        file.write(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeCopy:
    """
    Copy a file or a tree with its modes, times, links, holes and empty directories.

    Pipes, sockets and devices are left out, set-user-id bits are dropped, existing directories are
    merged into, other existing files are replaced.

    Args:
        from_session: The source is a session's. Links that may lead out of the copy are left out, and
            files that their mode closes even to their owner are read all the same.
        checkpoint: Called between small steps; may raise to stop.
    """

    from_session: bool
    checkpoint: Callable[[], None]

    def copy(self, source: Place, target: Place) -> None:
        """
        Copy ``source`` to ``target``.

        Raises:
            TransferError: The source is neither file nor directory, or is nested too deeply.
            OSError: Something stands in the way.
        """
        mode = os.stat(source.name, dir_fd=source.directory, follow_symlinks=False).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise TransferError(source.name, "neither a file nor a directory")
        self._entry(source.name, source.directory, target.name, target.directory, depth=-1)

    def _entry(self, name: str, origin: int, new_name: str, goal: int, *, depth: int) -> None:
        """Copy one entry of the directory ``origin`` into the directory ``goal``."""
        self.checkpoint()
        try:
            status = os.stat(name, dir_fd=origin, follow_symlinks=False)
        except FileNotFoundError:
            return  # a live process of the session removed it since it was listed
        if stat.S_ISLNK(status.st_mode):
            link = os.readlink(name, dir_fd=origin)
            if not self.from_session or stays_inside(link, depth):
                with suppress(FileNotFoundError):
                    os.unlink(new_name, dir_fd=goal)
                os.symlink(link, new_name, dir_fd=goal)
        elif stat.S_ISDIR(status.st_mode):
            with _opened(name, _DIRECTORY, parent=origin, unlock=self.from_session) as directory:
                self._directory(directory, status, new_name, goal, depth=depth + 1)
        elif stat.S_ISREG(status.st_mode):
            with _opened(name, _FILE, parent=origin, unlock=self.from_session) as file:
                self._file(file, status, new_name, goal)

    def _directory(
        self, source: int, status: os.stat_result, new_name: str, goal: int, *, depth: int
    ) -> None:
        if depth > _MAX_DEPTH:
            raise TransferError(new_name, f"nested deeper than {_MAX_DEPTH} directories")
        with suppress(FileExistsError):
            os.mkdir(new_name, 0o700, dir_fd=goal)
        with _opened(new_name, _DIRECTORY, parent=goal) as target:
            for name in os.listdir(source):
                self._entry(name, source, name, target, depth=depth)
            os.fchmod(target, status.st_mode & 0o777)
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _file(self, source: int, status: os.stat_result, new_name: str, goal: int) -> None:
        with _new_file(new_name, goal, mode=status.st_mode & 0o777) as target:
            self._content(source, target, status.st_size)
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _content(self, source: int, target: int, size: int) -> None:
        """Copy what is written in a file, leaving holes where it has some."""
        offset = 0
        while (offset := _next_data(source, offset, size)) < size:
            self.checkpoint()
            chunk = os.pread(source, min(_CHUNK_BYTES, _data_end(source, offset, size) - offset), offset)
            if not chunk:
                break  # it was cut short meanwhile
            written = 0
            while written < len(chunk):
                written += os.pwrite(target, chunk[written:], offset + written)
            offset += len(chunk)
        os.truncate(target, size)


def _next_data(descriptor: int, offset: int, size: int) -> int:
    """Return where the next written part begins; ``size`` if there is none."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        return size if error.errno == errno.ENXIO else offset


def _data_end(descriptor: int, offset: int, size: int) -> int:
    try:
        return min(size, os.lseek(descriptor, offset, os.SEEK_HOLE))
    except OSError:
        return size  # this file system does not tell


@contextmanager
def _opened(
    name: str | Path, flags: int, *, parent: int | None = None, unlock: bool = False
) -> Iterator[int]:
    """
    Open a file or directory.

    Args:
        unlock: If its mode does not let its owner in, change the mode until it is closed again.
    """
    mode: int | None = None
    try:
        descriptor = os.open(name, flags, dir_fd=parent)
    except PermissionError:
        if not unlock:
            raise
        mode = stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
        os.chmod(name, mode | 0o500, dir_fd=parent)
        descriptor = os.open(name, flags, dir_fd=parent)
    try:
        yield descriptor
    finally:
        if mode is not None:
            os.fchmod(descriptor, mode)
        os.close(descriptor)


@contextmanager
def _new_file(name: str, directory: int, *, mode: int) -> Iterator[int]:
    """Create a file that appears under its name, replacing what was there, when it is complete."""
    temporary = f".{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
    try:
        yield descriptor
        os.fchmod(descriptor, mode)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:  # cancellation included: nothing may stay behind
        os.unlink(temporary, dir_fd=directory)
        raise
    finally:
        os.close(descriptor)
