from __future__ import annotations

import io

from agentcompass.progress.output import Output
from agentcompass.progress.phrases import duration
from agentcompass.progress.plain import PlainDisplay
from agentcompass.progress.tally import Tally
from agentcompass.records import Notice, OutageChanged, ProgressEvent, RunStatus

from .events import StillClock, finished, phase, run_finished, run_started, started


class Desk:
    """A plain display on a string, with its tally and clock."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.stream = io.StringIO()
        self.display = PlainDisplay(Output(self.stream), clock=self.clock)
        self.tally = Tally("demo", clock=self.clock)

    def feed(self, *events: ProgressEvent) -> None:
        for event in events:
            self.tally.apply(event)
            self.display.note(event, self.tally)

    def lines(self, *, last: bool = False) -> list[str]:
        if paint := self.display.frame(last=last):
            paint()
        lines = self.stream.getvalue().splitlines()
        self.stream.seek(0)
        self.stream.truncate()
        return lines


def test_long_run_writes_few_lines() -> None:
    """10,000 quick attempts make a line at the start, nine between and one at the end."""
    desk = Desk()
    desk.feed(run_started(10_000))
    for number in range(10_000):
        desk.feed(started(str(number)), finished(str(number)))
    desk.feed(run_finished())
    lines = desk.lines()
    assert len(lines) == 11
    assert lines[0] == "demo · started · 10000 attempts · /results/demo"
    assert lines[5].startswith("demo · 5000/10000 (50%) · score 1.000")
    assert lines[-1] == "demo · completed in 0s · 10000/10000 attempts · score 1.000"


def test_stalled_run_says_what_it_waits_for() -> None:
    """After 30 s without a line the oldest trial is named; while nothing moves, lines grow rarer."""
    desk = Desk()
    desk.feed(run_started(10), started("HumanEval/3"), phase("HumanEval/3", "agent"))
    desk.lines()
    times = []
    for second in range(1, 1000):
        desk.clock.now += 1
        if lines := desk.lines():
            times.append(second)
            assert lines[0].endswith(f"oldest HumanEval/3 #1: agent for {duration(second)}")
    assert times == [30, 90, 210, 450, 930]


def test_moving_run_reports_every_half_minute() -> None:
    """As long as attempts finish, the pause stays at 30 s."""
    desk = Desk()
    desk.feed(run_started(100_000))
    desk.lines()
    count = 0
    for second in range(300):
        desk.clock.now += 1
        desk.feed(finished(str(second)))
        count += len(desk.lines())
    assert count == 10


def test_outage_and_notice_are_told_at_once() -> None:
    """What a person should know does not wait for the next report."""
    desk = Desk()
    desk.feed(run_started(10), OutageChanged(request="demo", down=True, error="ModelAuthError: bad\nkey"))
    desk.feed(OutageChanged(request="demo", down=False, error=""), Notice(request="demo", text="stopping"))
    assert desk.lines()[1:] == [
        "demo · paused by an outage for 0s: ModelAuthError: bad\\nkey",
        "demo · the outage is over",
        "demo · stopping",
    ]


def test_run_cut_short_leaves_its_standing() -> None:
    """When the display closes before a request has ended, where it stood is still written."""
    desk = Desk()
    desk.feed(run_started(10), finished("a"))
    desk.lines()
    (line,) = desk.lines(last=True)
    assert line.startswith("demo · 1/10 (10%)")


def test_finished_request_is_reported_once() -> None:
    """Nothing follows the line about the end."""
    desk = Desk()
    desk.feed(run_started(1), finished("a"), run_finished(RunStatus.PARTIAL, value=None))
    assert desk.lines()[-1] == "demo · partial in 0s · 1/1 attempts · no score"
    desk.clock.now += 10_000
    assert desk.lines(last=True) == []
