"""Progress in plain lines, for output that is not a terminal: few of them, each complete in itself."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..records import Notice, OutageChanged, ProgressEvent, RunFinished, RunStarted, TrialFinished
from . import phrases
from .display import Lines, Paint
from .output import Output
from .tally import Standing, Tally
from .text import show

_PAUSE_SECONDS = 30.0
_LONGEST_PAUSE_SECONDS = 600.0
_NAME_CELLS = 40
_LINE_CELLS = 400


class PlainDisplay:
    """
    Write a line when a request starts, at every 10 %, every 30 s at most, and when it ends.

    While nothing finishes, the lines grow rarer, down to one in 10 minutes.
    """

    def __init__(self, output: Output, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lines = Lines(output)
        self._clock = clock
        self._reports: dict[str, _Report] = {}

    def note(self, event: ProgressEvent, tally: Tally) -> None:
        """Say what is worth a line of its own."""
        match event:
            case RunStarted():
                self._reports[event.request] = _Report(tally, self._clock())
                self._say(event.request, "started", *phrases.start(tally.standing()), show(event.run_dir))
            case TrialFinished():
                self._report(event.request, crossing=True)
            case OutageChanged():
                self._say(event.request, phrases.outage(tally.standing()) or "the outage is over")
            case Notice():
                self._say(event.request, show(event.text, _LINE_CELLS))
            case RunFinished():
                self._reports.pop(event.request, None)
                self._say(event.request, *_ending(tally.standing()))
            case _:
                pass

    def line(self, text: str) -> None:
        """Show a line of the log."""
        self._lines.add(show(text))

    def frame(self, *, last: bool = False) -> Paint | None:
        """Return what writes the lines that wait; report first what has been silent for too long."""
        for request in self._reports:
            self._report(request, crossing=False, last=last)
        return self._lines.paint()

    def _report(self, request: str, *, crossing: bool, last: bool = False) -> None:
        report = self._reports.get(request)
        if report is not None and report.is_due(self._clock(), crossing=crossing, last=last):
            self._say(request, *_middle(report.tally.standing(), with_oldest=not crossing))

    def _say(self, request: str, *words: str) -> None:
        self._lines.add(" · ".join([show(request, _NAME_CELLS), *words]))


class _Report:
    """When the next line about a request is due."""

    def __init__(self, tally: Tally, now: float) -> None:
        self.tally = tally
        self._pause_seconds = _PAUSE_SECONDS
        self._next = now + _PAUSE_SECONDS
        self._done = tally.done

    def is_due(self, now: float, *, crossing: bool, last: bool) -> bool:
        done, total = self.tally.done, max(1, self.tally.attempts)
        crossed = crossing and 10 * done // total > 10 * self._done // total and done < total
        if not (crossed or now >= self._next or last):
            return False
        idle = done == self._done
        self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS) if idle else _PAUSE_SECONDS
        self._next = now + self._pause_seconds
        self._done = done
        return True


def _middle(standing: Standing, *, with_oldest: bool) -> list[str]:
    done = f"{standing.done}/{standing.attempts} ({phrases.percent(standing)}%)"
    words = [
        done,
        phrases.score(standing),
        *phrases.pace(standing),
        *phrases.troubles(standing),
        phrases.running(standing),
        *phrases.consumption(standing),
        phrases.oldest(standing) if with_oldest else "",
        phrases.outage(standing),
    ]
    return [word for word in words if word]


def _ending(standing: Standing) -> list[str]:
    return [*phrases.end(standing), *phrases.consumption(standing), *phrases.troubles(standing)]
