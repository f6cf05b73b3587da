"""Progress on a terminal: a few rows per request, redrawn in place; what has ended stays above them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import IO, TYPE_CHECKING, cast

from ..records import Notice, ProgressEvent, RunFinished
from . import phrases
from .display import Lines, Paint
from .output import Output
from .tally import Standing, Tally
from .text import cell_width, show

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

_IDLE_SECONDS = 1.0
_BAR_CELLS = 40
_SHORTEST_BAR_CELLS = 8
_ROWS_PER_REQUEST = 4

terminal_lock = Lock()
"""Held by the display that draws in place: the terminal belongs to the process, and two would tear it."""


@dataclass(slots=True)
class _Frame:
    lines: list[str]
    ended: list[Standing]
    running: list[Standing] = field(default_factory=list)


class LiveDisplay:
    """
    Draw with rich, from the hub's thread only.

    Holds ``terminal_lock``, which the caller has acquired, until the last paint.
    """

    def __init__(self, output: Output, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._canvas = _Canvas(output)
        self._lines = Lines(output)
        self._clock = clock
        self._running: dict[str, Tally] = {}
        self._ended: list[Standing] = []
        self._changed = False
        self._painted = float("-inf")

    def note(self, event: ProgressEvent, tally: Tally) -> None:
        """Remember that something changed."""
        self._changed = True
        match event:
            case RunFinished():
                self._running.pop(event.request, None)
                self._ended.append(tally.standing())
            case Notice():
                self._lines.add(f"{show(event.request, 40)}: {show(event.text, 400)}")
            case _:
                self._running.setdefault(event.request, tally)

    def line(self, text: str) -> None:
        """Show a line of the log above the rows."""
        self._lines.add(show(text))
        self._changed = True

    def frame(self, *, last: bool = False) -> Paint | None:
        """Return what redraws the rows, if they changed or the times they show are old."""
        now = self._clock()
        if not (last or self._changed or now >= self._painted + _IDLE_SECONDS):
            return None
        self._changed, self._painted = False, now
        frame = _Frame(self._lines.take(), self._ended)
        self._ended = []
        standings = [tally.standing() for tally in self._running.values()]
        if last:
            frame.ended += standings
            return partial(self._canvas.finish, frame)
        frame.running = standings
        return partial(self._canvas.draw, frame)


class _Canvas:
    """The part that runs in the thread."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._live: Live | None = None
        self._longest_name = 0

    def draw(self, frame: _Frame) -> None:
        from rich.console import Group

        live = self._started()
        width, height = self._fit(live.console)
        for line in frame.lines:
            live.console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)
        names = self._name_cells([*frame.ended, *frame.running], width)
        for standing in frame.ended:
            live.console.print(*_ended_rows(standing, names, width), sep="\n")
        live.update(Group(*_running_rows(frame.running, names, width, height)), refresh=True)

    def finish(self, frame: _Frame) -> None:
        """Draw for the last time and leave the terminal as it was found."""
        try:
            if self._live is not None or frame.lines or frame.ended:
                self.draw(frame)
                self._started().stop()
        finally:
            terminal_lock.release()

    def _started(self) -> Live:
        if self._live is None:
            self._live = _open_live(self._output)
            self._live.start()
        return self._live

    def _name_cells(self, standings: list[Standing], width: int) -> int:
        """Never shrinks, so that what stays above stays aligned."""
        cells = [cell_width(show(standing.request)) for standing in standings]
        self._longest_name = max([self._longest_name, *cells])
        return min(self._longest_name, max(8, width // 4))

    def _fit(self, console: Console) -> tuple[int, int]:
        from rich.console import ConsoleDimensions

        width, height = self._output.size()
        console.size = ConsoleDimensions(width, height)
        return max(1, width - 1), height


def _open_live(output: Output) -> Live:
    from rich.console import Console
    from rich.live import Live

    console = Console(
        file=cast("IO[str]", output), force_terminal=True, force_interactive=True, force_jupyter=False
    )
    # No refresh thread, and the host's stdout and stderr are left alone.
    return Live(
        console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
    )


def _running_rows(standings: list[Standing], names: int, width: int, height: int) -> Iterator[Text]:
    fitting = max(1, (height - 2) // _ROWS_PER_REQUEST)
    for standing in standings[:fitting]:
        yield _bar_row(standing, names, width)
        yield _detail_row([phrases.score(standing), *phrases.troubles(standing)], width)
        yield _detail_row([phrases.running(standing), *phrases.consumption(standing)], width)
        if standing.outage:
            yield _detail_row([phrases.outage(standing)], width, style="bold red")
        else:
            yield _detail_row([phrases.oldest(standing)], width, style="dim")
    if len(standings) > fitting:
        yield _detail_row([f"and {len(standings) - fitting} more"], width, style="dim")


def _ended_rows(standing: Standing, names: int, width: int) -> list[Text]:
    style = {"completed": "green", "running": "", "partial": "yellow", "cancelled": "yellow"}
    rows = [
        _row(standing, names, width, " · ".join(phrases.end(standing)), style.get(standing.status, "red"))
    ]
    if details := [*phrases.consumption(standing), *phrases.troubles(standing)]:
        rows.append(_detail_row(details, width, style="dim"))
    return rows


def _bar_row(standing: Standing, names: int, width: int) -> Text:
    from rich.text import Text

    counts = f"{standing.done}/{standing.attempts}"
    tail = "  ".join([counts, f"{phrases.percent(standing):3}%", *phrases.pace(standing)])
    cells = min(_BAR_CELLS, width - names - len(tail) - 4)
    if cells < _SHORTEST_BAR_CELLS:
        return _row(standing, names, width, tail, "")
    full = min(cells, cells * standing.done // max(1, standing.attempts))
    bar = (
        ("━" * full, "green" if standing.done >= standing.attempts else "cyan"),
        ("─" * (cells - full), "dim"),
    )
    return Text.assemble(_name(standing, names), "  ", *bar, "  ", tail)


def _row(standing: Standing, names: int, width: int, text: str, style: str) -> Text:
    from rich.text import Text

    return Text.assemble(_name(standing, names), "  ", (show(text, max(1, width - names - 2)), style))


def _detail_row(words: list[str], width: int, *, style: str = "") -> Text:
    from rich.text import Text

    return Text("  " + show(" · ".join(words), max(1, width - 2)), style=style)


def _name(standing: Standing, names: int) -> tuple[str, str]:
    name = show(standing.request, names)
    return name + " " * (names - cell_width(name)), "bold"
