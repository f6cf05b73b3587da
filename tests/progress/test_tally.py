from __future__ import annotations

import pytest

from agentcompass.progress import phrases
from agentcompass.progress.tally import Tally
from agentcompass.records import OutageChanged, OutcomeClass, ProgressEvent, RunStatus, Usage

from .events import StillClock, finished, phase, progressed, run_finished, run_started, started


def tally_of(*events: ProgressEvent, clock: StillClock | None = None) -> Tally:
    tally = Tally("demo", clock=clock or StillClock(), interval=lambda total, n: (total / n - 0.1, total / n))
    for event in events:
        tally.apply(event)
    return tally


def test_finished_attempts_make_the_running_score() -> None:
    """The score is the mean over evaluated attempts; missing data advances `done` but not the score."""
    lost = finished("c", score=None, outcome=OutcomeClass.INFRA_ERROR, error="SessionLostError: gone")
    standing = tally_of(run_started(4), finished("a"), finished("b", score=0.0), lost).standing()
    assert (standing.done, standing.evaluated, standing.score) == (3, 2, 0.5)
    assert standing.interval == (0.4, 0.5)
    assert standing.failures == {"SessionLostError": 1}


def test_discarded_trial_counts_for_usage_only() -> None:
    """A retry neither finishes the attempt nor touches the score, but its tokens were paid."""
    usage = Usage(calls=1, input_tokens=7, cost_usd=0.5)
    standing = tally_of(
        started("a"), finished("a", score=None, outcome=OutcomeClass.INFRA_ERROR, discarded=True, usage=usage)
    ).standing()
    assert (standing.done, standing.retries, standing.score, standing.failures) == (0, 1, None, {})
    assert standing.usage == usage
    assert standing.running == {}


def test_cancelled_attempt_is_not_done() -> None:
    """What was stopped from outside is still to be done, so the bar does not advance."""
    standing = tally_of(
        run_started(2), started("a"), finished("a", score=None, outcome=OutcomeClass.CANCELLED)
    ).standing()
    assert (standing.done, standing.failures, standing.oldest) == (0, {}, None)


def test_kept_attempts_are_done_but_not_part_of_the_running_score() -> None:
    """Attempts of an earlier session fill the bar from the start."""
    standing = tally_of(run_started(10, kept=6), finished("a")).standing()
    assert (standing.done, standing.kept, standing.evaluated) == (7, 6, 1)


def test_phases_count_the_live_trials() -> None:
    """Each live trial is in exactly one phase."""
    tally = tally_of(started("a"), started("b"), phase("a", "agent"), phase("b", "open"), phase("b", "agent"))
    assert tally.standing().running == {"agent": 2}
    tally.apply(finished("a"))
    assert tally.snapshot().running == {"agent": 1}


def test_late_phase_does_not_revive_a_finished_trial() -> None:
    """Memory is bounded by the live trials, whatever the order of events."""
    tally = tally_of(started("a"), finished("a"), phase("a", "close"))
    assert tally.standing().running == {}
    assert tally.standing().oldest is None


def test_live_trials_count_with_what_they_have_used_so_far() -> None:
    """Tokens are shown as they are spent, and once; the oldest trial says how many steps it has."""
    tally = Tally("demo")
    tally.apply(run_started())
    tally.apply(started("a"))
    tally.apply(progressed("a", 1, Usage(calls=1, input_tokens=10)))
    tally.apply(progressed("a", 3, Usage(calls=2, input_tokens=25)))
    tally.apply(progressed("gone", 1, Usage(calls=1, input_tokens=1000)))
    standing = tally.standing()
    assert standing.usage.input_tokens == 25
    assert standing.oldest is not None
    assert standing.oldest.steps == 3
    assert ", 3 steps" in phrases.oldest(standing)
    tally.apply(finished("a", usage=Usage(calls=2, input_tokens=25)))
    assert tally.standing().usage.input_tokens == 25


def test_stalled_trial_is_named_with_phase_and_age() -> None:
    """The trial that has been running longest can be named, with how long it has been where it is."""
    clock = StillClock()
    tally = tally_of(started("slow"), clock=clock)
    clock.now += 10
    tally.apply(phase("slow", "agent"))
    tally.apply(started("quick"))
    clock.now += 120
    oldest = tally.standing().oldest
    assert oldest is not None
    assert (oldest.task_id, oldest.phase, oldest.phase_seconds, oldest.total_seconds) == (
        "slow",
        "agent",
        120,
        130,
    )


def test_rate_and_time_left_follow_the_recent_past() -> None:
    """Attempts that finished long ago no longer count for the rate."""
    clock = StillClock()
    tally = tally_of(run_started(1000), clock=clock)
    for number in range(100):
        clock.now += 1
        tally.apply(finished(str(number)))
    assert tally.standing().rate == pytest.approx(1.0)
    for number in range(100):
        clock.now += 10
        tally.apply(finished(str(number)))
    standing = tally.standing()
    assert standing.rate == pytest.approx(0.1, rel=0.05)
    assert standing.eta_seconds == pytest.approx(8000, rel=0.05)


def test_rate_of_rare_attempts_is_taken_over_the_whole_time() -> None:
    """With hours between attempts the window is empty, but the time left is still known."""
    clock = StillClock()
    tally = tally_of(run_started(4), clock=clock)
    clock.now += 3600
    tally.apply(finished("a"))
    clock.now += 3600
    assert tally.standing().rate == pytest.approx(1 / 7200)


def test_nothing_finished_means_no_rate_and_no_score() -> None:
    """Unknown is not zero."""
    standing = tally_of(run_started(4), started("a")).standing()
    assert (standing.rate, standing.eta_seconds, standing.score, standing.interval) == (
        None,
        None,
        None,
        None,
    )


def test_outage_is_remembered_until_it_is_over() -> None:
    """The reason for standing still is at hand, with its age."""
    clock = StillClock()
    tally = tally_of(OutageChanged(request="demo", down=True, error="ModelAuthError: no"), clock=clock)
    clock.now += 60
    assert (tally.standing().outage, tally.standing().outage_seconds) == ("ModelAuthError: no", 60)
    tally.apply(OutageChanged(request="demo", down=False, error=""))
    assert tally.standing().outage == ""


def test_snapshot_holds_what_the_store_writes() -> None:
    """The snapshot is the fold so far; after the end it carries the final status."""
    tally = tally_of(run_started(2), finished("a", score=0.25))
    tally.apply(run_finished(RunStatus.PARTIAL, value=0.25))
    snapshot = tally.snapshot(at="2025-01-01T00:00:00Z")
    assert (snapshot.run_id, snapshot.status, snapshot.attempts, snapshot.done) == ("run-1", "partial", 2, 1)
    assert (snapshot.score_sum, snapshot.evaluated, snapshot.at) == (0.25, 1, "2025-01-01T00:00:00Z")


def test_final_value_of_other_attempts_shows_no_interval() -> None:
    """The interval covers this session only, so it is not put beside a value that covers more."""
    standing = tally_of(run_started(2, kept=1), finished("a"), run_finished(value=0.5)).standing()
    assert (standing.score, standing.interval) == (0.5, None)


def test_endless_kinds_of_errors_stay_few() -> None:
    """Error texts without a class name do not fill the memory."""
    tally = tally_of(run_started(1000))
    for number in range(1000):
        tally.apply(
            finished(str(number), score=None, outcome=OutcomeClass.AGENT_ERROR, error=f"odd {number}")
        )
    failures = tally.standing().failures
    assert len(failures) <= 21
    assert sum(failures.values()) == 1000
