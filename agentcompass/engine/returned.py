"""Check what components return, so that a slip in one becomes a clear error and never a broken record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ..errors import ConfigError, VerifierError
from ..protocols import ImageBuild, Outcome, Task, Verdict


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
    wrong = _wrong_field(
        verdict, success=(bool, type(None)), metrics=Mapping, explanation=str, output=Mapping
    )
    if wrong:
        raise VerifierError(f"the verifier returned a Verdict whose {wrong}")
    return verdict


def _check_number(what: str, number: object) -> None:
    if not isinstance(number, int | float) or not math.isfinite(number):
        raise VerifierError(f"the verifier returned {number!r:.100} as {what}; it must be a finite number")


def as_outcome(value: object) -> Outcome:
    """
    Check what a harness handed in.

    Raises:
        TypeError: It is no ``Outcome``, or a field has the wrong type: a bug of the harness.
    """
    if not isinstance(value, Outcome):
        raise TypeError(f"the harness returned {value!r:.100}; it must be an Outcome")
    wrong = _wrong_field(value, answer=(str, type(None)), artifacts=Mapping, stop_reason=str)
    if wrong:
        raise TypeError(f"the harness returned an Outcome whose {wrong}")
    items: Iterable[tuple[object, object]] = value.artifacts.items()
    for name, content in items:
        if not isinstance(name, str) or not isinstance(content, bytes):
            raise TypeError(f"the harness returned the artifact {name!r:.100}; it must be text to bytes")
    return value


def as_task(value: object) -> Task:
    """
    Check what a benchmark yielded.

    Raises:
        ConfigError: It is no ``Task``, or a field has the wrong type.
    """
    if not isinstance(value, Task):
        raise ConfigError(f"load() yielded {value!r:.100}; it must yield Tasks")
    wrong = _wrong_field(
        value,
        id=str,
        prompt=str,
        question=str,
        category=str,
        files=Mapping,
        reference=(str, type(None)),
        hidden=Mapping,
        image=str,
        build=(ImageBuild, type(None)),
        timeout_seconds=(int, float, type(None)),
        verifier_timeout_seconds=(int, float, type(None)),
    )
    if wrong:
        raise ConfigError(f"load() yielded the task {value.id!r:.100} whose {wrong}")
    return value


def _wrong_field(value: object, **types: type | tuple[type, ...]) -> str:
    """Describe the first field that has none of its types; empty if all are right."""
    for name, allowed in types.items():
        found = getattr(value, name)
        if not isinstance(found, allowed):
            names = [kind.__name__ for kind in (allowed if isinstance(allowed, tuple) else (allowed,))]
            wanted = " or ".join(name.replace("NoneType", "None") for name in names)
            return f"{name} is {found!r:.100}; it must be {wanted}"
    return ""
