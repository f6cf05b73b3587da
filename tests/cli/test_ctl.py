"""``agentcompass ctl`` against a program that runs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from .console import ODD_HARNESSES, call, finish, start

pytestmark = pytest.mark.slow


def wait_for_run(folder: Path) -> Path:
    """Return the run directory as soon as somebody answers in it."""
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        for socket in folder.glob("results/*/*/control.sock"):
            if call("ctl", str(socket.parent), "status").exit_code == 0:
                return socket.parent
        time.sleep(0.05)
    raise AssertionError("nobody answers")


def test_running_program_is_looked_into_and_steered(tmp_path: Path) -> None:
    """Status, limits, pause, cancelling: all from another process."""
    process = start("run", "fake", "hang", *ODD_HARNESSES, "--progress", "none", cwd=tmp_path)
    try:
        run_dir = str(wait_for_run(tmp_path))
        text = call("ctl", run_dir, "status").stdout
        assert "task slots" in text
        assert "runs its agent" in text
        assert call("ctl", run_dir, "set", "task_concurrency=2").exit_code == 0
        assert call("ctl", run_dir, "pause").exit_code == 0
        status = json.loads(call("ctl", run_dir, "status", "--json").stdout)
        assert (status["task_concurrency"], status["paused"]) == (2, True)
        wrong = call("ctl", run_dir, "set", "k=2")
        assert (wrong.exit_code, "cannot be set" in wrong.stderr) == (2, True)
        assert call("ctl", run_dir, "cancel-request", "run").exit_code == 0
        code, _, err = finish(process)
    finally:
        process.kill()
    assert code == 5, err
    gone = call("ctl", run_dir, "status")
    assert (gone.exit_code, "nothing runs in" in gone.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["set"], "ctl set: needs NAME=N"),
        (["set", "x"], "needs NAME=N with a whole number, got 'x'"),
        (["pause", "x"], "ctl pause: takes nothing more"),
        (["cancel"], "ctl cancel: needs TASK"),
        (["status"], "nothing runs in"),
    ],
)
def test_wrong_use_is_exit_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    """Each says what is missing."""
    result = call("ctl", str(tmp_path), *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
