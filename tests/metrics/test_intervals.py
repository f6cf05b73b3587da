from __future__ import annotations

import math
import random
from math import comb, exp, fsum, lgamma
from statistics import fmean

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentcompass.metrics.intervals import Interval, cluster_mean, t_quantile, unbounded_mean, wilson

task_means = st.lists(st.integers(0, 64).map(lambda n: n / 64), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (81, 263, 0.2553, 0.3662), (1, 1, 0.2065, 1.0)],
)
def test_wilson_gives_published_values(successes: int, n: int, low: float, high: float) -> None:
    """81 of 263 is the example of Newcombe (1998)."""
    assert wilson(successes, n) == pytest.approx((low, high), abs=6e-5)


def test_no_observations_leave_everything_possible() -> None:
    """Without data the interval is the whole range, and the mean of an unbounded metric has none."""
    assert wilson(0, 0) == (0.0, 1.0)
    assert cluster_mean([]) == (0.0, 1.0)
    assert unbounded_mean([]) is None


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.70620), (2, 4.30265), (4, 2.77645), (5, 2.57058), (10, 2.22814), (30, 2.04227), (1000, 1.96234)],
)
def test_t_quantile_agrees_with_the_tables(degrees: int, quantile: float) -> None:
    """The expansion is good enough where the table of exact values ends."""
    assert t_quantile(degrees) == pytest.approx(quantile, rel=1.1e-4)


@pytest.mark.parametrize("passed", [0.0, 1.0])
def test_tasks_that_all_agree_give_no_certainty(passed: float) -> None:
    """All pass or all fail: as wide as Wilson's interval for that many tasks."""
    assert cluster_mean([passed] * 20) == wilson(20 * passed, 20)


@pytest.mark.parametrize("n", [1, 2, 5, 100])
def test_constant_scalars_keep_a_width_that_shrinks_with_tasks(n: int) -> None:
    """Equal scores are no proof that the next one is equal too."""
    low, high = cluster_mean([0.3] * n)
    assert low < 0.3 < high
    assert high - low > 0.2 / n


def test_one_task_is_one_observation_however_many_attempts() -> None:
    """A single task's mean is as uncertain as a single binary observation."""
    low, high = cluster_mean([0.5])
    assert (low, high) == pytest.approx((0.0546, 0.9454), abs=1e-4)


@pytest.mark.slow
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
@example([5e-324, 5e-324])
def test_interval_is_finite_and_contains_its_mean(means: list[float]) -> None:
    """Whatever the scores: 0 <= low <= mean <= high <= 1, with a width."""
    low, high = cluster_mean(means)
    mean = math.fsum(means) / len(means)
    assert 0 <= low <= mean <= high <= 1
    assert high > low


@pytest.mark.slow
@given(task_means)
def test_interval_mirrors_with_its_scores(means: list[float]) -> None:
    """Scoring failure instead of success turns the interval round."""
    low, high = cluster_mean(means)
    assert cluster_mean([1 - mean for mean in means]) == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_unbounded_mean_is_a_t_interval() -> None:
    """Numbers on any scale get mean +/- t * s / sqrt(n)."""
    interval = unbounded_mean([10.0, 12.0, 14.0])
    assert interval == pytest.approx((12 - 4.30265 * 2 / 3**0.5, 12 + 4.30265 * 2 / 3**0.5), rel=1e-4)


@pytest.mark.parametrize("means", [[7.0], [7.0, 7.0, 7.0]])
def test_unbounded_mean_without_spread_has_no_interval(means: list[float]) -> None:
    """One task, or tasks that agree, do not tell the scale of the error."""
    assert unbounded_mean(means) is None


def _wilson_coverages(n: int) -> list[float]:
    """Return the exact probability that Wilson's interval contains the rate, for rates from 0.02 to 0.98."""
    intervals = [wilson(successes, n) for successes in range(n + 1)]
    return [
        fsum(
            comb(n, successes) * p**successes * (1 - p) ** (n - successes)
            for successes, interval in enumerate(intervals)
            if _covers(interval, p)
        )
        for p in (percent / 100 for percent in range(2, 99, 4))
    ]


@pytest.mark.parametrize("n", [5, 6, 7, 8, 10, 15, 20, 30, 50, 100, 200, 500])
def test_wilson_covers_95_percent(n: int) -> None:
    """
    Averaged over rates from 0.02 to 0.98, the true rate lies inside in 94.5 to 96% of the samples.

    The average is what Brown, Cai and DasGupta (2001) judge by: with so few possible results as n + 1, the
    coverage of single rates must jump, whatever the interval.
    """
    assert fmean(_wilson_coverages(n)) == pytest.approx(0.9525, abs=0.0075)


@pytest.mark.parametrize(
    ("n", "least", "most"),
    [(5, 0.85, 0.993), (10, 0.91, 0.984), (20, 0.92, 0.98), (50, 0.92, 0.98), (100, 0.93, 0.975)],
)
def test_wilson_jumps_around_95_percent_within_known_limits(n: int, least: float, most: float) -> None:
    """What the documentation says about single rates is what the formula gives."""
    coverages = _wilson_coverages(n)
    assert least <= min(coverages) < max(coverages) <= most


@pytest.mark.parametrize("n", [200, 500])
def test_wilson_covers_every_rate_when_tasks_are_many(n: int) -> None:
    """From 200 tasks on, every single rate is within 2 points of 95%."""
    assert all(0.93 <= coverage <= 0.97 for coverage in _wilson_coverages(n))


def _covers(interval: Interval, value: float) -> bool:
    return interval[0] <= value <= interval[1]


_RATES = (0.02, 0.1, 0.18, 0.26, 0.34, 0.42, 0.5)
"""Those above 0.5 mirror them."""


def _passes(k: int, rate: float, likeness: float) -> list[float]:
    """Return how likely 0 to k passes are if tasks differ by a Beta distribution (the beta-binomial)."""
    scale = 1 / likeness - 1
    a, b = rate * scale, (1 - rate) * scale

    def log_beta(x: float, y: float) -> float:
        return lgamma(x) + lgamma(y) - lgamma(x + y)

    return [comb(k, c) * exp(log_beta(c + a, k - c + b) - log_beta(a, b)) for c in range(k + 1)]


def _clustered_coverage(tasks: int, *, k: int, rate: float, likeness: float, samples: int) -> float:
    """Return the share of simulated runs whose interval holds the rate; likeness is that within a task."""
    rng = random.Random(f"{tasks} {k} {rate} {likeness}")
    weights = _passes(k, rate, likeness)
    means = [passes / k for passes in range(k + 1)]
    return fmean(_covers(cluster_mean(rng.choices(means, weights, k=tasks)), rate) for _ in range(samples))


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("tasks", [5, 10, 20, 50, 150, 500])
def test_clustered_interval_covers_95_percent(tasks: int, k: int) -> None:
    """Averaged over rates and likenesses, coverage is within 2 points of 95%, also for 5 tasks."""
    coverage = fmean(
        _clustered_coverage(tasks, k=k, rate=rate, likeness=likeness, samples=max(60, 4000 // tasks))
        for rate in _RATES
        for likeness in (0.1, 0.4, 0.8)
    )
    assert coverage == pytest.approx(0.95, abs=0.02)


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.timeout(120)
@pytest.mark.parametrize("tasks", [5, 10, 20, 50, 150])
def test_clustered_interval_fails_no_single_case_by_far(tasks: int) -> None:
    """No rate, likeness and number of attempts is covered below 91%, rare passes included."""
    coverages = {
        (k, rate, likeness): _clustered_coverage(tasks, k=k, rate=rate, likeness=likeness, samples=2000)
        for k in (2, 5, 32)
        for rate in _RATES
        for likeness in (0.1, 0.4, 0.8)
    }
    assert {case: coverage for case, coverage in coverages.items() if coverage < 0.91} == {}
    assert 0.93 <= fmean(coverages.values()) <= 0.97


@given(task_means)
def test_more_attempts_never_widen_an_interval(means: list[float]) -> None:
    """Partial passes tell at least as much as as many tasks of pass or fail with the same mean."""
    low, high = cluster_mean(means)
    widest_low, widest_high = wilson(math.fsum(means), len(means))
    assert widest_low - 1e-12 <= low
    assert high <= widest_high + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [5, 20, 100])
def test_scalar_interval_covers_95_percent(tasks: int) -> None:
    """Scalar scores, from bell-shaped to nearly pass or fail, are covered as promised, and rather more."""
    rng = random.Random(tasks)
    hits = [
        _covers(cluster_mean([rng.betavariate(mean * size, (1 - mean) * size) for _ in range(tasks)]), mean)
        for mean in (0.05, 0.1, 0.3, 0.5)
        for size in (0.25, 1, 2, 10)
        for _ in range(250)
    ]
    assert 0.93 <= fmean(hits) <= 0.985
