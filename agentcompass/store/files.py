"""
How a run directory changes on disk: the few operations that it takes, and whole files put in place by them.

The operations are a value, so that tests and ``agentcompass selftest`` can bring a disk that fails.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from .layout import sync_dirs

# A file that is on disk has its size on disk too, so the cheaper call suffices where it exists.
_sync = getattr(os, "fdatasync", os.fsync)


class Files(Protocol):
    """What the store does to a disk; each operation raises ``OSError`` as its namesake in ``os`` does."""

    def make_dirs(self, path: str) -> None: ...
    def open(self, path: str, flags: int) -> int: ...
    def write(self, descriptor: int, data: bytes | memoryview) -> int: ...
    def sync(self, descriptor: int) -> None: ...
    def truncate(self, descriptor: int, size: int) -> None: ...
    def close(self, descriptor: int) -> None: ...
    def rename(self, source: str, target: str) -> None: ...
    def sync_dir(self, path: str) -> None: ...


class SystemFiles:
    """The machine's own disk."""

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)  # noqa: PTH103 -- half the price of a Path

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags, 0o644)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        _sync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)  # noqa: PTH104 -- a Path costs more than the call

    def sync_dir(self, path: str) -> None:
        sync_dirs(Path(path))


SYSTEM_FILES: Files = SystemFiles()


def write_whole(files: Files, path: str, data: bytes, *, partial: str, durable: bool = False) -> None:
    """
    Write a file under a temporary name and rename it: readers see the old content or the new one.

    Args:
        path: Replaced if it exists.
        partial: The temporary name, on the same file system; a crash leaves at most this file behind.
        durable: Whether the file must survive a power cut once this returns.

    Raises:
        OSError: It could not be written; ``path`` is as it was.
    """
    descriptor = files.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(files, descriptor, data)
        if durable:
            files.sync(descriptor)
    finally:
        files.close(descriptor)
    files.rename(partial, path)
    if durable:
        files.sync_dir(os.path.dirname(path))  # noqa: PTH120 -- a Path costs more than the call


def write_all(files: Files, descriptor: int, data: bytes) -> None:
    """Write all bytes, however many calls it takes."""
    written = files.write(descriptor, data)
    if written < len(data):
        rest = memoryview(data)[written:]
        while rest:
            rest = rest[files.write(descriptor, rest) :]
