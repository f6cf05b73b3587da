from __future__ import annotations

import io
import re
from collections.abc import Iterator

import pytest

from agentcompass.progress.live import LiveDisplay, terminal_lock
from agentcompass.progress.output import Output
from agentcompass.progress.tally import Tally
from agentcompass.progress.text import cell_width
from agentcompass.records import Notice, OutageChanged, ProgressEvent, RunStatus

from .events import StillClock, finished, phase, run_finished, run_started, started

HOSTILE_ID = "\x1b[2J[bold]任务\u202e\n" + "x" * 300


class Desk:
    """A live display on a string of 80 columns, with its tallies and clock."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.stream = io.StringIO()
        self.display = LiveDisplay(Output(self.stream), clock=self.clock)
        self.tallies: dict[str, Tally] = {}

    def feed(self, *events: ProgressEvent) -> None:
        for event in events:
            tally = self.tallies.setdefault(event.request, Tally(event.request, clock=self.clock))
            tally.apply(event)
            self.display.note(event, tally)

    def rows(self, *, last: bool = False) -> list[str]:
        """Paint and return what was drawn, without its control sequences."""
        self.stream.seek(0)
        self.stream.truncate()
        if paint := self.display.frame(last=last):
            paint()
        drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.stream.getvalue()).replace("\r", "")
        return [row.rstrip() for row in drawn.split("\n") if row.strip()]


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    assert terminal_lock.acquire(blocking=False)
    yield Desk()
    assert not terminal_lock.locked()


def test_running_request_takes_four_rows(desk: Desk) -> None:
    """Bar, score, live trials by phase and the oldest trial, in this order."""
    desk.feed(run_started(4), finished("a"), started("b"), phase("b", "agent"))
    desk.clock.now += 10
    bar, *rest = desk.rows()
    assert re.fullmatch(r"demo  ━+─+  1/4   25%  6\.0/min  eta 30s", bar)
    assert rest == ["  score 1.000", "  1 running: agent", "  oldest b #1: agent for 10s"]
    desk.rows(last=True)


def test_no_row_wraps_whatever_the_ids_and_errors_hold(desk: Desk) -> None:
    """Markup, escapes, wide characters and 300-character ids stay inside the 80 columns, spelt out."""
    desk.feed(run_started(4, request=HOSTILE_ID), started(HOSTILE_ID, request=HOSTILE_ID))
    rows = desk.rows()
    assert all(cell_width(row) < 80 for row in rows)
    assert rows[-1].startswith("  oldest \\x1b[2J[bold]任务\\u202e\\nxxx")
    desk.feed(OutageChanged(request=HOSTILE_ID, down=True, error=HOSTILE_ID))
    rows = desk.rows()
    assert all(cell_width(row) < 80 for row in rows)
    assert "paused by an outage for 0s: \\x1b[2J[bold]任务" in rows[-1]
    desk.rows(last=True)


def test_many_requests_fit_the_height(desk: Desk) -> None:
    """What does not fit into the 24 rows is counted."""
    for number in range(9):
        desk.feed(run_started(4, request=f"request-{number}"))
    rows = desk.rows()
    assert len(rows) < 24
    assert rows[-1] == "  and 4 more"
    desk.rows(last=True)


def test_log_lines_come_above_the_rows(desk: Desk) -> None:
    """A log line is shown literally and whole, and the rows are drawn again below it."""
    desk.feed(run_started(4), Notice(request="demo", text="stopping"))
    desk.display.line("12:00:00 warning [bold]x[/bold] :smile: " + "y" * 100)
    rows = desk.rows()
    assert rows[:2] == ["demo: stopping", "12:00:00 warning [bold]x[/bold] :smile: " + "y" * 100]
    assert rows[2].startswith("demo  ─")
    desk.rows(last=True)


def test_ended_request_stays_on_screen(desk: Desk) -> None:
    """Its last rows are written once and for all, and the cursor is visible again."""
    desk.feed(run_started(1), finished("a", score=0.0), run_finished(RunStatus.PARTIAL, value=0.0))
    assert desk.rows() == ["demo  partial in 0s · 1/1 attempts · score 0.000"]
    assert desk.rows(last=True) == []
    assert "\x1b[?25h" in desk.stream.getvalue()


def test_request_cut_short_stays_on_screen_too(desk: Desk) -> None:
    """Where a cancelled run stood can still be read."""
    desk.feed(run_started(4), finished("a"))
    assert desk.rows(last=True) == ["demo  stopped after 0s · 1/4 attempts · score 1.000"]


def test_nothing_is_drawn_when_nothing_changed(desk: Desk) -> None:
    """Without events, the ages on screen are renewed once a second and no more."""
    desk.feed(run_started(4))
    assert desk.rows()
    desk.clock.now += 0.5
    assert desk.display.frame() is None
    desk.clock.now += 0.5
    assert desk.rows()
    desk.rows(last=True)


def test_run_without_events_leaves_the_terminal_alone(desk: Desk) -> None:
    """No event, no output."""
    assert desk.rows(last=True) == []
    assert desk.stream.getvalue() == ""
