"""Programs that tests run in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

PRELUDE = """
import os, sys, time
from pathlib import Path
import anyio
from agentcompass import Outcome, harness, run_evaluation

@harness("hanging")
class Hanging:
    "Answers the first three tasks and hangs in the others; notes every start in a file."
    async def run(self, trial):
        with open("started.txt", "a") as notes:
            notes.write(trial.task.id + "\\n")
        if int(trial.task.id[1:]) >= int(os.environ.get("HANG_FROM", "3")):
            await anyio.sleep_forever()
        return Outcome(answer="ok")

ARGUMENTS = dict(
    benchmark="fake", harness="hanging", benchmark_params={"tasks": 30}, results_dir="results",
    progress="none", run_id="one", task_concurrency=2,
)
"""


def start(folder: Path, code: str, **environment: str) -> subprocess.Popen[str]:
    """Start a script in a folder, the prelude before its code."""
    script = folder / "script.py"
    script.write_text(PRELUDE + textwrap.dedent(code), "utf-8")
    return subprocess.Popen(
        [sys.executable, str(script)],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], *, seconds: float = 15) -> tuple[int, str, str]:
    """Wait for a script and return its exit status and what it wrote."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out, err


def run(folder: Path, code: str, **environment: str) -> str:
    """Run a script that must succeed, and return what it printed."""
    status, out, err = finish(start(folder, code, **environment))
    assert status == 0, err
    return out


def wait_until(condition: Callable[[], bool], *, seconds: float = 10) -> None:
    """Wait for a state of another process."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the state did not come"
        time.sleep(0.01)


def started(folder: Path) -> list[str]:
    """Return the tasks that were started, in order."""
    notes = folder / "started.txt"
    return notes.read_text().split() if notes.exists() else []


def interrupt(process: subprocess.Popen[str], *, number: int = signal.SIGINT) -> None:
    """Send a signal to the script alone."""
    process.send_signal(number)
