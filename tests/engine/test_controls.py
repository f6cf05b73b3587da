"""What the attempts of a control say about a task."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agentcompass.engine import registry
from agentcompass.engine.controls import Control, Observed, answer_form, controls
from agentcompass.records import Failure, OutcomeClass, TrialRecord

CONTROLS = {control.name: control for control in controls("auto", "docker")}


def observed(
    *scores: float | None, success: bool = False, outcome: OutcomeClass = OutcomeClass.COMPLETED
) -> Mapping[int, Observed]:
    """Return attempts with these scores, as scalar ones or as pass and fail."""
    failure = None if outcome is OutcomeClass.COMPLETED else Failure(error="E", phase="verify", message="m")
    records = [
        TrialRecord(
            task_id="t",
            task_hash="h",
            attempt=number,
            trial=1,
            outcome=outcome,
            score=score,
            success=score == 1 if success else None,
            failure=failure,
            details=f"details/t.{number}.json",
        )
        for number, score in enumerate(scores, start=1)
    ]
    return {
        record.attempt: Observed(record=record, evidence=f"x/{record.details}", verdict=lambda: "so it is")
        for record in records
    }


def kinds(control: Control, attempts: Mapping[int, Observed]) -> list[str]:
    return [finding.kind for finding in control.findings(attempts)]


@pytest.mark.parametrize("success", [True, False])
@pytest.mark.parametrize(
    ("scores", "found"),
    [((1, 1, 1, 1, 1), []), ((0, 0, 0, 0, 0), ["reference_fails"]), ((1, 1, 1, 1, 0), ["flaky"])],
)
def test_reference_must_pass_each_time(scores: tuple[float, ...], found: list[str], success: bool) -> None:
    """Never is a wrong reference, sometimes a flaky task; a scalar score passes at 1."""
    assert kinds(CONTROLS["oracle"], observed(*scores, success=success)) == found


def test_flaky_task_shows_both_sides() -> None:
    """An attempt that failed and one that passed."""
    [finding] = CONTROLS["oracle"].findings(observed(1, 0.5, 1, 1, 1))
    assert finding.evidence == ["x/details/t.2.json", "x/details/t.1.json"]
    assert finding.explanation == "the reference solution passes 4 of 5 times: so it is"


@pytest.mark.parametrize("name", ["null", "idle_patch", "empty", "forger"])
def test_others_must_fail(name: str) -> None:
    """A part of a scalar score is no pass."""
    assert kinds(CONTROLS[name], observed(0, 0.9)) == []
    assert len(kinds(CONTROLS[name], observed(0, 1.0))) == 1


@pytest.mark.parametrize("outcome", [one for one in OutcomeClass if one is not OutcomeClass.COMPLETED])
def test_control_that_broke_tells_nothing(outcome: OutcomeClass) -> None:
    """Whatever the engine makes of its score, it is a gap and no finding."""
    attempts = observed(0, 0, 0, 0, 0, outcome=outcome)
    assert kinds(CONTROLS["oracle"], attempts) == []
    gaps = list(CONTROLS["oracle"].missing(attempts))
    assert [gap.attempt for gap in gaps] == [1, 2, 3, 4, 5]
    assert (gaps[0].outcome, gaps[0].error) == (outcome, "E: m")


def test_attempt_that_never_ran_is_a_gap() -> None:
    """The others still tell what they tell."""
    attempts = observed(0, 0)
    assert kinds(CONTROLS["oracle"], attempts) == ["reference_fails"]
    assert [gap.outcome for gap in CONTROLS["oracle"].missing(attempts)] == ["missing"] * 3


@pytest.mark.parametrize(
    ("benchmark", "form"),
    [("humaneval", "code"), ("jsonl", "text"), ("swebench_verified", "patch"), ("fake", "auto")],
)
def test_benchmarks_say_what_they_take(benchmark: str, form: str) -> None:
    """One that says nothing gets everything tried."""
    assert answer_form(benchmark) == form


def test_unknown_form_is_as_good_as_none() -> None:
    """A word of a later version, or a slip."""

    class Odd:
        answer_form = "song"

    before = {key: dict(value) for key, value in registry._registered.items()}
    registry.benchmark("odd")(Odd)
    try:
        assert answer_form("odd") == "auto"
    finally:
        registry._registered.clear()
        registry._registered.update(before)


def test_what_cannot_be_handed_in_is_not_tried() -> None:
    """A patch for answers in words, or a search of a developer's whole disk."""
    local = {control.name: control for control in controls("text", "local")}
    assert "idle_patch" not in local
    assert local["snoop"].params == {"everywhere": False}
    assert CONTROLS["snoop"].params == {"everywhere": True}
