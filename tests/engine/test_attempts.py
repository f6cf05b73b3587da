"""k attempts of a task: side by side, or in order until the first success."""

from __future__ import annotations

import anyio
import pytest

from agentcompass.protocols import Outcome, Trial
from agentcompass.records import RunStatus

from .lab import RIGHT, WRONG, Lab, trials

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_attempts_of_one_task_run_side_by_side(lab: Lab) -> None:
    """All k attempts of a single task are live at once, each with its own seed."""
    arrived: dict[int, int] = {}
    all_there = anyio.Event()

    async def agent(trial: Trial) -> Outcome:
        arrived[trial.attempt] = trial.seed
        if len(arrived) == 4:
            all_there.set()
        await all_there.wait()
        return RIGHT

    with anyio.fail_after(10):
        result = await lab.run(agent, k=4, benchmark_params={"tasks": 1}, resumable=False)
    assert sorted(arrived) == [1, 2, 3, 4]
    assert len(set(arrived.values())) == 4
    assert result.status is RunStatus.COMPLETED


async def test_average_and_pass_at_j(lab: Lab) -> None:
    """One right of two: avg@2 = 0.5, pass@1 = 0.5, pass@2 = 1, pass^2 = 0."""

    async def agent(trial: Trial) -> Outcome:
        return RIGHT if trial.attempt == 1 else WRONG

    result = await lab.run(agent, k=2, benchmark_params={"tasks": 3})
    assert result.metrics is not None
    assert result.metrics.score.value == 0.5
    assert result.metrics.pass_at == {"1": 0.5, "2": 1.0}
    assert result.metrics.pass_hat == {"1": 0.5, "2": 0.0}


async def test_strategy_pass_stops_at_the_first_success(lab: Lab) -> None:
    """Attempts run one after another; none follows a success, and only any-of-k is reported."""

    async def agent(trial: Trial) -> Outcome:
        return RIGHT if trial.attempt == 2 or trial.task.id == "t0000" else WRONG

    result = await lab.run(agent, k=5, strategy="pass", benchmark_params={"tasks": 3})
    assert sorted((record.task_id, record.attempt) for record in trials(result)) == [
        ("t0000", 1),
        ("t0001", 1),
        ("t0001", 2),
        ("t0002", 1),
        ("t0002", 2),
    ]
    assert result.status is RunStatus.COMPLETED
    assert result.metrics is not None
    assert result.metrics.any_of_k == 1.0
    assert result.metrics.pass_at == {}


async def test_strategy_pass_uses_all_attempts_without_success(lab: Lab) -> None:
    """k failures are k attempts and a failed task."""

    async def agent(trial: Trial) -> Outcome:
        return WRONG

    result = await lab.run(agent, k=3, strategy="pass", benchmark_params={"tasks": 1})
    assert len(trials(result)) == 3
    assert result.metrics is not None
    assert result.metrics.any_of_k == 0.0


async def test_repeated_attempt_gets_the_same_seed(lab: Lab) -> None:
    """A retry of an attempt repeats its seed, so that a run can be reproduced."""
    seeds: list[int] = []

    async def agent(trial: Trial) -> Outcome:
        seeds.append(trial.seed)
        return RIGHT

    await lab.run(agent, benchmark_params={"tasks": 1}, seed=7, resumable=False)
    await lab.run(agent, benchmark_params={"tasks": 1}, seed=7, resumable=False)
    await lab.run(agent, benchmark_params={"tasks": 1}, seed=8, resumable=False)
    assert seeds[0] == seeds[1] != seeds[2]
