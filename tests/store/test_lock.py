from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentcompass.errors import ConfigError, StoreError
from agentcompass.store.lock import lock_run_dir

_HOLD = (
    "import sys; from pathlib import Path; from agentcompass.store.lock import lock_run_dir\n"
    "lock = lock_run_dir(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
)


def test_a_second_holder_in_this_process_is_refused(tmp_path: Path) -> None:
    """The message says which process holds the run, and since when."""
    lock = lock_run_dir(tmp_path)
    with pytest.raises(ConfigError, match=rf"in use by process {os.getpid()} on .* since 20\d\d-"):
        lock_run_dir(tmp_path)
    lock.release()


def test_a_released_run_can_be_held_again(tmp_path: Path) -> None:
    """Nothing has to be removed by hand."""
    lock_run_dir(tmp_path).release()
    lock_run_dir(tmp_path).release()


@pytest.mark.slow
def test_a_killed_holder_frees_the_run(tmp_path: Path) -> None:
    """Another process keeps us out while it lives, and only then."""
    command = [sys.executable, "-c", _HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ConfigError, match=f"process {holder.pid} on"):
            lock_run_dir(tmp_path)
        holder.kill()
        holder.wait()
        lock_run_dir(tmp_path).release()


def test_a_directory_that_is_gone_is_told(tmp_path: Path) -> None:
    """The error names the run directory."""
    with pytest.raises(StoreError, match="missing"):
        lock_run_dir(tmp_path / "missing")
