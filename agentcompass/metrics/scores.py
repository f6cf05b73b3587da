"""The planned tasks of a run summed up one by one, under either strategy."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..records import Counts, Estimate, OutcomeClass
from .estimates import Sample
from .trials import TrialRow

Strategy = Literal["avg", "pass"]

_UNCATEGORIZED = "uncategorized"
"""Where tasks without a category go when others have one."""


class Scores:
    """
    All that is said about the planned attempts.

    Args:
        k: Planned attempts per task.
        strategy: ``avg`` scores every attempt; ``pass`` scores each task once, by whether any attempt
            passed, and does not plan the attempts after the first that did.
        has_categories: Whether any task has a category.
    """

    def __init__(self, *, k: int, strategy: Strategy, has_categories: bool) -> None:
        self._k = k
        self._strategy = strategy
        self._scores_per_task = scores_per_task(k, strategy)
        self._overall = Sample()
        self._has_categories = has_categories
        self._by_category: defaultdict[str, Sample] = defaultdict(Sample)
        self._by_metric: defaultdict[str, Sample] = defaultdict(Sample)
        self._tasks_by_passes: Counter[tuple[int, int]] = Counter()  # by evaluated attempts and passes
        self._all_binary = True
        self._planned = 0
        self._finished = 0
        self._by_outcome: Counter[OutcomeClass] = Counter()

    def add_task(self, category: str, counted: Mapping[int, TrialRow]) -> None:
        """Add a planned task with the trials that count for its attempts."""
        task = score_task(counted, k=self._k, strategy=self._strategy)
        self._count(task)
        self._score(category, task)
        self._add_metrics([row.metrics for row in task.evaluated if row.metrics])

    @property
    def tasks(self) -> int:
        return self._overall.tasks

    @property
    def overall(self) -> Estimate:
        """Of the primary metric, over all tasks."""
        return self._overall.estimate(planned=self.tasks * self._scores_per_task)

    @property
    def categories(self) -> dict[str, Estimate]:
        """Of the primary metric by category; empty if no task has one."""
        return {
            category: sample.estimate(planned=sample.tasks * self._scores_per_task)
            for category, sample in sorted(self._by_category.items())
        }

    @property
    def metrics(self) -> dict[str, Estimate]:
        """Of each further metric, over the evaluated attempts that have it."""
        return {
            name: sample.estimate(planned=self._planned) for name, sample in sorted(self._by_metric.items())
        }

    @property
    def counts(self) -> Counts:
        cancelled = self._by_outcome[OutcomeClass.CANCELLED]
        recorded = self._by_outcome.total()
        return Counts(
            planned=self._planned,
            finished=self._finished,
            failed=recorded - self._finished - cancelled,
            cancelled=cancelled,
            missing=self._planned - recorded,
            by_outcome={str(outcome): n for outcome, n in sorted(self._by_outcome.items()) if n},
        )

    def mean_by_draws(self, estimator: Callable[[int, int, int], float | None]) -> dict[str, float]:
        """
        Average an estimator of j attempts over the tasks, for every j that some task allows.

        Args:
            estimator: Of the attempts evaluated, the passes among them, and j.

        Returns:
            By j; empty where it says nothing: for one attempt, early stop and scalar scores.
        """
        if self._k == 1 or self._strategy == "pass" or not self._all_binary:
            return {}
        most = max((evaluated for evaluated, _ in self._tasks_by_passes), default=0)
        return {str(j): self._mean_of(estimator, j) for j in range(1, most + 1)}

    def _mean_of(self, estimator: Callable[[int, int, int], float | None], j: int) -> float:
        values: list[float] = []
        covered = 0
        for (evaluated, passed), tasks in self._tasks_by_passes.items():
            value = estimator(evaluated, passed, j)
            if value is not None:
                values.append(tasks * value)
                covered += tasks
        return math.fsum(values) / covered

    def _count(self, task: TaskScores) -> None:
        self._planned += task.planned
        for row in task.attempts:
            self._by_outcome[row.outcome] += 1
            self._finished += row.outcome is OutcomeClass.COMPLETED and row.score is not None

    def _score(self, category: str, task: TaskScores) -> None:
        successes = [row.success for row in task.evaluated]
        self._all_binary = self._all_binary and None not in successes
        self._tasks_by_passes[len(successes), successes.count(True)] += 1
        self._overall.add_task(task.scores, binary=task.binary)
        if self._has_categories:
            self._by_category[category or _UNCATEGORIZED].add_task(task.scores, binary=task.binary)

    def _add_metrics(self, reported: Sequence[Mapping[str, float]]) -> None:
        for name in {name for metrics in reported for name in metrics}:
            values = [metrics[name] for metrics in reported if name in metrics]
            self._by_metric[name].add_task(values, binary=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskScores:
    """
    What the attempts of one task come to.

    Args:
        attempts: The trials that count, those after a first success that makes them needless left out.
        planned: How many attempts there would be if nothing were missing.
        scores: One per evaluated attempt, or one in all under ``pass``; empty while that is open.
        binary: Whether each score is a pass (1) or a fail (0).
    """

    attempts: Sequence[TrialRow]
    planned: int
    scores: Sequence[float]
    binary: bool

    @property
    def evaluated(self) -> list[TrialRow]:
        """The attempts that have a score."""
        return [row for row in self.attempts if row.score is not None]


def scores_per_task(k: int, strategy: Strategy) -> int:
    """Return how many scores a task has when nothing is missing."""
    return k if strategy == "avg" else 1


def score_task(counted: Mapping[int, TrialRow], *, k: int, strategy: Strategy) -> TaskScores:
    """Score a task by the trials that count for its attempts."""
    attempts = [counted[number] for number in sorted(counted) if 1 <= number <= k]
    if strategy == "pass":
        attempts, planned = _until_first_success(attempts, k)
        return TaskScores(attempts=attempts, planned=planned, scores=_any_of(attempts, k), binary=True)
    evaluated = [row for row in attempts if row.score is not None]
    scores = [row.score for row in evaluated if row.score is not None]
    # A verdict may pass with part of the score; then the score itself is not just pass or fail.
    binary = scores == [row.success for row in evaluated]
    return TaskScores(attempts=attempts, planned=k, scores=scores, binary=binary)


def _any_of(attempts: Sequence[TrialRow], k: int) -> list[float]:
    """Return the one score of a task that passes if any attempt does, empty while that is open."""
    evaluated = [row for row in attempts if row.score is not None]
    if any(map(_is_success, evaluated)):
        return [1.0]
    return [0.0] if len(evaluated) == k else []


def _until_first_success(attempts: Sequence[TrialRow], k: int) -> tuple[list[TrialRow], int]:
    """Return the attempts up to the first success, and how many are planned with hindsight."""
    for position, row in enumerate(attempts, start=1):
        if _is_success(row):
            return list(attempts[:position]), row.attempt
    return list(attempts), k


def _is_success(row: TrialRow) -> bool:
    return row.score == 1.0 if row.success is None else row.success
