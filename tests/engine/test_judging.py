"""Verdicts: what counts as one, and that a judge's trouble is never held against the answer."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from agentcompass.engine import registry
from agentcompass.errors import ConfigError
from agentcompass.protocols import Outcome, Trial
from agentcompass.records import OutcomeClass, RunStatus

from . import judges
from .lab import RIGHT, Lab, trials

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(autouse=True)
def judges_are_registered() -> Iterator[None]:
    """Offer the benchmarks by their class names."""
    before = {key: dict(value) for key, value in registry._registered.items()}
    for cls in (
        judges.OneTask,
        judges.Catastrophic,
        judges.Crashing,
        judges.SlowLoading,
        judges.InSession,
        judges.Hanging,
    ):
        registry.benchmark(cls.__name__)(cls)
    yield
    registry._registered.clear()
    registry._registered.update(before)


@pytest.mark.parametrize(
    ("value", "score"), [("true", 1.0), ("half", 0.5), ("one", 1.0)], ids=["true", "half", "one"]
)
async def test_numbers_and_bools_are_scores(lab: Lab, value: str, score: float) -> None:
    """A grader may return a bool or a number in [0, 1]."""
    result = await lab.run(benchmark="OneTask", benchmark_params={"value": value})
    assert result.metrics is not None
    assert result.metrics.score.value == score


@pytest.mark.parametrize("value", ["nan", "inf", "text nan", "none", "text", "too large", "nan metric"])
async def test_anything_else_is_unscored_with_a_reason(lab: Lab, value: str) -> None:
    """A value that is no score is missing data, never 0, and no NaN reaches a file."""
    result = await lab.run(benchmark="OneTask", benchmark_params={"value": value}, max_retries=0)
    [record] = trials(result)
    assert record.score is None
    assert record.outcome is OutcomeClass.INFRA_ERROR
    assert record.failure is not None
    assert "the verifier returned" in record.failure.message
    assert result.metrics is not None
    assert result.metrics.score.value is None


async def test_catastrophic_grader_is_bounded(lab: Lab) -> None:
    """A regular expression that never ends costs its own attempt only, and within the deadline."""
    with anyio.fail_after(15):
        result = await lab.run(benchmark="Catastrophic", verifier_timeout_seconds=0.5, max_retries=0)
    [record] = trials(result)
    assert record.failure is not None
    assert (record.failure.error, record.failure.phase) == ("PhaseTimeoutError", "verify")
    assert record.outcome is OutcomeClass.INFRA_ERROR


async def test_hanging_verifier_is_bounded(lab: Lab) -> None:
    """So does a verifier on the event loop."""
    result = await lab.run(benchmark="Hanging", verifier_timeout_seconds=0.05, max_retries=0)
    failure = trials(result)[0].failure
    assert failure is not None
    assert failure.phase == "verify"


async def test_crashing_grader_is_missing_data(lab: Lab) -> None:
    """An exception in the grader says nothing about the answer."""
    result = await lab.run(benchmark="Crashing", max_retries=0)
    failure = trials(result)[0].failure
    assert failure is not None
    assert failure.error == "VerifierError"
    assert "FileNotFoundError: reward.txt" in failure.message


async def test_loading_that_takes_too_long_is_refused(lab: Lab) -> None:
    """A data set that never arrives ends in an error that names the option."""
    with anyio.fail_after(15):
        result = await lab.run(benchmark="SlowLoading", load_timeout_seconds=0.5)
    assert result.status is RunStatus.FAILED
    assert isinstance(result.error, ConfigError)
    assert "load_timeout_seconds" in str(result.error)


async def test_verifier_sees_what_the_agent_left_even_when_it_was_cut(lab: Lab) -> None:
    """With a reused session the work of a timed-out agent is verified."""

    async def agent(trial: Trial) -> Outcome:
        await trial.session.write("result.txt", b"done")
        await anyio.sleep_forever()
        return RIGHT

    result = await lab.run(agent, benchmark="InSession", needs_session=True, task_timeout_seconds=0.1)
    [record] = trials(result)
    assert record.outcome is OutcomeClass.TIMED_OUT
    assert record.score == 1.0


async def test_hidden_fields_reach_no_agent(lab: Lab) -> None:
    """Neither the task that an agent sees nor its session holds the reference or the tests."""
    seen: list[str] = []

    async def agent(trial: Trial) -> Outcome:
        found = [repr(trial.task), repr(trial.reference), repr(trial.hidden), repr(trial.session)]
        seen.extend(found)
        return RIGHT

    await lab.run(agent, benchmark="OneTask", needs_session=True, resumable=False)
    assert seen
    assert "CANARY" not in "".join(seen)
