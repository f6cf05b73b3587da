"""From the scores of a group of tasks to their mean with interval, coverage and bounds."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

from ..records import Estimate
from .intervals import Interval, cluster_mean, unbounded_mean, wilson


class Sample:
    """
    The evaluated attempts of a group of tasks.

    The mean is taken over the tasks' means, so that a task with more evaluated attempts weighs no more.
    All sums are exact before they are rounded, so the order of the tasks does not matter.
    """

    def __init__(self) -> None:
        self.tasks = 0
        self._scores = array("d")
        self._task_means = array("d")
        self._binary = True

    def add_task(self, scores: Sequence[float], *, binary: bool) -> None:
        """
        Add a task.

        Args:
            scores: Of its evaluated attempts; may be empty.
            binary: Whether each of the scores is a pass (1) or a fail (0).
        """
        self.tasks += 1
        if scores:
            self._scores.extend(scores)
            self._task_means.append(math.fsum(scores) / len(scores))
            self._binary = self._binary and binary

    @property
    def value(self) -> float | None:
        """The mean, None when nothing was evaluated."""
        return math.fsum(self._task_means) / len(self._task_means) if self._task_means else None

    def estimate(self, *, planned: int) -> Estimate:
        """
        Compute the mean and all that says how far to trust it.

        Args:
            planned: How many scores there would be if nothing were missing.
        """
        evaluated = len(self._scores)
        low, high = self._interval() or (None, None)
        bound_low, bound_high = self._bounds(planned) or (None, None)
        return Estimate(
            value=self.value,
            low=low,
            high=high,
            method="none" if not evaluated else "wilson" if self._is_binomial() else "cluster",
            evaluated=evaluated,
            planned=planned,
            coverage=evaluated / planned if planned else 0.0,
            bound_low=bound_low,
            bound_high=bound_high,
        )

    def _interval(self) -> Interval | None:
        if not self._scores:
            return None
        if self._is_binomial():
            return wilson(math.fsum(self._scores), len(self._scores))
        return cluster_mean(self._task_means) if self._is_bounded() else unbounded_mean(self._task_means)

    def _bounds(self, planned: int) -> Interval | None:
        """Return the mean if all missing attempts scored 0, and if all scored 1."""
        if not planned or not self._is_bounded():
            return None
        total = math.fsum(self._scores)
        return total / planned, (total + planned - len(self._scores)) / planned

    def _is_binomial(self) -> bool:
        return self._binary and len(self._scores) == len(self._task_means)

    def _is_bounded(self) -> bool:
        return not self._scores or (min(self._scores) >= 0 and max(self._scores) <= 1)
