from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcompass.metrics.fold import fold
from agentcompass.metrics.intervals import cluster_mean, wilson
from agentcompass.records import JournalRecord, Metrics, OutcomeClass, PlanRecord, TrialRecord, Usage

from .journal import broken, pass_plan, plan, scalar, verdict

AGENT_ERROR, TIMED_OUT = OutcomeClass.AGENT_ERROR, OutcomeClass.TIMED_OUT
INFRA_ERROR, CANCELLED = OutcomeClass.INFRA_ERROR, OutcomeClass.CANCELLED


def test_lost_trials_are_missing_data_not_failures() -> None:
    """4 passes, 2 wrong answers and 4 infrastructure failures score 4/6, bounded by 4/10 and 8/10."""
    tasks = [f"t{number}" for number in range(10)]
    trials = [verdict(task, passed=position < 4) for position, task in enumerate(tasks[:6])]
    metrics = fold([plan(*tasks), *trials, *map(broken, tasks[6:])])
    score = metrics.score
    assert (score.value, score.evaluated, score.planned, score.coverage) == (4 / 6, 6, 10, 0.6)
    assert (score.bound_low, score.bound_high) == (0.4, 0.8)
    assert (score.low, score.high, score.method) == (*wilson(4, 6), "wilson")
    assert metrics.counts.by_outcome == {"completed": 6, "infra_error": 4}


def test_run_of_nothing_but_infrastructure_failures_has_no_score() -> None:
    """No score, no interval, and bounds that say that anything is possible."""
    score = fold([plan("a", "b"), broken("a"), broken("b")]).score
    assert (score.value, score.low, score.high, score.method) == (None, None, None, "none")
    assert (score.bound_low, score.bound_high, score.coverage) == (0.0, 1.0, 0.0)


def test_empty_journal_folds_to_nothing() -> None:
    """No records at all: zero planned, no score, no bounds."""
    metrics = fold([], damaged_lines=3)
    assert (metrics.tasks, metrics.counts.planned, metrics.damaged_lines) == (0, 0, 3)
    assert (metrics.score.value, metrics.score.bound_low, metrics.score.coverage) == (None, None, 0.0)


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 1.5, -0.1, None])
def test_score_that_is_no_number_in_range_is_missing(score: float | None) -> None:
    """A completed trial without a usable score is unscored, counts as failed and spoils nothing."""
    metrics = fold([plan("a", "b"), scalar("a", 0.5), scalar("b", score)])
    assert (metrics.score.value, metrics.score.evaluated) == (0.5, 1)
    assert (metrics.counts.finished, metrics.counts.failed, metrics.counts.missing) == (1, 1, 0)


@pytest.mark.parametrize("outcome", [AGENT_ERROR, TIMED_OUT])
def test_failure_of_the_agent_counts_as_a_failed_attempt(outcome: OutcomeClass) -> None:
    """Without a verdict, it scores 0 and is evaluated."""
    score = fold([plan("a", "b"), verdict("a", passed=True), broken("b", outcome)]).score
    assert (score.value, score.evaluated, score.method) == (0.5, 2, "wilson")


def test_timed_out_attempt_keeps_what_was_verified() -> None:
    """A pass that the verifier found after the deadline is a pass."""
    late = msgspec.structs.replace(verdict("a", passed=True), outcome=TIMED_OUT)
    assert fold([plan("a"), late]).score.value == 1.0


@pytest.mark.parametrize("outcome", [INFRA_ERROR, CANCELLED, OutcomeClass.INTERNAL_ERROR])
def test_later_lost_trial_does_not_displace_a_verdict(outcome: OutcomeClass) -> None:
    """Among the trials of an attempt, one that counts beats one that does not, however late."""
    metrics = fold([plan("a"), verdict("a", passed=True, trial=1), broken("a", outcome, trial=2)])
    assert (metrics.score.value, metrics.counts.finished, metrics.trials) == (1.0, 1, 2)


def test_resumed_attempt_takes_its_latest_verdict() -> None:
    """Several lines per attempt: the counting trial with the highest number holds, once."""
    lines = [broken("a", trial=1), verdict("a", passed=False, trial=2), verdict("a", passed=True, trial=3)]
    metrics = fold([plan("a"), *lines])
    assert (metrics.score.value, metrics.score.evaluated, metrics.counts.planned) == (1.0, 1, 1)


def test_discarded_trials_count_for_usage_only() -> None:
    """An attempt with nothing but discarded trials is missing, and was paid for."""
    usage = Usage(calls=2, input_tokens=10, cache_write_tokens=7, output_tokens=3, cost_usd=0.25)
    lines = [
        broken("a", AGENT_ERROR, trial=number, discarded=True, usage=usage, agent_seconds=1.5)
        for number in (1, 2)
    ]
    metrics = fold([plan("a"), *lines])
    assert (metrics.counts.missing, metrics.score.value, metrics.discarded_trials) == (1, None, 2)
    assert metrics.usage == Usage(
        calls=4, input_tokens=20, cache_write_tokens=14, output_tokens=6, cost_usd=0.5
    )
    assert metrics.agent_seconds == 3.0


def test_duplicate_lines_count_once_and_are_reported() -> None:
    """The same trial twice changes neither scores nor usage."""
    line = broken("a", AGENT_ERROR, usage=Usage(calls=1, cost_usd=0.1))
    metrics = fold([plan("a"), line, line, line])
    assert (metrics.duplicate_lines, metrics.trials, metrics.usage.calls) == (2, 1, 1)
    assert metrics.usage.cost_usd == 0.1


def test_last_plan_decides_what_is_reported() -> None:
    """After a resume with another limit, scores cover the new plan and usage covers everything."""
    lines = [verdict(task, passed=task != "c") for task in "abc"]
    metrics = fold([plan("a", "b", "c"), *lines, plan("a", "d", k=2)])
    assert (metrics.tasks, metrics.k, metrics.counts.planned) == (2, 2, 4)
    assert (metrics.counts.finished, metrics.counts.missing, metrics.trials) == (1, 3, 3)


def test_attempts_beyond_the_plan_count_for_usage_only() -> None:
    """A plan of one attempt leaves out the second one that an earlier session ran."""
    metrics = fold([plan("a"), verdict("a", passed=False), verdict("a", passed=True, attempt=2)])
    assert (metrics.score.value, metrics.counts.planned, metrics.trials) == (0.0, 1, 2)


def test_journal_without_plan_reports_what_it_saw() -> None:
    """If the plan line is damaged, tasks, attempts and categories come from the trials."""
    first = msgspec.structs.replace(verdict("a", passed=True), category="easy")
    metrics = fold([first, verdict("b", passed=False), verdict("b", passed=True, attempt=2)])
    assert (metrics.tasks, metrics.k, metrics.counts.planned, metrics.counts.missing) == (2, 2, 4, 1)
    assert set(metrics.categories) == {"easy", "uncategorized"}


def test_several_attempts_average_by_task() -> None:
    """avg@k is the mean of the tasks' means, with an interval from the spread between tasks."""
    lines = [verdict("a", passed=True, attempt=n) for n in (1, 2)] + [verdict("b", passed=False)]
    score = fold([plan("a", "b", k=2), *lines, broken("b", attempt=2)]).score
    assert (score.value, score.evaluated, score.planned, score.method) == (0.5, 3, 4, "cluster")
    assert (score.low, score.high) == cluster_mean([1.0, 0.0])
    assert (score.bound_low, score.bound_high) == (0.5, 0.75)


def test_draws_leave_out_tasks_with_too_few_attempts() -> None:
    """pass@2 and pass^2 cover only the task with two evaluated attempts; j = 3 covers none."""
    lines = [verdict("a", passed=n == 1, attempt=n) for n in (1, 2)] + [verdict("b", passed=True)]
    metrics = fold([plan("a", "b", k=3), *lines])
    assert metrics.pass_at == {"1": 0.75, "2": 1.0}
    assert metrics.pass_hat == {"1": 0.75, "2": 0.0}


@pytest.mark.parametrize(
    "records",
    [
        [plan("a"), verdict("a", passed=True)],
        [plan("a", k=2), scalar("a", 0.5), scalar("a", 1.0, attempt=2)],
        [pass_plan("a", k=2), verdict("a", passed=True)],
    ],
    ids=["one attempt", "scalar", "early stop"],
)
def test_draws_are_left_out_where_they_say_nothing(records: list[JournalRecord]) -> None:
    """pass@j needs several pass-or-fail attempts that all run."""
    metrics = fold(records)
    assert metrics.pass_at == metrics.pass_hat == {}


def test_scalar_scores_get_a_clustered_interval() -> None:
    """Scores between 0 and 1 are no successes to count, even if they happen to be 0 and 1."""
    score = fold([plan("a", "b"), scalar("a", 0.0), scalar("b", 1.0)]).score
    assert (score.value, score.method) == (0.5, "cluster")


def test_early_stop_scores_tasks_by_any_success() -> None:
    """Solved, failed and open tasks: any-of-k covers the first two, and counts add up."""
    lines = [
        verdict("solved", passed=False, attempt=1),
        verdict("solved", passed=True, attempt=2),
        *(verdict("failed", passed=False, attempt=n) for n in (1, 2, 3)),
        verdict("open", passed=False, attempt=1),
        broken("open", attempt=2),
    ]
    metrics = fold([pass_plan("solved", "failed", "open", k=3), *lines])
    score, counts = metrics.score, metrics.counts
    assert (metrics.any_of_k, score.value, score.evaluated, score.planned) == (0.5, 0.5, 2, 3)
    assert (score.bound_low, score.bound_high, score.method) == (1 / 3, 2 / 3, "wilson")
    assert (counts.planned, counts.finished, counts.failed, counts.missing) == (8, 6, 1, 1)


def test_early_stop_does_not_plan_attempts_after_the_success() -> None:
    """Later attempts of an earlier plan are left out; a lost attempt before the success is not."""
    lines = [
        broken("a", attempt=1),
        verdict("a", passed=True, attempt=2),
        verdict("a", passed=False, attempt=3),
    ]
    metrics = fold([pass_plan("a", k=4), *lines])
    assert (metrics.any_of_k, metrics.counts.planned, metrics.counts.failed) == (1.0, 2, 1)


def test_categories_get_estimates_and_a_macro_mean() -> None:
    """Each category stands alone; the macro mean weighs them equally and skips those without a value."""
    lines = [verdict("a", passed=True), verdict("b", passed=True), verdict("c", passed=False)]
    metrics = fold([plan("a", "b", "c", "d", categories=["x", "x", "", "lost"]), *lines])
    values = {name: estimate.value for name, estimate in metrics.categories.items()}
    assert values == {"lost": None, "uncategorized": 0.0, "x": 1.0}
    assert (metrics.macro, metrics.categories["lost"].planned) == (0.5, 1)


def test_tasks_without_any_category_give_none() -> None:
    """No category anywhere: no table of one row."""
    metrics = fold([plan("a", categories=[""]), verdict("a", passed=True)])
    assert (metrics.categories, metrics.macro) == ({}, None)


def test_further_metrics_cover_the_attempts_that_have_them() -> None:
    """Within [0, 1] a metric has bounds; outside it has a plain interval; NaN counts as absent."""
    lines = [
        scalar("a", 1.0, metrics={"f1": 0.5, "steps": 10.0}),
        scalar("b", 1.0, metrics={"f1": 0.7, "steps": 30.0}),
        scalar("c", 1.0, metrics={"f1": math.nan, "steps": 1e300}),
    ]
    metrics = fold([plan("a", "b", "c", "d"), *lines]).metrics
    f1, steps = metrics["f1"], metrics["steps"]
    assert (f1.value, f1.evaluated, f1.planned, f1.method) == (0.6, 2, 4, "cluster")
    assert (f1.bound_low, f1.bound_high) == (0.3, 0.8)
    assert (steps.value, steps.bound_low, steps.bound_high) == (20.0, None, None)
    assert steps.low is not None
    assert steps.low < 0, "an interval on an open scale is not clamped"


def test_unknown_cost_stays_unknown() -> None:
    """None is not zero; one known price gives a sum; NaN is unknown."""
    assert fold([broken("a")]).usage.cost_usd is None
    assert fold([broken("a", usage=Usage(cost_usd=math.nan))]).usage.cost_usd is None
    assert fold([broken("a"), broken("b", usage=Usage(cost_usd=0.0))]).usage.cost_usd == 0.0


def test_scores_survive_a_reload() -> None:
    """Records written as JSON and read back give the same metrics, unusable scores included."""
    lines: list[JournalRecord] = [
        plan("a", "b", "c", "d", k=2, categories=["x", "", "y", "y"]),
        scalar("a", 1 / 3, metrics={"f1": 0.1}),
        scalar("b", math.nan),
        msgspec.structs.replace(broken("c", AGENT_ERROR), score=math.nan),
        verdict("d", passed=True, attempt=2),
        broken("d", CANCELLED, attempt=1, usage=Usage(calls=3, cost_usd=0.1 + 0.2)),
    ]
    reloaded = msgspec.json.decode(msgspec.json.encode(lines), type=list[JournalRecord])
    metrics = fold(lines)
    assert fold(reloaded) == metrics
    assert msgspec.json.decode(msgspec.json.encode(metrics), type=Metrics) == metrics


numbers = st.one_of(st.none(), st.sampled_from([0.0, 0.1, 1 / 3, 1.0]), st.floats())
trials = st.builds(
    TrialRecord,
    task_id=st.sampled_from(["a", "b", "c", "outside"]),
    task_hash=st.just(""),
    attempt=st.integers(0, 4),
    trial=st.integers(1, 2),
    outcome=st.sampled_from(OutcomeClass),
    category=st.sampled_from(["", "x", "y"]),
    score=numbers,
    success=st.sampled_from([None, True, False]),
    metrics=st.dictionaries(st.sampled_from(["m", "n"]), st.floats(), max_size=2),
    discarded=st.booleans(),
    usage=st.builds(Usage, calls=st.integers(0, 9), cost_usd=numbers),
)
plans = st.builds(
    PlanRecord,
    task_ids=st.just(["a", "b", "c", "never run"]),
    categories=st.sampled_from([[], ["x", "", "y", "y"]]),
    k=st.integers(1, 3),
    strategy=st.sampled_from(["avg", "pass"]),
)
journals = st.tuples(st.lists(plans, max_size=1), st.lists(trials, max_size=12))


@pytest.mark.slow
@given(journals, st.data())
def test_order_and_repetition_of_lines_do_not_matter(
    journal: tuple[list[PlanRecord], list[TrialRecord]], data: st.DataObject
) -> None:
    """Any order and any repetition of trial lines around the plan gives the same bytes."""
    head, lines = journal
    repeated = data.draw(st.lists(st.sampled_from(lines), max_size=5)) if lines else []
    records: list[JournalRecord] = [*head, *lines, *repeated]
    mixed = data.draw(st.permutations(records))
    expected = msgspec.structs.replace(fold([*head, *lines]), duplicate_lines=0)
    actual = fold(mixed)
    assert actual.duplicate_lines == len(lines) + len(repeated) - actual.trials
    actual = msgspec.structs.replace(actual, duplicate_lines=0)
    assert msgspec.json.encode(actual) == msgspec.json.encode(expected)


@pytest.mark.slow
@given(journals)
def test_counts_add_up_and_no_number_is_undefined(
    journal: tuple[list[PlanRecord], list[TrialRecord]],
) -> None:
    """Whatever the lines say: counts sum to the plan, values lie within their bounds, all JSON is sound."""
    metrics = fold([*journal[0], *journal[1]])
    counts, score = metrics.counts, metrics.score
    assert counts.planned == counts.finished + counts.failed + counts.cancelled + counts.missing
    assert min(counts.finished, counts.failed, counts.cancelled, counts.missing) >= 0
    if score.value is not None:
        ends = (score.low, score.high, score.bound_low, score.bound_high)
        low, high, bound_low, bound_high = (math.nan if end is None else end for end in ends)
        assert 0 <= low <= score.value <= high <= 1
        assert bound_low - 1e-12 <= score.value <= bound_high + 1e-12
    # An undefined number would be written as null and come back as None, or not at all.
    assert msgspec.json.decode(msgspec.json.encode(metrics), type=Metrics) == metrics


@pytest.mark.slow
def test_large_journal_folds_in_little_memory() -> None:
    """20,000 trials that come one by one take less than 400 bytes each, ids aside."""
    import tracemalloc

    tasks = [f"task-{number}" for number in range(20_000)]
    tracemalloc.start()
    try:
        metrics = fold(
            record
            for records in ([plan(*tasks)], (verdict(t, passed=True) for t in tasks))
            for record in records
        )
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert metrics.score.value == 1.0
    assert peak_bytes < 400 * len(tasks)
