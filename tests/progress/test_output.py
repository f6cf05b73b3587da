from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from agentcompass.progress.output import Output


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_text_reaches_any_encoding(encoding: str, tmp_path: Path) -> None:
    """What the console cannot encode is replaced, never an error; line drawing gets plain look-alikes."""
    path = tmp_path / "stderr"
    with path.open("w", encoding=encoding) as stream:
        Output(stream).write("━─ 1 · 2… 任 \ud800\n")
    shown = path.read_text(encoding)
    assert shown == ("━─ 1 · 2… 任 ?\n" if encoding == "utf-8" else "=- 1 - 2~ ? ?\n")


def test_closed_pipe_is_silent() -> None:
    """When the reader has gone, writing goes on as if nothing happened."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        os.close(reader)
        output = Output(stream)
        output.write("one\n")
        output.write("two\n")


def test_closed_stream_is_silent() -> None:
    """The same for a stream that the host has closed, and for a process without one."""
    stream = io.StringIO()
    stream.close()
    for output in (Output(stream), Output(None)):
        output.write("one\n")
        assert not output.isatty()


def test_text_keeps_its_place_among_other_writes(tmp_path: Path) -> None:
    """What the host has buffered before comes out before."""
    path = tmp_path / "stderr"
    with path.open("w") as stream:
        stream.write("before ")
        Output(stream).write("after")
        assert path.read_text() == "before after"


def test_size_is_that_of_the_terminal() -> None:
    """Columns come from the terminal itself; where there is none, 80 x 24 are assumed."""
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stream:
        import termios

        termios.tcsetwinsize(terminal, (33, 101))
        assert Output(stream).size() == (101, 33)
        assert Output(stream).isatty()
    os.close(controller)
    assert Output(io.StringIO()).size() == (80, 24)


_STUCK = """
import sys, anyio
from agentcompass.progress.hub import open_progress

async def main():
    async with open_progress(mode="none", flush_seconds=0.2) as hub:
        for _ in range(9999):
            hub.print_line("x" * 100)
    print("engine done", flush=True)

anyio.run(main)
"""


@pytest.mark.slow
def test_paused_terminal_stalls_neither_run_nor_exit() -> None:
    """With a terminal that takes nothing (Ctrl-S), the run ends in bounded time and so does the process."""
    controller, terminal = pty.openpty()
    process = subprocess.run(
        [sys.executable, "-c", _STUCK], stderr=terminal, stdout=subprocess.PIPE, timeout=15, check=False
    )
    os.close(terminal)
    os.close(controller)
    assert (process.returncode, process.stdout) == (0, b"engine done\n")
