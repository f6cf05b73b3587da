"""What must hold of the metrics of every journal: sums, bounds, and independence of order and repetition."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcompass.metrics.fold import fold
from agentcompass.records import (
    Estimate,
    JournalRecord,
    Metrics,
    OutcomeClass,
    PlanRecord,
    TrialRecord,
    Usage,
)

from .journal import broken, pass_plan, plan, scalar, verdict

pytestmark = pytest.mark.slow

TASKS = {"a": "x", "b": "y", "c": "y", "d": ""}
K = 3

usages = st.builds(
    Usage,
    calls=st.integers(0, 9),
    failed_calls=st.integers(0, 3),
    input_tokens=st.integers(0, 10**9),
    cached_tokens=st.integers(0, 10**6),
    output_tokens=st.integers(0, 10**6),
    reasoning_tokens=st.integers(0, 10**6),
    cost_usd=st.none() | st.floats(0, 100),
)


@st.composite
def attempts(draw: st.DrawFn, task_id: str, attempt: int) -> list[TrialRecord]:
    """The trials of one attempt, as the engine writes them: discarded ones, then one that stands, or none."""
    outcomes = draw(st.lists(st.sampled_from(OutcomeClass), max_size=3))
    stands = draw(st.booleans())
    return [
        TrialRecord(
            task_id=task_id,
            task_hash="",
            attempt=attempt,
            trial=number,
            category=TASKS[task_id],
            outcome=outcome,
            discarded=number < len(outcomes) or not stands,
            score=score if outcome.counts else None,
            success=bool(score) if outcome.counts else None,
            usage=draw(usages),
        )
        for number, outcome in enumerate(outcomes, start=1)
        for score in [float(draw(st.booleans()))]
    ]


@st.composite
def runs(draw: st.DrawFn) -> tuple[PlanRecord, list[TrialRecord]]:
    """A run of pass-or-fail tasks, some of its attempts missing."""
    head = PlanRecord(
        task_ids=list(TASKS),
        categories=list(TASKS.values()),
        k=K,
        strategy=draw(st.sampled_from(["avg", "pass"])),
    )
    return head, [trial for task in TASKS for n in range(1, K + 1) for trial in draw(attempts(task, n))]


def _estimates(metrics: Metrics) -> Iterator[Estimate]:
    yield metrics.score
    yield from metrics.categories.values()
    yield from metrics.metrics.values()


def _numbers(value: object) -> Iterator[float]:
    match value:
        case dict():
            for item in value.values():
                yield from _numbers(item)
        case int() | float():
            yield value


def _without_duplicates(metrics: Metrics) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(metrics, duplicate_lines=0))


@given(runs(), st.data())
def test_journals_of_any_split_fold_to_the_same(
    run: tuple[PlanRecord, list[TrialRecord]], data: st.DataObject
) -> None:
    """Two journals that overlap, one after the other or mixed, give what the whole one gives."""
    head, trials = run
    sides = data.draw(st.lists(st.sampled_from("12b"), min_size=len(trials), max_size=len(trials)))
    first = [trial for trial, side in zip(trials, sides, strict=True) if side in "1b"]
    second = [trial for trial, side in zip(trials, sides, strict=True) if side in "2b"]
    mixed = data.draw(st.permutations([*first, *second]))
    whole = _without_duplicates(fold([head, *trials]))
    for lines in ([*first, *second], [*second, *first], mixed):
        metrics = fold([head, *lines])
        assert _without_duplicates(metrics) == whole
        assert metrics.duplicate_lines == sides.count("b")


@given(runs(), st.data())
def test_usage_is_the_sum_over_all_trials(
    run: tuple[PlanRecord, list[TrialRecord]], data: st.DataObject
) -> None:
    """Every trial's calls, tokens and cost are in the ledger exactly once, discarded ones too."""
    head, trials = run
    again = data.draw(st.lists(st.sampled_from(trials), max_size=4)) if trials else []
    metrics = fold([head, *trials, *again])
    for field in (
        "calls",
        "failed_calls",
        "input_tokens",
        "cached_tokens",
        "output_tokens",
        "reasoning_tokens",
    ):
        assert getattr(metrics.usage, field) == sum(getattr(trial.usage, field) for trial in trials)
    costs = [trial.usage.cost_usd for trial in trials if trial.usage.cost_usd is not None]
    assert metrics.usage.cost_usd == (math.fsum(costs) if costs else None)
    assert metrics.trials == len(trials)
    assert metrics.discarded_trials == sum(trial.discarded for trial in trials)


@given(runs())
def test_categories_partition_the_total(run: tuple[PlanRecord, list[TrialRecord]]) -> None:
    """What is planned, evaluated and scored overall is the sum over the categories, every task in one."""
    metrics = fold([run[0], *run[1]])
    parts = metrics.categories
    assert set(parts) == {"x", "y", "uncategorized"}
    assert sum(part.planned for part in parts.values()) == metrics.score.planned
    assert sum(part.evaluated for part in parts.values()) == metrics.score.evaluated
    for end in ("bound_low", "bound_high"):
        total = math.fsum(getattr(part, end) * part.planned for part in parts.values())
        assert total == pytest.approx(getattr(metrics.score, end) * metrics.score.planned)
    values = [part.value for part in parts.values() if part.value is not None]
    assert metrics.macro == (pytest.approx(math.fsum(values) / len(values)) if values else None)


@given(runs())
def test_every_estimate_lies_in_its_interval_and_bounds(run: tuple[PlanRecord, list[TrialRecord]]) -> None:
    """An estimate with a value has finite ends on both sides of it, one without has bounds all the same."""
    for estimate in _estimates(fold([run[0], *run[1]])):
        assert 0 <= estimate.evaluated <= estimate.planned
        assert estimate.bound_low is not None
        assert estimate.bound_high is not None
        if estimate.value is None:
            assert (estimate.low, estimate.high, estimate.method) == (None, None, "none")
            assert (estimate.bound_low, estimate.bound_high) == (0.0, 1.0)
        else:
            assert estimate.low is not None
            assert estimate.high is not None
            assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
            assert estimate.low < estimate.high


def _rises(values: Sequence[float]) -> bool:
    return all(earlier <= later + 1e-12 for earlier, later in pairwise(values))


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=6))
def test_draws_of_a_whole_run_are_monotone(results: list[list[bool]]) -> None:
    """With no attempt missing, pass@j never falls with j, pass^j never rises, and both start at the score."""
    lines = [
        verdict(f"t{task}", passed, attempt=n)
        for task, passes in enumerate(results)
        for n, passed in enumerate(passes, start=1)
    ]
    metrics = fold([plan(*(f"t{task}" for task in range(len(results))), k=4), *lines])
    any_of, all_of = list(metrics.pass_at.values()), list(metrics.pass_hat.values())
    assert list(metrics.pass_at) == list(metrics.pass_hat) == ["1", "2", "3", "4"]
    assert _rises(any_of)
    assert _rises(all_of[::-1])
    assert any_of[0] == all_of[0] == pytest.approx(metrics.score.value)


_DEGENERATE: dict[str, list[JournalRecord]] = {
    "nothing": [],
    "no task": [plan()],
    "one lost": [plan("a"), broken("a")],
    "one pass": [plan("a"), verdict("a", passed=True)],
    "one fail": [plan("a"), verdict("a", passed=False)],
    "all pass": [plan(*"abcde"), *(verdict(task, passed=True) for task in "abcde")],
    "all fail": [plan(*"abcde"), *(verdict(task, passed=False) for task in "abcde")],
    "all attempts pass": [
        plan(*"ab", k=2),
        *(verdict(t, passed=True, attempt=n) for t in "ab" for n in (1, 2)),
    ],
    "equal scalars": [plan(*"abc"), *(scalar(task, 0.3, metrics={"steps": 7.0}) for task in "abc")],
    "smallest scalars": [plan(*"ab"), *(scalar(task, 5e-324) for task in "ab")],
    "huge metric": [
        plan(*"ab"),
        *(scalar(t, 1.0, metrics={"n": n}) for t, n in (("a", 1e100), ("b", -1e100))),
    ],
    "attempts partly missing": [
        plan(*"ab", k=3),
        verdict("a", passed=True, attempt=2),
        broken("b", attempt=3),
    ],
    "early stop, nothing tried": [pass_plan("a", k=3)],
    "early stop, all fail": [pass_plan("a", k=2), *(verdict("a", passed=False, attempt=n) for n in (1, 2))],
}


@pytest.mark.parametrize("case", _DEGENERATE)
def test_degenerate_runs_have_finite_answers(case: str) -> None:
    """The file is JSON that any parser takes, and each number in it is finite."""
    records = _DEGENERATE[case]
    metrics = fold(records)

    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is no JSON")

    document = json.loads(msgspec.json.encode(metrics), parse_constant=refuse)
    assert all(map(math.isfinite, _numbers(document)))
    for estimate in _estimates(metrics):
        evaluated = estimate.evaluated > 0
        assert (estimate.value is not None) is evaluated
        assert (estimate.method != "none") is evaluated
