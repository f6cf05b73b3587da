"""What every display offers to the hub, and the lines that most of them consist of."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from ..records import ProgressEvent
from .output import Output
from .tally import Tally
from .text import show

Paint = Callable[[], None]

_WAITING_LINES = 10_000


class Display(Protocol):
    """Shows progress. ``note`` and ``frame`` run on the event loop and are quick; paints run in a thread."""

    def note(self, event: ProgressEvent, tally: Tally) -> None:
        """Take in an event; the tally has it already."""
        ...

    def line(self, text: str) -> None:
        """Take in a line of the log; called on any thread."""
        ...

    def frame(self, *, last: bool = False) -> Paint | None:
        """Return what is to be painted now, if anything; after the last one nothing follows."""
        ...


class Lines:
    """Lines on their way to an output."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._waiting: deque[str] = deque(maxlen=_WAITING_LINES)

    def add(self, line: str) -> None:
        """Queue a line; safe on any thread."""
        self._waiting.append(line)

    def paint(self) -> Paint | None:
        """Return what writes the lines that wait."""
        return self._write if self._waiting else None

    def take(self) -> list[str]:
        """Remove and return the lines that wait."""
        return [self._waiting.popleft() for _ in range(len(self._waiting))]

    def _write(self) -> None:
        if lines := self.take():
            self._output.write("\n".join(lines) + "\n")


class QuietDisplay:
    """Shows log lines and nothing else."""

    def __init__(self, output: Output) -> None:
        self._lines = Lines(output)

    def note(self, event: ProgressEvent, tally: Tally) -> None:
        """Do nothing."""

    def line(self, text: str) -> None:
        """Show a line of the log."""
        self._lines.add(show(text))

    def frame(self, *, last: bool = False) -> Paint | None:
        """Return what writes the lines that wait."""
        return self._lines.paint()
