"""Put single files in place as a whole: readers see the old content or the new one, never a part."""

from __future__ import annotations

import os
from pathlib import Path

from .layout import sync_dirs


def write_whole(path: str, data: bytes, *, partial: str, durable: bool = False) -> None:
    """
    Write a file under a temporary name and rename it.

    Args:
        path: Replaced if it exists.
        partial: The temporary name, on the same file system; a crash leaves at most this file behind.
        durable: Whether the file must survive a power cut once this returns.

    Raises:
        OSError: It could not be written; ``path`` is as it was.
    """
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        write_all(descriptor, data)
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(partial, path)  # noqa: PTH104 -- a Path costs more than the call
    if durable:
        sync_dirs(Path(path).parent)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes, however many calls it takes."""
    written = os.write(descriptor, data)
    if written < len(data):
        rest = memoryview(data)[written:]
        while rest:
            rest = rest[os.write(descriptor, rest) :]
