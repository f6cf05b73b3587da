from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcompass.metrics.passk import pass_at, pass_hat


@st.composite
def draws(draw: st.DrawFn) -> tuple[int, int, int]:
    n = draw(st.integers(1, 9))
    return n, draw(st.integers(0, n)), draw(st.integers(1, n))


@pytest.mark.parametrize(
    ("n", "c", "j", "expected"),
    [
        (2, 0, 5, None),
        (99, 0, 100, None),
        (1, 1, 2, None),
        (0, 0, 1, None),
        (5, 5, 5, 1.0),
        (10, 3, 1, 0.3),
    ],
)
def test_pass_at_is_undefined_for_fewer_attempts_than_draws(
    n: int, c: int, j: int, expected: float | None
) -> None:
    """With n < j there is no value, neither 0 nor 1; with j = 1 it is the pass rate."""
    assert pass_at(n, c, j) == expected
    assert pass_hat(n, c, j) == expected


@given(draws())
def test_both_agree_with_counting_all_subsets(case: tuple[int, int, int]) -> None:
    """The formulas equal the share of the j-subsets with any pass, and with passes only."""
    n, c, j = case
    subsets = list(combinations([True] * c + [False] * (n - c), j))
    assert pass_at(n, c, j) == sum(map(any, subsets)) / len(subsets)
    assert pass_hat(n, c, j) == sum(map(all, subsets)) / len(subsets)


@pytest.mark.parametrize(
    ("n", "c", "j"), [(5000, 1, 2500), (5000, 4999, 2500), (3000, 1500, 7), (4000, 2, 1)]
)
def test_thousands_of_attempts_stay_exact(n: int, c: int, j: int) -> None:
    """Large binomials neither overflow nor cancel: the result is the exact fraction, rounded once."""
    none_passes = all_pass = Fraction(1)
    for drawn in range(j):
        none_passes *= Fraction(max(n - c - drawn, 0), n - drawn)
        all_pass *= Fraction(max(c - drawn, 0), n - drawn)
    assert pass_at(n, c, j) == float(1 - none_passes)
    assert pass_hat(n, c, j) == float(all_pass)


@given(draws())
def test_more_draws_help_any_and_hurt_all(case: tuple[int, int, int]) -> None:
    """pass@j never falls and pass^j never rises with j; both lie in [0, 1] and meet at j = 1."""
    n, c, j = case
    any_of = [pass_at(n, c, draw) or 0.0 for draw in range(1, j + 1)]
    all_of = [pass_hat(n, c, draw) or 0.0 for draw in range(1, j + 1)]
    assert any_of == sorted(any_of)
    assert all_of == sorted(all_of, reverse=True)
    assert any_of[0] == all_of[0] == c / n
    assert all(0 <= value <= 1 for value in any_of + all_of)
