"""One process at a time per run directory; the lock of a dead one is free by itself."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import time
from pathlib import Path

from ..errors import ConfigError, StoreError
from .layout import LOCK_FILE

_NO_LOCKS_HERE = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
"""Some network file systems; then nothing guards against a second process."""


class RunLock:
    """A held lock; it is free again when released, or when this process dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Let others in."""
        os.close(self._descriptor)


def lock_run_dir(run_dir: Path) -> RunLock:
    """
    Keep everyone else out of a run directory; blocks, but never waits.

    Raises:
        ConfigError: Somebody holds it; says who.
        StoreError: The lock file cannot be made.
    """
    try:
        descriptor = os.open(run_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise _cannot_lock(run_dir, error) from error
    try:
        _lock(descriptor, run_dir)
    except BaseException:
        os.close(descriptor)
        raise
    return RunLock(descriptor)


def _lock(descriptor: int, run_dir: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip() or "another process"
        raise ConfigError(
            f"run {run_dir.name!r} is in use by {holder}; wait for it to end, or stop it"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS_HERE:
            raise _cannot_lock(run_dir, error) from error
    try:
        _sign(descriptor)
    except OSError as error:
        raise _cannot_lock(run_dir, error) from error


def _sign(descriptor: int) -> None:
    """Leave a note for whoever finds the lock taken."""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()} since {since}\n".encode(), 0)


def _cannot_lock(run_dir: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot lock {str(run_dir)!r}: {error.strerror}")
