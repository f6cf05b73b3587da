from __future__ import annotations

from agentcompass.progress.backlog import Backlog
from agentcompass.records import ProgressEvent

from .events import finished, phase, run_started, started


def test_events_come_out_in_order() -> None:
    """Telling and minor events keep their order among each other."""
    events: list[ProgressEvent] = [
        run_started(),
        started("a"),
        phase("a", "agent"),
        finished("a"),
        started("b"),
    ]
    backlog = Backlog()
    for event in events:
        backlog.push(event)
    assert backlog.take(2) + backlog.take(10) == events
    assert len(backlog) == 0


def test_full_backlog_keeps_results() -> None:
    """Starts and phase changes go first, oldest first; results only when there is nothing else."""
    backlog = Backlog(limit=3)
    events: list[ProgressEvent] = [
        started("a"),
        finished("a"),
        phase("b", "agent"),
        finished("b"),
        finished("c"),
    ]
    for event in events:
        backlog.push(event)
    assert backlog.take(9) == [finished("a"), finished("b"), finished("c")]
    assert backlog.dropped == 2
    for number in range(4):
        backlog.push(finished(str(number)))
    assert backlog.take(1) == [finished("1")]
