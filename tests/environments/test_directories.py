"""Session directories: removed whatever is in them, unless somebody keeps or still uses them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from agentcompass.environments.directories import SessionDirectory, remove_abandoned, user_directory


def test_closed_directories_are_removed(unprivileged_dir: Path) -> None:
    """Modes that shut even their owner out do not keep a directory from being removed."""
    directory = SessionDirectory(unprivileged_dir, keep=False)
    (directory.path / "a" / "b").mkdir(parents=True)
    (directory.path / "a" / "b" / "file").touch()
    (directory.path / "a" / "b").chmod(0)
    (directory.path / "a").chmod(0)
    with pytest.raises(PermissionError):
        (directory.path / "a" / "b").stat()
    directory.remove()
    assert list(unprivileged_dir.iterdir()) == []


@pytest.mark.slow
def test_deeply_nested_directories_are_removed(tmp_path: Path) -> None:
    """Deeper than Python can recurse, and longer than any path can be."""
    directory = SessionDirectory(tmp_path, keep=False)
    here = os.open(directory.path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    directory.remove()
    assert list(tmp_path.iterdir()) == []


def test_directory_in_use_is_not_abandoned(tmp_path: Path) -> None:
    """Neither one with a live owner nor one that is kept; the same one is, once its owner let go."""
    used, kept = SessionDirectory(tmp_path, keep=False), SessionDirectory(tmp_path, keep=True)
    remove_abandoned(tmp_path)
    assert used.path.exists()
    assert kept.path.exists()
    assert used._lock is not None
    os.close(used._lock)  # what the kernel does when a process ends
    remove_abandoned(tmp_path)
    assert list(tmp_path.iterdir()) == [kept.path]


def test_processes_of_an_abandoned_directory_are_killed(tmp_path: Path) -> None:
    """Those that no supervisor could kill, because it had been killed before its engine."""
    directory = SessionDirectory(tmp_path, keep=False)
    with subprocess.Popen(["/bin/sleep", "1000"], env={"TMPDIR": f"{directory.path}/tmp"}) as process:
        try:
            while not psutil.Process(process.pid).environ():
                time.sleep(0.001)  # the kernel shows it a moment after the program has begun
            assert directory._lock is not None
            os.close(directory._lock)
            remove_abandoned(tmp_path)
            assert process.wait(5) == -signal.SIGKILL
        finally:
            process.kill()


def test_user_directory_is_made_once(tmp_path: Path) -> None:
    """It is private, and found again."""
    first = user_directory(tmp_path / "new" / "root")
    assert first == user_directory(tmp_path / "new" / "root")
    assert first.stat().st_mode & 0o777 == 0o700
