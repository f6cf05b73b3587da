from __future__ import annotations

import math
import random
from functools import cache
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcompass.metrics.intervals import t_quantile
from agentcompass.metrics.paired import (
    PairedDifference,
    binary_difference,
    exact_mcnemar,
    holm,
    mean_difference,
    needed_tasks,
    student_p,
)

counts = st.tuples(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
differences = st.lists(st.integers(-12, 12).map(lambda n: n / 12), max_size=40)
extreme_differences = st.lists(st.floats(-1, 1), max_size=40)
p_values = st.lists(st.floats(0, 1), max_size=12)


def binary(numbers: tuple[int, int, int]) -> PairedDifference:
    gained, lost, same = numbers
    return binary_difference(gained=gained, lost=lost, tasks=gained + lost + same)


def assert_sound(difference: PairedDifference) -> None:
    assert 0 <= difference.p <= 1
    assert -1 <= difference.low < difference.high <= 1
    if difference.value is not None:
        assert difference.low <= difference.value <= difference.high
    if difference.further_tasks is not None:
        assert difference.further_tasks >= 0
        assert (difference.further_tasks == 0) == (difference.p < 0.05)


@given(counts)
def test_pass_rates_have_a_sound_difference(numbers: tuple[int, int, int]) -> None:
    """Also for no task, one task, no task that differs, and none that agrees."""
    assert_sound(binary(numbers))


@given(extreme_differences)
def test_means_have_a_sound_difference(values: list[float]) -> None:
    """Also for no task, one task, equal differences and tiny ones."""
    assert_sound(mean_difference(values))


@pytest.mark.parametrize(
    "values", [[], [0.0], [1.0], [-1.0], [0.1, 0.1], [0.0] * 50, [1.0] * 5, [5e-324], [1e-200] * 3]
)
def test_degenerate_differences_are_sound(values: list[float]) -> None:
    """Nothing divides by zero, and a lone value does not look certain."""
    difference = mean_difference(values)
    assert_sound(difference)
    assert difference.p > 0.02


@given(counts)
def test_swapping_the_runs_mirrors_the_pass_rates(numbers: tuple[int, int, int]) -> None:
    """Neither run is favoured."""
    gained, lost, same = numbers
    one, other = binary((gained, lost, same)), binary((lost, gained, same))
    assert one.value == (None if other.value is None else -other.value)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low), abs=1e-12)
    assert (one.p, one.further_tasks) == (other.p, other.further_tasks)


@given(counts)
def test_exact_test_is_the_more_cautious_one(numbers: tuple[int, int, int]) -> None:
    """What it finds significant has an interval without 0."""
    difference = binary(numbers)
    assert difference.p >= 0.05 or not difference.low <= 0 <= difference.high


@given(differences)
def test_swapping_the_runs_mirrors_the_means(values: list[float]) -> None:
    """Neither run is favoured."""
    one, other = mean_difference(values), mean_difference([-value for value in values])
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low), abs=1e-12)
    assert one.p == pytest.approx(other.p, abs=1e-12)
    assert one.further_tasks == other.further_tasks


@given(differences, st.randoms())
def test_order_of_tasks_does_not_matter(values: list[float], chance: random.Random) -> None:
    """All sums are exact before they are rounded."""
    shuffled = sorted(values, key=lambda _: chance.random())
    assert mean_difference(shuffled) == mean_difference(values)


@given(differences)
def test_interval_and_test_of_means_agree(values: list[float]) -> None:
    """The interval leaves 0 out just when p is below 0.05; their quantiles are right to 0.011%."""
    difference = mean_difference(values)
    if abs(difference.p - 0.05) > 1e-4:
        assert (difference.p < 0.05) == (not difference.low <= 0 <= difference.high)


# --- values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gained", "lost"), list(product(range(8), range(8))))
def test_mcnemar_agrees_with_enumeration(gained: int, lost: int) -> None:
    """All outcomes of so many tosses: the share of those at least as uneven."""
    tosses = list(product((0, 1), repeat=gained + lost))
    uneven = sum(abs(2 * sum(toss) - len(toss)) >= abs(gained - lost) for toss in tosses)
    assert exact_mcnemar(gained, lost) == pytest.approx(uneven / len(tosses), rel=1e-12)


@given(st.integers(0, 600), st.integers(0, 600))
def test_mcnemar_agrees_with_exact_integers(gained: int, lost: int) -> None:
    """The floating sum loses nothing that matters, however small the value."""
    n = gained + lost
    tail = sum(math.comb(n, heads) for heads in range(min(gained, lost) + 1))
    assert exact_mcnemar(gained, lost) == pytest.approx(min(1.0, 2 * tail / 2**n), rel=1e-9, abs=1e-300)


def test_mcnemar_of_a_large_benchmark_is_quick_and_finite() -> None:
    """Hundreds of thousands of tasks that differ, which no power of two in a float can hold."""
    assert exact_mcnemar(300_000, 300_000) == 1.0
    assert exact_mcnemar(0, 300_000) == 0.0
    assert exact_mcnemar(301_000, 299_000) == pytest.approx(0.00985, abs=1e-4)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 10, 29, 30, 1000, 100_001])
def test_student_p_inverts_the_quantile(degrees: int) -> None:
    """At the 97.5% quantile 5% lie outside."""
    assert student_p(t_quantile(degrees), degrees) == pytest.approx(0.05, rel=3e-3)
    assert student_p(0.0, degrees) == 1.0
    assert student_p(-2.0, degrees) == student_p(2.0, degrees)


@pytest.mark.parametrize(
    ("t", "degrees", "p"),
    [
        (63.657, 1, 0.01),
        (9.925, 2, 0.01),
        (5.841, 3, 0.01),
        (3.169, 10, 0.01),
        (2.75, 30, 0.01),
        (1.812, 10, 0.1),
    ],
)
def test_student_p_agrees_with_the_tables(t: float, degrees: int, p: float) -> None:
    """Odd and even degrees have series of their own."""
    assert student_p(t, degrees) == pytest.approx(p, rel=1e-3)


def test_interval_of_pass_rates_is_bonett_and_price() -> None:
    """Worked by hand: 12 gained, 4 lost of 48 give 13/50 and 5/50 after the adjustment."""
    difference = binary_difference(gained=12, lost=4, tasks=48)
    reach = 1.959964 * math.sqrt((0.36 - 0.16**2) / 50)
    assert (difference.low, difference.high) == pytest.approx((0.16 - reach, 0.16 + reach), abs=1e-6)
    assert difference.value == pytest.approx(8 / 48)


def test_needed_tasks_is_connors_example() -> None:
    """Discordant shares of 0.45 and 0.05 need 23 pairs for 80% power."""
    assert math.ceil(needed_tasks(0.4, 0.5)) == 23


# --- what the numbers promise -----------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [5, 10, 30])
def test_interval_of_pass_rates_covers(tasks: int) -> None:
    """The exact coverage, over all outcomes, for many true rates: 95% nearly always, never far below."""
    outcomes = [(g, lost) for g in range(tasks + 1) for lost in range(tasks + 1 - g)]
    ends = {pair: binary_difference(gained=pair[0], lost=pair[1], tasks=tasks) for pair in outcomes}
    coverage = []
    for gain, loss in [
        (0.01, 0.0),
        (0.02, 0.02),
        (0.1, 0.01),
        (0.1, 0.1),
        (0.3, 0.05),
        (0.4, 0.4),
        (0.8, 0.1),
    ]:
        inside = [pair for pair in outcomes if ends[pair].low <= gain - loss <= ends[pair].high]
        coverage.append(math.fsum(chance(*pair, tasks, gain, loss) for pair in inside))
    assert min(coverage) > 0.925
    assert math.fsum(coverage) / len(coverage) > 0.95


def chance(gained: int, lost: int, tasks: int, gain: float, loss: float) -> float:
    ways = math.comb(tasks, gained) * math.comb(tasks - gained, lost)
    return float(ways * gain**gained * loss**lost * (1 - gain - loss) ** (tasks - gained - lost))


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "attempts"), [(5, 2), (20, 2), (20, 4), (60, 3)])
@pytest.mark.parametrize("agreement", [0.2, 1.0, 5.0])
def test_interval_of_means_covers(tasks: int, attempts: int, agreement: float) -> None:
    """Simulated: few tasks, attempts that resemble each other, and rare passes."""
    true, step, runs = 0.04, 0.08, 1000
    seeded = random.Random(f"{tasks} {attempts} {agreement}")
    covered = 0
    for _ in range(runs):
        values = []
        for _ in range(tasks):
            rate = (1 - step) * seeded.betavariate(0.2 * agreement, 0.8 * agreement)
            better = rate + step * seeded.choice((0, 1))
            passed = [sum(seeded.random() < chance for _ in range(attempts)) for chance in (rate, better)]
            values.append((passed[1] - passed[0]) / attempts)
        difference = mean_difference(values)
        covered += difference.low <= true <= difference.high
    assert covered / runs > 0.93


@pytest.mark.slow
@pytest.mark.parametrize(("gained", "lost", "tasks"), [(3, 0, 20), (9, 4, 100), (12, 7, 164), (2, 1, 10)])
def test_further_tasks_settle_it_four_times_in_five(gained: int, lost: int, tasks: int) -> None:
    """Simulated: with so many more, the exact test finds a real difference of that size."""
    further = binary_difference(gained=gained, lost=lost, tasks=tasks).further_tasks
    assert further is not None
    seeded, p_value, runs = random.Random(1), cache(exact_mcnemar), 400
    settled = 0
    for _ in range(runs):
        drawn = [seeded.random() * tasks for _ in range(tasks + further)]
        settled += (
            p_value(sum(u < gained for u in drawn), sum(gained <= u < gained + lost for u in drawn)) < 0.05
        )
    assert 0.73 < settled / runs < 0.97


# --- Holm -------------------------------------------------------------------------------------------


def test_holm_gives_published_values() -> None:
    """The least by their number, the next by one fewer, and so on; never less than the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.3]) == [0.3]


@given(p_values)
def test_holm_keeps_the_order_and_never_flatters(values: list[float]) -> None:
    """Corrected values are at least the raw ones, at most their number times as large, and as ordered."""
    corrected = holm(values)
    for raw, value in zip(values, corrected, strict=True):
        assert raw <= value <= 1
    ranked = sorted(zip(values, corrected, strict=True))
    assert [value for _, value in ranked] == sorted(corrected)
    if values:
        assert min(corrected) == min(1.0, len(values) * min(values))
