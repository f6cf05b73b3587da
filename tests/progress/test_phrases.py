from __future__ import annotations

import pytest

from agentcompass.progress import phrases
from agentcompass.progress.tally import Tally
from agentcompass.records import OutcomeClass

from .events import StillClock, finished, phase, run_started, started


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59.9, "59s"), (125, "2m05s"), (12000, "3h20m"), (180000, "2d02h")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    """Two units at most."""
    assert phrases.duration(seconds) == text


@pytest.mark.parametrize(
    ("per_second", "text"), [(41.2, "41/s"), (1.0, "1.0/s"), (0.5, "30/min"), (0.001, "3.6/h")]
)
def test_rates_use_the_unit_that_fits(per_second: float, text: str) -> None:
    """Slow work is counted by the minute or the hour."""
    assert phrases.rate(per_second) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (950, "950"), (12_345, "12.3k"), (4_500_000, "4.5M"), (2e9, "2.0G")]
)
def test_amounts_are_short(number: float, text: str) -> None:
    """Tokens are shown to three digits or so."""
    assert phrases.amount(number) == text


def test_all_but_one_done_is_not_a_hundred_percent() -> None:
    """100 % means that nothing is left, and more than that never shows."""
    tally = Tally("demo", clock=StillClock())
    tally.apply(run_started(1000, kept=999))
    assert phrases.percent(tally.standing()) == 99
    tally.apply(finished("a"))
    tally.apply(finished("b"))
    assert phrases.percent(tally.standing()) == 100


def test_failures_are_ranked_and_the_tail_is_summed() -> None:
    """The commonest classes come first; the sum stays right."""
    tally = Tally("demo", clock=StillClock())
    for kind, count in {"A": 1, "B": 3, "C": 1, "D": 2, "E": 1}.items():
        for _ in range(count):
            tally.apply(finished("t", score=None, outcome=OutcomeClass.INFRA_ERROR, error=f"{kind}: x"))
    assert phrases.troubles(tally.standing()) == ["8 failed: 3 B, 2 D, 1 A, 2 other"]


def test_running_trials_are_listed_in_the_order_of_a_trial() -> None:
    """The order does not jump about as counts change."""
    tally = Tally("demo", clock=StillClock())
    for task_id, name in {"a": "verify", "b": "agent", "c": "agent", "d": "open"}.items():
        tally.apply(started(task_id))
        tally.apply(phase(task_id, name))
    assert phrases.running(tally.standing()) == "4 running: 1 open, 2 agent, 1 verify"
