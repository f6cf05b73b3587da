"""Examiners collect evidence in a session and grade it later; benchmarks may set up the agent's session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec
import pytest
from anyio import to_thread

from agentcompass.engine import registry
from agentcompass.errors import HarnessError
from agentcompass.protocols import Outcome, Trial
from agentcompass.records import Detail, OutcomeClass, TrialRecord
from agentcompass.store.run import read_detail

from . import judges
from .lab import Agent, Lab, trials

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(autouse=True)
def examined_is_registered() -> Iterator[None]:
    """Offer the benchmark by its class name."""
    before = {key: dict(value) for key, value in registry._registered.items()}
    registry.benchmark("Examined")(judges.Examined)
    yield
    registry._registered.clear()
    registry._registered.update(before)


def answering(answer: str | None) -> Agent:
    """Make an agent that hands in an answer."""

    async def agent(trial: Trial) -> Outcome:
        return Outcome(answer=answer)

    return agent


async def run_one(lab: Lab, agent: Agent, *, place: str = "fresh") -> tuple[TrialRecord, Detail, Path]:
    result = await lab.run(
        agent, benchmark="Examined", benchmark_params={"value": place}, needs_session=True, max_retries=0
    )
    assert result.paths is not None
    [record] = trials(result)
    run_dir = Path(result.paths.run_dir)
    detail = await to_thread.run_sync(read_detail, run_dir, record)
    assert isinstance(detail, Detail)
    return record, detail, run_dir


@pytest.mark.parametrize("place", ["fresh", "reuse"])
async def test_evidence_is_collected_in_a_session_and_graded_elsewhere(lab: Lab, place: str) -> None:
    """The grader runs in a worker process on what the examiner found, which is kept."""
    record, detail, run_dir = await run_one(lab, answering("right"), place=place)
    assert record.score == 1.0
    assert detail.verifier_output["pid"] != os.getpid()
    assert await anyio.Path(run_dir / detail.artifacts["evidence"]).read_bytes() == b"right"
    assert await anyio.Path(run_dir / detail.artifacts["fetched"]).read_bytes() == b"yes"
    assert lab.environments[0].statistics().opened == (2 if place == "fresh" else 1)


async def test_nothing_to_examine_opens_no_session(lab: Lab) -> None:
    """An empty answer is graded without a second machine."""
    record, _, _ = await run_one(lab, answering(None))
    assert record.score == 0.0
    assert lab.environments[0].statistics().opened == 1


@pytest.mark.parametrize("answer", ["break the examiner", "break the grader"])
async def test_trouble_of_the_machinery_is_missing_data(lab: Lab, answer: str) -> None:
    """Neither half's trouble is held against the answer."""
    record, _, _ = await run_one(lab, answering(answer))
    assert record.outcome is OutcomeClass.INFRA_ERROR
    assert record.failure is not None
    assert record.failure.phase == "verify"
    assert record.score is None


async def test_evidence_outlives_a_grader_that_fails(lab: Lab) -> None:
    """What was found is on disk although no verdict came of it."""
    _, detail, run_dir = await run_one(lab, answering("break the grader"))
    assert await anyio.Path(run_dir / detail.artifacts["evidence"]).read_bytes() == b"break the grader"


async def test_hanging_examiner_is_bounded(lab: Lab) -> None:
    """The verifier's deadline covers the collecting."""
    result = await lab.run(
        answering("hang the examiner"),
        benchmark="Examined",
        benchmark_params={"value": "fresh"},
        needs_session=True,
        max_retries=0,
        verifier_timeout_seconds=0.05,
    )
    failure = trials(result)[0].failure
    assert failure is not None
    assert (failure.error, failure.phase) == ("PhaseTimeoutError", "verify")


async def test_what_a_broken_agent_left_is_fetched(lab: Lab) -> None:
    """The benchmark looks into the session also after the agent broke."""

    async def agent(trial: Trial) -> Outcome:
        raise HarnessError("the agent broke")

    record, detail, _ = await run_one(lab, agent)
    assert record.outcome is OutcomeClass.AGENT_ERROR
    assert record.score == 0.0
    assert "fetched" in detail.artifacts


def test_deadlines_and_absent_questions_leave_a_task_what_it_was() -> None:
    """Results of a task stay valid when only a deadline changes; a question is part of it."""
    from dataclasses import replace

    from agentcompass.engine.digest import task_digest
    from agentcompass.protocols import Task

    task = Task(id="one", prompt="p")
    assert task_digest(replace(task, verifier_timeout_seconds=5.0)) == task_digest(task)
    assert task_digest(replace(task, question="q")) != task_digest(task)
    assert msgspec.to_builtins(task)["question"] == ""
