"""
The directories of local sessions: private, removed with their session, found again when their owner died.

Each has a lock file beside it on which its owner holds ``flock``: the kernel drops that lock when the
owner ends in whatever way, so a lock that can be taken marks a directory that nobody needs. Neither a
reused process id nor another container's processes can be mistaken for the owner.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import stat
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from .processes import kill_marked

_LOCK_NAME = re.compile(r"([0-9a-f]{16})\.lock")
_FORCE_REMOVE = 'chmod -R u+rwX -- "$1"; rm -rf -- "$1"'


class SessionDirectory:
    """
    A fresh directory.

    Args:
        base: Where to create it.
        keep: Whether it stays when the session closes; it has no lock then, so nobody ever removes it.
    """

    def __init__(self, base: Path, *, keep: bool) -> None:
        self._lock: int | None = None
        if keep:
            self.path = base / secrets.token_hex(8)
        else:
            self.path, self._lock = _reserve(base)
        try:
            self.path.mkdir(mode=0o700)
        except OSError:
            self._unlock()
            raise

    def remove(self) -> None:
        """Remove the directory unless it is to be kept."""
        if self._lock is not None:
            remove_tree(self.path)
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            _lock_path(self.path).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None


def _reserve(base: Path) -> tuple[Path, int]:
    """Choose a name and take its lock."""
    while True:
        path = base / secrets.token_hex(8)
        lock = _take_lock(_lock_path(path), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        if lock is not None:
            return path, lock


def user_directory(parent: Path | None) -> Path:
    """
    Return this user's directory for sessions, created if need be.

    Args:
        parent: Where it lies; None for the system's directory for temporary files.

    Raises:
        PermissionError: Somebody else can write to it.
    """
    base = Path(parent or tempfile.gettempdir()).resolve()
    base.mkdir(parents=True, exist_ok=True)
    path = base / f"agentcompass-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{path} is not a private directory of this user; remove it")
    return path


def remove_abandoned(base: Path) -> None:
    """Remove the directories, and kill the processes, of sessions whose owners are dead."""
    for entry in base.iterdir():
        match = _LOCK_NAME.fullmatch(entry.name)
        if match is None:
            continue
        lock = _take_lock(entry, os.O_RDWR)
        if lock is None:
            continue
        directory = base / match[1]
        kill_marked(str(directory))
        remove_tree(directory)
        entry.unlink(missing_ok=True)
        os.close(lock)


def _lock_path(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.lock")


def _take_lock(path: Path, flags: int) -> int | None:
    """Open and lock a file; None when another process holds the lock or has removed the file."""
    try:
        lock = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if isinstance(error, BlockingIOError):
            return None
        raise
    if os.fstat(lock).st_nlink == 0:  # removed between the opening and the locking
        os.close(lock)
        return None
    return lock


def remove_tree(path: Path) -> None:
    """Remove a directory whatever the modes in it."""
    with suppress(OSError, RecursionError):
        shutil.rmtree(path)
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(path.lstat().st_mode):  # closed directories, or nested too deeply for Python
            subprocess.run(["/bin/sh", "-c", _FORCE_REMOVE, "sh", path], check=False, capture_output=True)
