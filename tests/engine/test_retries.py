"""Retries: how many, of what, and that every discarded trial stays as evidence."""

from __future__ import annotations

from collections import Counter
from math import fsum

import pytest
from msgspec.structs import replace

from agentcompass.clock import ManualClock
from agentcompass.environments.fake import FakeParams
from agentcompass.errors import HarnessError, ModelUnavailableError, SessionOpenError
from agentcompass.protocols import Message, Outcome, Reply, Trial
from agentcompass.records import OutcomeClass, RunStatus, Usage

from .lab import RIGHT, Lab, trials

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.mark.parametrize("failures", [0, 1, 2, 3])
@pytest.mark.parametrize("allowed", [0, 1, 2])
async def test_succeeds_if_and_only_if_failures_are_within_the_retries(
    lab: Lab, failures: int, allowed: int
) -> None:
    """N retries are N additional executions: min(failures, N) + 1 in all."""
    calls = 0

    async def agent(trial: Trial) -> Outcome:
        nonlocal calls
        calls += 1
        if calls <= failures:
            raise ModelUnavailableError("down")
        return RIGHT

    result = await lab.run(agent, max_retries=allowed, benchmark_params={"tasks": 1}, resumable=False)
    assert (result.status is RunStatus.COMPLETED) is (failures <= allowed)
    assert calls == min(failures, allowed) + 1
    records = trials(result)
    assert [record.trial for record in records] == list(range(1, calls + 1))
    assert [record.discarded for record in records] == [True] * (calls - 1) + [False]


async def test_pattern_decides_what_is_retried(lab: Lab) -> None:
    """A pattern that matches the agent's own error gives it another execution."""
    calls = 0

    async def agent(trial: Trial) -> Outcome:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise HarnessError("flaky tool")
        return RIGHT

    result = await lab.run(
        agent, retry_pattern_list=["flaky"], benchmark_params={"tasks": 1}, resumable=False
    )
    assert result.metrics is not None
    assert result.metrics.score.value == 1.0
    assert result.metrics.discarded_trials == 1


async def test_waiting_for_a_retry_holds_no_session(lab: Lab) -> None:
    """While a retry waits, its provider slot and its environment are free."""
    open_while_sleeping: list[int] = []

    class Watch(ManualClock):
        async def sleep(self, seconds: float) -> None:
            open_while_sleeping.append(lab.environments[-1].statistics().live)
            await super().sleep(seconds)

    async def agent(trial: Trial) -> Outcome:
        if trial.task.id not in failed:
            failed.append(trial.task.id)
            raise SessionOpenError("once more")
        return RIGHT

    failed: list[str] = []
    await lab.run(
        agent,
        needs_session=True,
        clock=Watch(jumping=True),
        task_concurrency=1,
        env_open_qps={"fake-environment": 0},
        resumable=False,
    )
    assert open_while_sleeping == [0, 0, 0]


async def test_usage_of_discarded_trials_counts(lab: Lab) -> None:
    """The totals are the sum over all lines of the journal: calls, tokens and cost of every trial."""
    failures = Counter({"t0000": 2, "t0001": 1, "t0002": 9})
    usage = Usage(input_tokens=100, cached_tokens=30, output_tokens=7, reasoning_tokens=3)

    async def agent(trial: Trial) -> Outcome:
        await trial.model.complete([Message(role="user", content="hello")])
        if failures[trial.task.id]:
            failures[trial.task.id] -= 1
            raise SessionOpenError("too bad")
        await trial.model.complete([Message(role="user", content="once more")])
        return RIGHT

    result = await lab.run(
        agent,
        needs_model=True,
        model="m",
        model_api_protocol="scripted",
        model_params={"script": lambda messages: Reply(text="hi", usage=usage)},
        model_prices={"input": 3, "output": 15, "cached": 1},
        benchmark_params={"tasks": 4},
        resumable=False,
    )
    lines = trials(result)
    assert (len(lines), sum(line.discarded for line in lines)) == (3 + 2 + 3 + 1, 2 + 1 + 2)
    assert result.metrics is not None
    ledger, costs = result.metrics.usage, [line.usage.cost_usd or 0.0 for line in lines]
    assert (ledger.calls, ledger.output_tokens) == (9 + 3, 7 * (9 + 3))
    assert min(costs) > 0
    assert ledger == replace(sum((line.usage for line in lines), Usage()), cost_usd=fsum(costs))


async def test_first_opens_that_fail_are_retried(lab: Lab) -> None:
    """A provider that fails at first costs retries, not results."""
    result = await lab.run(
        needs_session=True,
        environment=FakeParams(open_failures=2),
        benchmark_params={"tasks": 1},
        resumable=False,
    )
    assert result.status is RunStatus.COMPLETED
    assert [record.outcome for record in trials(result)] == [
        OutcomeClass.INFRA_ERROR,
        OutcomeClass.INFRA_ERROR,
        OutcomeClass.COMPLETED,
    ]
