"""Unbiased estimates of what j attempts at a task would give, from n attempts of which c passed."""

from __future__ import annotations

from math import comb


def pass_at(n: int, c: int, j: int) -> float | None:
    """
    Estimate pass@j, the chance that at least one of j attempts passes: 1 - C(n-c, j) / C(n, j).

    Source: Chen et al., "Evaluating large language models trained on code" (2021), equation 1.

    Args:
        n: Attempts that were evaluated.
        c: How many of them passed.
        j: Attempts that are imagined.

    Returns:
        The value, correctly rounded; None if j > n, where it is not defined.
    """
    if j > n:
        return None
    draws = comb(n, j)
    return (draws - comb(n - c, j)) / draws  # one division of exact integers, hence one rounding


def pass_hat(n: int, c: int, j: int) -> float | None:
    """
    Estimate pass^j, the chance that all of j attempts pass: C(c, j) / C(n, j).

    Source: Yao et al., "tau-bench: a benchmark for tool-agent-user interaction in real-world domains"
    (2024), section 3.

    Args:
        n: Attempts that were evaluated.
        c: How many of them passed.
        j: Attempts that are imagined.

    Returns:
        The value, correctly rounded; None if j > n, where it is not defined.
    """
    return None if j > n else comb(c, j) / comb(n, j)
