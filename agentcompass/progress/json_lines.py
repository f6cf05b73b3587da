"""Progress for programs: one JSON line per event, log lines as ``{"type": "log"}``."""

from __future__ import annotations

from functools import partial

from ..logs import json_line
from ..records import ProgressEvent
from .backlog import Backlog
from .display import Lines, Paint
from .output import Output
from .tally import Tally


class JsonDisplay:
    """Write every event as a line; a reader that is too slow loses starts and phase changes first."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._backlog = Backlog()
        self._log = Lines(output)

    def note(self, event: ProgressEvent, tally: Tally) -> None:
        """Queue an event."""
        self._backlog.push(event)

    def line(self, text: str) -> None:
        """Queue a line of the log."""
        self._log.add(text)

    def frame(self, *, last: bool = False) -> Paint | None:
        """Return what writes all that waits."""
        events, lines = self._backlog.take(len(self._backlog)), self._log.take()
        return partial(self._write, events, lines) if events or lines else None

    def _write(self, events: list[ProgressEvent], lines: list[str]) -> None:
        encoded = [json_line({"type": "log", "text": line}) for line in lines]
        encoded += map(json_line, events)
        self._output.write(b"".join(encoded).decode("utf-8"))
