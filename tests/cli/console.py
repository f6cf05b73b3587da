"""Run the command line: inside this process, or as a real program."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner, Result

from agentcompass.cli.main import main

ODD_HARNESSES = ["--plugin", str(Path(__file__).with_name("odd_harnesses.py"))]
"""Only for real programs: a plugin stays registered in the process that loads it."""


def call(*arguments: str, env: Mapping[str, str | None] | None = None) -> Result:
    """Run a command inside this process."""
    return CliRunner().invoke(main, arguments, env=env)


def start(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, stdout: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    """Start the program as a shell would."""
    command = [sys.executable, "-c", "from agentcompass.cli.main import main; main()", *arguments]
    return subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """Wait for the program; return exit code, standard output and standard error."""
    try:
        out, err = process.communicate(timeout=15)
    finally:
        process.kill()
    return process.returncode, (out or b"").decode(), err.decode()
