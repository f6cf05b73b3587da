"""Progress in a notebook: one output area that is updated in place, without widgets."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable
from functools import partial
from html import escape
from typing import Protocol, cast

from ..records import Notice, ProgressEvent
from . import phrases
from .display import Lines, Paint
from .output import Output
from .tally import Standing, Tally
from .text import show

_BAR_CELLS = 30
_NAME_CELLS = 40
_REPAINT_SECONDS = 1.0
_STYLE = "line-height:1.3;margin:0;white-space:pre;overflow-x:auto"


class _Publisher(Protocol):
    def publish(self, data: dict[str, str], *, transient: dict[str, str], update: bool) -> object: ...


class _Shell(Protocol):
    display_pub: _Publisher


def find_notebook() -> _Shell | None:
    """Return the shell of the notebook that this process is the kernel of, None elsewhere."""
    module = sys.modules.get("IPython")  # never imported: without it there is no notebook
    shell = module.get_ipython() if module is not None and hasattr(module, "get_ipython") else None
    return cast("_Shell", shell) if hasattr(shell, "kernel") else None


class NotebookDisplay:
    """Rows for every request in one area of the cell; log lines go to the cell's stderr."""

    def __init__(self, shell: _Shell, output: Output, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._publisher = shell.display_pub
        self._lines = Lines(output)
        self._clock = clock
        self._tallies: dict[str, Tally] = {}
        self._display_id = uuid.uuid4().hex
        self._shown = False
        self._painted = float("-inf")

    def note(self, event: ProgressEvent, tally: Tally) -> None:
        """Remember which requests there are."""
        self._tallies.setdefault(event.request, tally)
        if isinstance(event, Notice):
            self._lines.add(f"{show(event.request, _NAME_CELLS)}: {show(event.text, 400)}")

    def line(self, text: str) -> None:
        """Show a line of the log."""
        self._lines.add(show(text))

    def frame(self, *, last: bool = False) -> Paint | None:
        """Return what updates the area, once a second, and writes the lines that wait."""
        if not last and self._clock() < self._painted + _REPAINT_SECONDS:
            return self._lines.paint()
        self._painted = self._clock()
        standings = [tally.standing() for tally in self._tallies.values()]
        return partial(self._paint, standings, self._lines.paint()) if standings else self._lines.paint()

    def _paint(self, standings: list[Standing], write_lines: Paint | None) -> None:
        if write_lines is not None:
            write_lines()
        text = "\n".join(row for standing in standings for row in _rows(standing))
        html = f'<pre style="{_STYLE}">{escape(text)}</pre>'
        transient = {"display_id": self._display_id}
        data = {"text/plain": text, "text/html": html}
        self._publisher.publish(data, transient=transient, update=self._shown)
        self._shown = True


def _rows(standing: Standing) -> list[str]:
    name = show(standing.request, _NAME_CELLS)
    if standing.status != "running":
        details = [*phrases.consumption(standing), *phrases.troubles(standing)]
        return _indented([" · ".join([name, *phrases.end(standing)]), " · ".join(details)])
    done = _BAR_CELLS * standing.done // max(1, standing.attempts)
    bar = ("━" * done).ljust(_BAR_CELLS, "─")[:_BAR_CELLS]
    counts = [
        f"{standing.done}/{standing.attempts}",
        f"{phrases.percent(standing)}%",
        *phrases.pace(standing),
    ]
    rows = [
        "  ".join([name, bar, *counts]),
        " · ".join([phrases.score(standing), *phrases.troubles(standing)]),
        " · ".join([phrases.running(standing), *phrases.consumption(standing)]),
        phrases.outage(standing) or phrases.oldest(standing),
    ]
    return _indented(rows)


def _indented(rows: list[str]) -> list[str]:
    return [rows[0], *(f"  {row}" for row in rows[1:] if row)]
