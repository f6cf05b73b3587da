"""
Where the files of a local session are: in a directory of this machine, or below a root of the session's own.

Blocking. Each gives names in open directories for ``tree.py`` to work on.
"""

from __future__ import annotations

import ctypes
import os
import posixpath
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from ..errors import SessionFileNotFoundError, TransferError
from .tree import Place, place_of

_OPENAT2 = 437
"""The number of the system call on every architecture (Linux 5.6)."""
_RESOLVE_IN_ROOT = 0x10
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MAX_LINKS = 40


class Places(Protocol):
    """The files of a session, as its commands see them."""

    def is_gone(self) -> bool:
        """Whether the working directory is not there any more."""
        ...

    def existing(self, path: str) -> AbstractContextManager[Place]:
        """
        Find a file or directory; final links are followed.

        Raises:
            SessionFileNotFoundError: It does not exist.
            TransferError: It is outside the session.
        """
        ...

    def new(self, path: str) -> AbstractContextManager[Place]:
        """
        Find where something is to be put; parents are created.

        Raises:
            TransferError: It is outside the session.
        """
        ...


class DirectoryPlaces:
    """
    Files in the directory of a session.

    Args:
        root: The session's directory, beyond which nothing is reached.
        workdir: Where relative paths begin.
    """

    def __init__(self, root: Path, workdir: str) -> None:
        self._root = root
        self._workdir = Path(workdir)

    def is_gone(self) -> bool:
        """Whether the working directory was removed."""
        return not self._workdir.is_dir()

    @contextmanager
    def existing(self, path: str) -> Iterator[Place]:
        """Find a file or directory."""
        resolved = self._inside(path)
        if not os.path.lexists(resolved):
            raise SessionFileNotFoundError(path)
        with place_of(resolved) as place:
            yield place

    @contextmanager
    def new(self, path: str) -> Iterator[Place]:
        """Find where to put something; a symbolic link inside the session is followed."""
        with place_of(self._inside(path), make_parents=True) as place:
            yield place

    def _inside(self, path: str) -> Path:
        resolved = real_path(self._workdir / path)
        if not resolved.is_relative_to(self._root):
            raise TransferError(path, "outside the session's directory")
        return resolved


def real_path(path: Path) -> Path:
    """Resolve links; unlike ``Path.resolve``, it takes a loop of links without an error."""
    return Path(os.path.realpath(path))


class RootPlaces:
    """
    Files below the root of a session's own, in which links lead where its commands would get by them.

    Args:
        root: The root, an open directory.
        workdir: Where relative paths begin, an absolute path below it.
    """

    def __init__(self, root: int, workdir: str) -> None:
        self._root = root
        self._workdir = workdir

    def make_workdir(self) -> None:
        """Create the working directory unless the root has it."""
        os.close(self._make_directories(self._workdir))

    def close(self) -> None:
        """Close the root."""
        os.close(self._root)

    def is_gone(self) -> bool:
        """Whether the working directory was removed."""
        try:
            os.close(self._open_directory(self._workdir))
        except OSError:
            return True
        return False

    @contextmanager
    def existing(self, path: str) -> Iterator[Place]:
        """Find a file or directory."""
        full = self._absolute(path)
        for _ in range(_MAX_LINKS):
            parent, name = posixpath.split(full)
            try:
                directory = self._open_directory(parent)
            except (FileNotFoundError, NotADirectoryError):
                raise SessionFileNotFoundError(path) from None
            try:
                try:
                    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                except FileNotFoundError:
                    raise SessionFileNotFoundError(path) from None
                if not stat.S_ISLNK(status.st_mode):
                    yield Place(directory, name)
                    return
                full = posixpath.join(parent, os.readlink(name, dir_fd=directory))
            finally:
                os.close(directory)
        raise TransferError(path, "too many levels of links")

    @contextmanager
    def new(self, path: str) -> Iterator[Place]:
        """Find where to put something; a symbolic link is replaced."""
        parent, name = posixpath.split(self._absolute(path))
        directory = self._make_directories(parent)
        try:
            yield Place(directory, name)
        finally:
            os.close(directory)

    def _absolute(self, path: str) -> str:
        full = posixpath.normpath(posixpath.join(self._workdir, path))
        if full == "/":
            raise TransferError(path, "the root itself can be neither read nor replaced")
        return full

    def _make_directories(self, path: str) -> int:
        try:
            return self._open_directory(path)
        except FileNotFoundError:
            parent, name = posixpath.split(path)
            directory = self._make_directories(parent)
            try:
                os.mkdir(name, 0o755, dir_fd=directory)
            except FileExistsError:
                pass  # somebody was faster
            finally:
                os.close(directory)
            return self._open_directory(path)

    def _open_directory(self, path: str) -> int:
        """Open a directory, links taken as if the root were that of this process."""
        how = b"".join(value.to_bytes(8, "little") for value in (_DIRECTORY, 0, _RESOLVE_IN_ROOT))
        encoded = os.fsencode(path) or b"/"
        if b"\0" in encoded:
            raise ValueError("embedded null byte")
        descriptor = _libc().syscall(_OPENAT2, self._root, encoded, how, len(how))
        if descriptor < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
        return int(descriptor)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
