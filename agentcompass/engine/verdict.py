"""Check what a verifier returned before it becomes a score."""

from __future__ import annotations

import math

from ..errors import VerifierError
from ..protocols import Verdict


def as_verdict(value: object) -> Verdict:
    """
    Turn a verifier's return value into a verdict: a bool is pass or fail, a number a scalar score.

    Raises:
        VerifierError: It is neither, or not finite, or outside [0, 1]: the attempt stays unscored.
    """
    match value:
        case Verdict():
            verdict = value
        case bool():
            return Verdict.passed(value)
        case int() | float():
            verdict = Verdict(score=float(value))
        case _:
            raise VerifierError(
                f"the verifier returned {value!r:.100}; it must be a Verdict, a bool or a number in [0, 1]"
            )
    _check_number("score", verdict.score)
    if not 0 <= verdict.score <= 1:
        raise VerifierError(f"the verifier returned the score {verdict.score!r}; it must be in [0, 1]")
    for name, number in verdict.metrics.items():
        _check_number(f"metric {name!r}", number)
    return verdict


def _check_number(what: str, number: object) -> None:
    if not isinstance(number, int | float) or not math.isfinite(number):
        raise VerifierError(f"the verifier returned {number!r:.100} as {what}; it must be a finite number")
