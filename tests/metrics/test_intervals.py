from __future__ import annotations

import math
import random
from math import comb
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


def _wilson_coverage(n: int, p: float) -> float:
    """Return the exact probability that Wilson's interval contains p."""
    covered = 0.0
    for successes in range(n + 1):
        low, high = wilson(successes, n)
        if low <= p <= high:
            covered += comb(n, successes) * p**successes * (1 - p) ** (n - successes)
    return covered


@pytest.mark.parametrize("n", [5, 10, 20, 50, 100, 500])
def test_wilson_covers_95_percent(n: int) -> None:
    """Averaged over rates from 0.02 to 0.98, the true rate lies inside in 94.5 to 96% of the samples."""
    assert fmean(_wilson_coverage(n, percent / 100) for percent in range(2, 99, 4)) == pytest.approx(
        0.9525, abs=0.0075
    )


def _covers(interval: Interval, value: float) -> bool:
    return interval[0] <= value <= interval[1]


def _sample(rng: random.Random, tasks: int, k: int, mean: float, likeness: float) -> list[float]:
    """Draw means of k binary attempts per task; likeness is the correlation within a task."""
    scale = 1 / likeness - 1
    means = []
    for _ in range(tasks):
        rate = rng.betavariate(mean * scale, (1 - mean) * scale)
        means.append(sum(rng.random() < rate for _ in range(k)) / k)
    return means


def _clustered_coverage(tasks: int) -> float:
    """Return the share of hits over many rates, likenesses within tasks and numbers of attempts."""
    rng = random.Random(tasks)
    return fmean(
        _covers(cluster_mean(_sample(rng, tasks, k, mean, likeness)), mean)
        for mean in (0.05, 0.2, 0.5, 0.8, 0.95)
        for likeness in (0.1, 0.4, 0.8)
        for k in (2, 5)
        for _ in range(3000 // tasks + 60)
    )


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [15, 50, 150])
def test_clustered_interval_covers_95_percent(tasks: int) -> None:
    """From 15 tasks on, average coverage is within 2 points of 95%."""
    assert _clustered_coverage(tasks) == pytest.approx(0.95, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [5, 10])
def test_clustered_interval_of_few_tasks_errs_on_the_wide_side(tasks: int) -> None:
    """With fewer tasks the interval covers more than it promises, never less."""
    assert 0.95 <= _clustered_coverage(tasks) < 0.995


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [5, 20, 100])
def test_scalar_interval_covers_95_percent(tasks: int) -> None:
    """Scalar scores of moderate skew are covered at least as promised, give or take 2.5 points."""
    rng = random.Random(tasks)
    hits = [
        _covers(cluster_mean([rng.betavariate(mean * size, (1 - mean) * size) for _ in range(tasks)]), mean)
        for mean in (0.3, 0.5, 0.7)
        for size in (1, 2, 10)
        for _ in range(400)
    ]
    assert fmean(hits) > 0.925
