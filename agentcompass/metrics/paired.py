"""How two runs differ on the tasks that both evaluated, second minus first: pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from .intervals import Interval, t_quantile

SIGNIFICANCE = 0.05
POWER = 0.8

_Z = NormalDist().inv_cdf(1 - SIGNIFICANCE / 2)
_Z_POWER = NormalDist().inv_cdf(POWER)
_IMAGINED_TASKS = 2
"""One more task gained and one more lost: what the data could show next; no weight among many tasks."""
_IMAGINED_STEP = 0.5
"""
By how much these two differ where tasks are not just passed or failed.

In simulations with 2 and 4 attempts per task, down to 5 tasks and rates near 0, the interval then covers in
93.5% of the cases or more, 96% and more on average; the plain t interval sinks to 12% where tasks agree by
chance.
"""
_NO_DIFFERENCE = 1e-9
"""Smaller differences than this are rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """
    The mean difference over tasks, and how sure it is.

    Args:
        value: None without tasks.
        low: Lower end of the 95% interval.
        high: Its upper end.
        p: Two-sided, of the hypothesis that there is no difference; 1 without tasks.
        method: The test: exact for one pass or fail per task, by the spread between tasks for all else.
        further_tasks: About how many more tasks of this kind would settle it: a real difference of the
            observed size would then be significant with a chance of 80%. 0 if it is settled; None if there is
            no difference to settle.
    """

    value: float | None
    low: float
    high: float
    p: float
    method: Literal["exact_mcnemar", "paired_t"]
    further_tasks: int | None


def binary_difference(*, gained: int, lost: int, tasks: int) -> PairedDifference:
    """
    Compare two pass rates over the same tasks, each passed or failed once.

    The interval is that of Bonett and Price, "Adjusted Wald confidence interval for a difference of binomial
    proportions based on paired data", Journal of Educational and Behavioral Statistics 37 (2012) 479-488:
    Wald's after one imagined task gained and one lost. Recommended by Fagerland, Lydersen and Laake,
    "Recommended tests and confidence intervals for paired binomial proportions", Statistics in Medicine 33
    (2014) 2850-2875.

    The test is exact, hence a little more cautious than the interval: where it finds a difference, the
    interval leaves 0 out.

    Args:
        gained: Tasks that only the second passed.
        lost: Tasks that only the first passed.
        tasks: All of them.
    """
    low, high = _adjusted(gained - lost, gained + lost, tasks, step=1.0, quantile=_Z)
    value = (gained - lost) / tasks if tasks else None
    p = exact_mcnemar(gained, lost)
    return PairedDifference(
        value=value,
        **_around(value, low, high),
        p=p,
        method="exact_mcnemar",
        further_tasks=_further_tasks(gained - lost, gained + lost, tasks, step=1.0, p=p),
    )


def mean_difference(differences: Sequence[float]) -> PairedDifference:
    """
    Compare two means over the same tasks, with tasks as clusters.

    The paired t interval of the tasks' differences, after two imagined tasks as in ``binary_difference``,
    which keep it honest where few tasks differ; the test is that of the same t. Clusters: Miller, "Adding
    error bars to evals" (2024), section 3.

    Args:
        differences: Of each task's mean over its attempts, in [-1, 1].
    """
    n = len(differences)
    total, squares = math.fsum(differences), math.fsum(value * value for value in differences)
    degrees = max(1, n - 1)
    low, high = _adjusted(total, squares, n, step=_IMAGINED_STEP, quantile=t_quantile(degrees))
    value = total / n if n else None
    mean, error = _adjusted_mean(total, squares, n, step=_IMAGINED_STEP)
    p = student_p(mean / error, degrees)
    return PairedDifference(
        value=value,
        **_around(value, low, high),
        p=p,
        method="paired_t",
        further_tasks=_further_tasks(total, squares, n, step=_IMAGINED_STEP, p=p),
    )


def exact_mcnemar(gained: int, lost: int) -> float:
    """
    Return the exact two-sided p value of McNemar's test: of ``gained`` heads in tosses of a fair coin.

    Source: Q. McNemar, "Note on the sampling error of the difference between correlated proportions or
    percentages", Psychometrika 12 (1947) 153-157, by the binomial distribution.
    """
    n, fewer = gained + lost, min(gained, lost)
    likeliest = math.exp(_log_choose(n, fewer) - n * math.log(2))
    term, total = 1.0, 1.0  # in units of the likeliest, downwards
    for heads in range(fewer, 0, -1):
        term *= heads / (n - heads + 1)
        total += term
    return min(1.0, 2 * likeliest * total)


def student_p(t: float, degrees: int) -> float:
    """
    Return the chance that Student's t lies further from 0 than this.

    Source: the finite series 26.7.3 and 26.7.4 in Abramowitz and Stegun, "Handbook of Mathematical Functions"
    (1964).
    """
    angle = math.atan2(abs(t), math.sqrt(degrees))
    odd = degrees % 2
    square = math.cos(angle) ** 2
    term = math.cos(angle) if odd else 1.0
    terms = [term] if degrees > 1 else []
    for number in range(2 + odd, degrees - 1, 2):
        term *= square * (number - 1) / number
        terms.append(term)
    series = math.sin(angle) * math.fsum(terms)
    inside = (angle + series) * 2 / math.pi if odd else series
    return min(1.0, max(0.0, 1 - inside))


def holm(p_values: Sequence[float]) -> list[float]:
    """
    Correct p values for being several: the chance of one false finding among all stays below each.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
    Statistics 6 (1979) 65-70.

    Returns:
        The corrected values, in the order given.
    """
    corrected = [1.0] * len(p_values)
    highest = 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[at]))
        corrected[at] = highest
    return corrected


def needed_tasks(difference: float, mean_square: float) -> float:
    """
    Return how many tasks show a difference of this size with a chance of 80% at the level 0.05.

    Source: R. J. Connor, "Sample size for testing differences in proportions for the paired-sample design",
    Biometrics 43 (1987) 207-211; of pass-or-fail tasks the mean square is the share that differs.

    Args:
        difference: Of the means; not 0.
        mean_square: The mean of the squares of the tasks' differences.
    """
    spread = max(0.0, mean_square - difference * difference)
    root = _Z * math.sqrt(mean_square) + _Z_POWER * math.sqrt(spread)
    return (root / difference) ** 2


def _further_tasks(total: float, squares: float, n: int, *, step: float, p: float) -> int | None:
    """Find by bisection where Connor's formula asks for no more, the imagined tasks included."""
    if not n or abs(total / n) < _NO_DIFFERENCE:
        return None
    if p < SIGNIFICANCE:
        return 0

    def suffice(tasks: int) -> bool:
        growth = tasks / n
        with_imagined = tasks + _IMAGINED_TASKS
        difference = growth * total / with_imagined
        mean_square = (growth * squares + _IMAGINED_TASKS * step * step) / with_imagined
        return needed_tasks(difference, mean_square) <= tasks

    few, many = n, 2 * n
    while not suffice(many):
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if suffice(middle) else (middle, many)
    return many - n


def _adjusted(total: float, squares: float, n: int, *, step: float, quantile: float) -> Interval:
    mean, error = _adjusted_mean(total, squares, n, step=step)
    return mean - quantile * error, mean + quantile * error


def _adjusted_mean(total: float, squares: float, n: int, *, step: float) -> tuple[float, float]:
    """Return mean and standard error, the imagined tasks included; they keep the error above 0."""
    n += _IMAGINED_TASKS
    mean = total / n
    variance = (squares + _IMAGINED_TASKS * step * step) / n - mean * mean
    return mean, math.sqrt(variance / n)


def _around(value: float | None, low: float, high: float) -> dict[Literal["low", "high"], float]:
    """Keep the ends within [-1, 1], and rounding from moving one across the value."""
    inside = 0.0 if value is None else value
    return {"low": max(-1.0, min(low, inside)), "high": min(1.0, max(high, inside))}


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
