"""The scores of a run as a pure function of its journal; order and repetition of trial lines don't matter."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..records import Estimate, JournalRecord, Metrics, PlanRecord
from .passk import pass_at, pass_hat
from .scores import Scores
from .totals import Totals
from .trials import counted_trials, read_journal, unique_trials


def fold(records: Iterable[JournalRecord], *, damaged_lines: int = 0) -> Metrics:
    """
    Compute the scores of a run from the records of its journal.

    Args:
        records: In the order of the file.
        damaged_lines: How many lines could not be read; only reported.
    """
    journal = read_journal(records)
    plan = journal.effective_plan()
    unseen = _categories(plan)
    scores = Scores(k=plan.k, strategy=plan.strategy, has_categories=any(unseen.values()))
    totals = Totals()
    for task_id, rows in journal.iter_tasks():
        trials = unique_trials(rows)
        totals.add_task(trials, lines=len(rows))
        category = unseen.pop(task_id, None)
        if category is not None:  # a planned task
            scores.add_task(category, counted_trials(trials))
    for category in unseen.values():
        scores.add_task(category, {})
    return _metrics(plan, scores, totals, damaged_lines=damaged_lines)


def _categories(plan: PlanRecord) -> dict[str, str]:
    """Return the category of every planned task."""
    return dict.fromkeys(plan.task_ids, "") | dict(zip(plan.task_ids, plan.categories, strict=False))


def _metrics(plan: PlanRecord, scores: Scores, totals: Totals, *, damaged_lines: int) -> Metrics:
    overall, categories = scores.overall, scores.categories
    return Metrics(
        score=overall,
        counts=scores.counts,
        tasks=scores.tasks,
        k=plan.k,
        strategy=plan.strategy,
        pass_at=scores.mean_by_draws(pass_at),
        pass_hat=scores.mean_by_draws(pass_hat),
        any_of_k=overall.value if plan.strategy == "pass" else None,
        categories=categories,
        macro=_macro(categories.values()),
        metrics=scores.metrics,
        usage=totals.usage,
        trials=totals.trials,
        discarded_trials=totals.discarded_trials,
        duplicate_lines=totals.duplicate_lines,
        damaged_lines=damaged_lines,
        agent_seconds=totals.agent_seconds,
    )


def _macro(categories: Iterable[Estimate]) -> float | None:
    values = [estimate.value for estimate in categories if estimate.value is not None]
    return math.fsum(values) / len(values) if values else None
