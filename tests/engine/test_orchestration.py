"""Several requests in one orchestration: one limit, one deadline, each with its own outcome."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from agentcompass.environments.fake import FakeParams
from agentcompass.errors import ConfigError
from agentcompass.protocols import Outcome, Trial
from agentcompass.records import RunStatus
from agentcompass.spec.orchestration import OrchestrationSpec
from agentcompass.spec.validation import validate

from .lab import RIGHT, Gauge, Lab

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def spec(lab: Lab, *requests: dict[str, Any], **options: Any) -> OrchestrationSpec:
    """Build an orchestration of fake requests."""
    common = {
        "benchmark": {"id": "fake", "tasks": 4},
        "harness": "scripted-agent",
        "environment": "fake-environment",
        "output": {"results_dir": lab.results_dir},
    }
    values = {
        "requests": [{**common, **request} for request in requests],
        "runtime": {"progress": "none", "log_level": "CRITICAL"},
        **options,
    }
    return validate(OrchestrationSpec, values)


async def test_requests_have_their_own_folders_and_results(lab: Lab) -> None:
    """Results come in declaration order, each in a folder of its name."""

    async def agent(trial: Trial) -> Outcome:
        return RIGHT

    with lab.registered(agent, FakeParams()):
        result = await lab.orchestrate(spec(lab, {"name": "first"}, {"name": "second"}))
    assert [request.name for request in result.requests] == ["first", "second"]
    assert result.status is RunStatus.COMPLETED
    assert sorted(path.name for path in lab.results_dir.iterdir()) == ["_launches", "first", "second"]
    assert result.request("second").metrics is not None


@pytest.mark.parametrize("cap", [1, 3])
async def test_task_limit_is_shared(lab: Lab, cap: int) -> None:
    """All requests together never exceed the limit, and no slot idles between them."""
    gauge = Gauge()

    async def agent(trial: Trial) -> Outcome:
        await gauge.stay()
        return RIGHT

    names = [{"name": f"r{number}"} for number in range(4)]
    with lab.registered(agent, FakeParams()):
        await lab.orchestrate(spec(lab, *names, task_concurrency=cap))
    assert gauge.peak == cap


async def test_next_request_starts_while_the_first_still_runs(lab: Lab) -> None:
    """A straggler of the first request does not hold up the second one."""
    second_started = anyio.Event()

    async def agent(trial: Trial) -> Outcome:
        if trial.task.id == "t0000" and not second_started.is_set() and not held:
            held.append(trial)
            await second_started.wait()
        if len(seen) >= 4:
            second_started.set()
        seen.append(trial.task.id)
        return RIGHT

    held: list[Trial] = []
    seen: list[str] = []
    with lab.registered(agent, FakeParams()), anyio.fail_after(10):
        result = await lab.orchestrate(spec(lab, {"name": "a"}, {"name": "b"}, task_concurrency=2))
    assert result.status is RunStatus.COMPLETED


async def test_failing_request_is_its_own_outcome(lab: Lab) -> None:
    """A request whose data cannot be loaded leaves its siblings alone."""

    async def agent(trial: Trial) -> Outcome:
        return RIGHT

    broken = {"name": "broken", "benchmark": {"id": "jsonl", "path": "/nonexistent.jsonl"}}
    with lab.registered(agent, FakeParams()):
        result = await lab.orchestrate(spec(lab, broken, {"name": "fine"}))
    assert result.status is RunStatus.FAILED
    assert isinstance(result.request("broken").error, ConfigError)
    assert result.request("fine").status is RunStatus.COMPLETED


async def test_deadline_is_shared(lab: Lab) -> None:
    """Every unfinished request ends with the deadline; finished ones stay finished."""

    async def agent(trial: Trial) -> Outcome:
        if trial.task.id == "t0004":
            await anyio.sleep_forever()
        return RIGHT

    with lab.registered(agent, FakeParams()):
        result = await lab.orchestrate(
            spec(
                lab,
                {"name": "a"},
                {"name": "b", "benchmark": {"id": "fake", "tasks": 5}},
                runtime={"progress": "none", "timeout_seconds": 4},
                task_concurrency=1,
            )
        )
    assert result.request("a").status is RunStatus.COMPLETED
    assert result.request("b").status is RunStatus.TIMED_OUT
    assert result.status is RunStatus.TIMED_OUT
