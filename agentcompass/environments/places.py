"""
Where the files of a local session are: in a directory of this machine, or below a root of the session's own.

Blocking. Each gives names in open directories for ``tree.py`` to work on.
"""

from __future__ import annotations

import ctypes
import errno
import os
import posixpath
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Protocol

from ..errors import SessionFileNotFoundError, TransferError
from .tree import Place, place_of

_OPENAT2 = 437
"""The number of the system call on every architecture (Linux 5.6)."""
_RESOLVE = 0x10 | 0x01
"""RESOLVE_IN_ROOT, and RESOLVE_NO_XDEV: not into /proc and /dev, where this process may do more."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
_MAX_LINKS = 40
_MAX_TRIES = 100
"""How often to go on when something was renamed while the kernel followed a path."""


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
        with self._place(resolved, make_parents=False) as place:
            yield place

    @contextmanager
    def new(self, path: str) -> Iterator[Place]:
        """Find where to put something; a symbolic link inside the session is followed."""
        with self._place(self._inside(path), make_parents=True) as place:
            yield place

    @contextmanager
    def _place(self, resolved: Path, *, make_parents: bool) -> Iterator[Place]:
        *parents, name = resolved.relative_to(self._root).parts or (".",)
        with place_of(self._root) as root:
            names = [root.name, *parents]
            directory = open_below(root.directory, names, make_parents=make_parents)
        try:
            yield Place(directory, name)
        finally:
            os.close(directory)

    def _inside(self, path: str) -> Path:
        resolved = real_path(self._workdir / path)
        if not resolved.is_relative_to(self._root):
            raise TransferError(path, "outside the session's directory")
        return resolved


def open_below(directory: int, names: Sequence[str], *, make_parents: bool) -> int:
    """
    Open a directory step by step: what a command turns into a link meanwhile is not followed.

    Raises:
        OSError: One of the names is a link, or no directory.
    """
    current = os.dup(directory)
    for name in names:
        try:
            if make_parents:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=current)
            below = os.open(name, _STEP, dir_fd=current)
        finally:
            os.close(current)
        current = below
    return current


def real_path(path: Path) -> Path:
    """Resolve links; unlike ``Path.resolve``, it takes a loop of links without an error."""
    return Path(os.path.realpath(path))


def source_on_host(source: Path) -> Path:
    """
    Resolve what is to be uploaded.

    Raises:
        TransferError: It does not exist.
    """
    resolved = real_path(source)
    if not os.path.lexists(resolved):
        raise TransferError(str(source), "no such file on this machine")
    return resolved


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
            if name in ("", ".", ".."):  # a link's; as a name in the root, it would lead out of it
                parent, name = full, "."
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
                    self._require_own(path, status)
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

    def _require_own(self, path: str, status: os.stat_result) -> None:
        root = os.fstat(self._root)
        if stat.S_ISDIR(status.st_mode) and status.st_dev != root.st_dev:
            raise TransferError(path, "devices and processes are not files of the session")
        if os.path.samestat(status, root):
            raise TransferError(path, "the root itself can be neither read nor replaced")

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
        how = b"".join(value.to_bytes(8, sys.byteorder) for value in (_DIRECTORY, 0, _RESOLVE))
        encoded = os.fsencode(path) or b"/"
        if b"\0" in encoded:
            raise ValueError("embedded null byte")
        for _ in range(_MAX_TRIES):
            descriptor = _libc().syscall(_OPENAT2, self._root, encoded, how, len(how))
            if descriptor >= 0 or ctypes.get_errno() != errno.EAGAIN:
                break
        if descriptor < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
        return int(descriptor)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
