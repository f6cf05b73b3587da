"""95% intervals for rates and means: pure functions of numbers, without knowledge of trials or files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

Interval = tuple[float, float]

_Z = NormalDist().inv_cdf(0.975)
_SMALL_T = (12.7062, 4.3027, 3.1824, 2.7764)
"""The 97.5% quantile of Student's t for 1 to 4 degrees of freedom, where the expansion is too coarse."""
_PRIOR_SPREAD = 1 / 12
"""
What one imagined task adds to the observed spread: the variance of a score that may be anything in [0, 1].

A few tasks may agree by chance, all the more where passes are rare. This much doubt is all that is left when
the tasks show no spread, and carries no weight among many tasks that do.
"""


def wilson(successes: float, n: int) -> Interval:
    """
    Return the 95% score interval of a success rate.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    JASA 22 (1927) 209-212; recommended for all n by Brown, Cai and DasGupta, "Interval estimation for a
    binomial proportion", Statistical Science 16 (2001) 101-133.

    Returns:
        The ends, within [0, 1]; (0, 1) for n = 0, which says nothing.
    """
    return _score_interval(successes / n, n) if n else (0.0, 1.0)


def cluster_mean(task_means: Sequence[float]) -> Interval:
    """
    Return the 95% interval of the mean of scores in [0, 1], with tasks as clusters.

    Attempts of one task resemble each other, so only the spread between the tasks' means tells how sure
    their mean is. The variance of the means, as a share of the largest that scores in [0, 1] with this mean
    can have (that of pass or fail), gives the effective number of tasks: how many tasks with one binary
    attempt would tell as much. Wilson's formula for that number stays within [0, 1] and has a width even if
    all tasks agree. It is never wider than Wilson's for as many binary tasks, and the same for one task, and
    if all passed or all failed.

    Source: Franco, Little, Louis and Slud, "Comparative study of confidence intervals for proportions in
    complex sample surveys", Journal of Survey Statistics and Methodology 7 (2019) 334-364. They find that
    with an effective size straight from the sample every interval is too narrow, and steady it by a model;
    here an imagined task does.

    Args:
        task_means: One mean over the attempts per task.

    Returns:
        The ends, within [0, 1]; (0, 1) without tasks.
    """
    n = len(task_means)
    if not n:
        return 0.0, 1.0
    mean = math.fsum(task_means) / n
    squares = math.fsum((value - mean) ** 2 for value in task_means)
    largest = (n - 1) * mean * (1 - mean)
    share = min(1.0, (squares + _PRIOR_SPREAD) / (largest + _PRIOR_SPREAD))
    return _score_interval(mean, n / share)


def unbounded_mean(task_means: Sequence[float]) -> Interval | None:
    """
    Return the 95% t interval of the mean of numbers on any scale, with tasks as clusters.

    Returns:
        The ends; None if the tasks show no spread to judge by (fewer than two, or all equal).
    """
    n = len(task_means)
    if n < 2:
        return None
    mean = math.fsum(task_means) / n
    variance = math.fsum((value - mean) ** 2 for value in task_means) / (n - 1)
    if variance <= 0:
        return None
    reach = t_quantile(n - 1) * math.sqrt(variance / n)
    return mean - reach, mean + reach


def t_quantile(degrees: int) -> float:
    """
    Return the 97.5% quantile of Student's t, right to 0.011%.

    Source: the Cornish-Fisher expansion 26.7.5 in Abramowitz and Stegun, "Handbook of Mathematical
    Functions" (1964).
    """
    if degrees <= len(_SMALL_T):
        return _SMALL_T[degrees - 1]
    z = _Z
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / float(degrees) ** power for power, term in enumerate(terms))


def _score_interval(mean: float, n: float) -> Interval:
    square = _Z * _Z
    centre = mean + square / (2 * n)
    reach = _Z * math.sqrt(mean * (1 - mean) / n + square / (4 * n * n))
    scale = 1 + square / n
    # The mean lies inside by algebra; rounding must not move an end across it or out of [0, 1].
    low = max(0.0, min((centre - reach) / scale, mean))
    return low, min(1.0, max((centre + reach) / scale, mean))
