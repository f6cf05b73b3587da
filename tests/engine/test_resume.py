"""Resume in place and reuse in a new run: nothing finished is lost, run twice, or mixed with what differs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentcompass.engine.result import RunResult
from agentcompass.errors import ConfigError, HarnessError, SessionOpenError, StoreError
from agentcompass.protocols import Outcome, Trial
from agentcompass.records import RunStatus
from agentcompass.selftest.disk import Fault, FaultyDisk

from .lab import RIGHT, WRONG, Lab, answer_right, plans, trials

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class Counting:
    """An agent that counts its executions by task and attempt."""

    def __init__(self) -> None:
        self.executed: Counter[tuple[str, int]] = Counter()

    async def __call__(self, trial: Trial) -> Outcome:
        self.executed[trial.task.id, trial.attempt] += 1
        return RIGHT


def error_of(result: RunResult) -> str:
    """Return the message of a request that was refused."""
    assert isinstance(result.error, ConfigError)
    return str(result.error)


def journal_of(result: RunResult) -> Path:
    assert result.paths is not None
    return Path(result.paths.journal)


def files_of(result: RunResult) -> list[Path]:
    assert result.paths is not None
    return [path for path in Path(result.paths.run_dir).iterdir() if path.is_file()]


async def first_run(lab: Lab, **options: Any) -> RunResult:
    """Three right, two lost to infrastructure, one wrong, one with a broken agent."""

    async def agent(trial: Trial) -> Outcome:
        match int(trial.task.id[1:]):
            case 3 | 4:
                raise SessionOpenError("no room")
            case 5:
                return WRONG
            case 6:
                raise HarnessError("crash")
        return RIGHT

    return await lab.run(agent, benchmark_params={"tasks": 7}, max_retries=0, **options)


async def test_resume_runs_only_what_infrastructure_lost(lab: Lab) -> None:
    """Wrong answers and broken agents are results and stay; lost attempts run again."""
    first = await first_run(lab)
    agent = Counting()
    second = await lab.run(agent, benchmark_params={"tasks": 7}, run_id=first.run_id, resumable=False)
    assert agent.executed == {("t0003", 1): 1, ("t0004", 1): 1}
    assert second.run_id == first.run_id
    assert second.status is RunStatus.COMPLETED
    assert second.metrics is not None
    assert second.metrics.score.value == pytest.approx(5 / 7)
    assert second.execution.kept_attempts == 5


async def test_resuming_again_and_again_changes_nothing(lab: Lab) -> None:
    """Counts stay those of the plan, however often a finished run is resumed."""
    first = await lab.run(benchmark_params={"tasks": 4})
    size = journal_of(first).stat().st_size
    for _ in range(3):
        again = await lab.run(benchmark_params={"tasks": 4}, run_id=first.run_id, resumable=False)
        assert again.metrics == first.metrics
    assert journal_of(first).stat().st_size == size


async def test_growing_and_shrinking_the_plan(lab: Lab) -> None:
    """5 tasks, then 20: 15 new. 5 again: nothing to do, reported on 5. 3 attempts: two more each."""
    options: dict[str, Any] = {"benchmark_params": {"tasks": 20}, "resumable": False}
    first = await lab.run(limit=5, **options)
    agent = Counting()
    await lab.run(agent, limit=20, run_id=first.run_id, **options)
    assert len(agent.executed) == 15
    again = Counting()
    smaller = await lab.run(again, limit=5, run_id=first.run_id, **options)
    assert not again.executed
    assert smaller.metrics is not None
    assert smaller.metrics.counts.planned == 5
    more = Counting()
    await lab.run(more, limit=5, k=3, run_id=first.run_id, **options)
    assert sorted(more.executed) == [(f"t{number:04d}", attempt) for number in range(5) for attempt in (2, 3)]
    assert len(trials(first)) == 20 + 10


async def test_unknown_run_id_starts_a_run_of_that_id(lab: Lab) -> None:
    """A run may be given its id up front, so that a script can be started again as it is."""
    result = await lab.run(run_id="nightly-1")
    assert result.run_id == "nightly-1"


@pytest.mark.parametrize("run_id", ["../x", "a/b", "", ".", "-rf"])
async def test_run_id_that_is_no_name_is_refused(lab: Lab, run_id: str) -> None:
    """Nothing is written outside of the results folder."""
    result = await lab.run(run_id=run_id)
    assert "run_id" in error_of(result)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"seed": 5}, "seed: 0 then, 5 now"),
        ({"strategy": "pass"}, "strategy: 'avg' then, 'pass' now"),
        ({"benchmark_params": {"tasks": 3, "verify_seconds": 0.001}}, "benchmark.params.verify_seconds"),
        ({"model_params": {"script": len}}, "model.params.script: "),
    ],
)
async def test_changed_settings_are_refused_by_name(
    lab: Lab, change: dict[str, Any], difference: str
) -> None:
    """Results that were measured differently are never mixed, in place or by reuse."""
    scripted: dict[str, Any] = {
        "model_api_protocol": "scripted",
        "model_params": {"script": lambda messages: "ok"},
    }
    first = await lab.run(model="one", needs_model=True, resumable=False, **scripted)
    for reuse in ({"run_id": first.run_id}, {"reuse": True, "model": "one", "needs_model": True}):
        options = {"model": "one", "needs_model": True, **scripted, **reuse, **change}
        assert difference in error_of(await lab.run(**options))


async def test_changed_task_is_refused_by_name(lab: Lab) -> None:
    """A run does not go on when a task it has results for has other content now."""
    questions = lab.results_dir.parent / "questions.jsonl"
    questions.write_text('{"id": "a", "question": "1+1", "answer": "2"}\n')
    options: dict[str, Any] = {"benchmark": "jsonl", "benchmark_params": {"path": str(questions)}}
    first = await lab.run(**options)
    questions.write_text('{"id": "a", "question": "1+2", "answer": "3"}\n')
    assert "the content of 'a' has changed" in error_of(await lab.run(run_id=first.run_id, **options))
    assert "'a' has changed" in error_of(await lab.run(reuse=True, **options))
    forced = Counting()
    assert (await lab.run(forced, reuse="force", **options)).status is RunStatus.COMPLETED
    assert forced.executed == {("a", 1): 1}


async def test_reuse_copies_what_is_finished(lab: Lab) -> None:
    """A new run starts with the finished attempts of the latest one, evidence included."""
    first = await first_run(lab)
    agent = Counting()
    second = await lab.run(agent, benchmark_params={"tasks": 7}, reuse=True, resumable=False)
    assert second.run_id != first.run_id
    assert agent.executed == {("t0003", 1): 1, ("t0004", 1): 1}
    reused = [record for record in trials(second) if record.reused_from == first.run_id]
    assert len(reused) == 5
    assert second.paths is not None
    for record in reused:
        detail = json.loads((Path(second.paths.run_dir) / record.details).read_text())
        assert detail["task_id"] == record.task_id


async def test_reuse_of_a_named_run(lab: Lab) -> None:
    """``reuse_run_id`` chooses among several; an unknown one is an error that lists what there is."""
    first = await lab.run(benchmark_params={"tasks": 2})
    await first_run(lab)
    agent = Counting()
    await lab.run(agent, benchmark_params={"tasks": 2}, reuse_run_id=first.run_id, resumable=False)
    assert not agent.executed
    assert first.run_id in error_of(await lab.run(reuse_run_id="nope"))


async def test_reuse_without_an_earlier_run_starts_fresh(lab: Lab) -> None:
    """A script with ``reuse=True`` works the first time too."""
    assert (await lab.run(reuse=True)).status is RunStatus.COMPLETED


@pytest.mark.parametrize("run_id", [None, "second"])
async def test_reuse_that_died_while_copying_is_no_earlier_run(lab: Lab, run_id: str | None) -> None:
    """When a new run dies before it has copied all, the next start copies from where there is something."""
    options: dict[str, Any] = {"benchmark_params": {"tasks": 4}, "reuse": True, "run_id": run_id}
    await lab.run(benchmark_params={"tasks": 4})
    disk = FaultyDisk(Fault(manner="torn", operation="write", at=2))  # run.json, then all copies at once
    died = await lab.run_unchecked(answer_right, files=disk, **options)
    assert isinstance(died.error, StoreError)
    agent = Counting()
    again = await lab.run(agent, resumable=False, **options)
    assert not agent.executed
    assert again.status is RunStatus.COMPLETED
    assert len({trial.task_id for trial in trials(again)}) == 4


async def test_damage_costs_at_most_its_own_trial(lab: Lab) -> None:
    """A torn last line and a flipped byte are re-run; everything else is kept."""
    first = await lab.run(benchmark_params={"tasks": 6})
    lines = journal_of(first).read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"score":1.0', b'"score":0.0')
    lines[-1] = lines[-1][:-20]
    journal_of(first).write_bytes(b"".join(lines))
    agent = Counting()
    second = await lab.run(agent, benchmark_params={"tasks": 6}, run_id=first.run_id, resumable=False)
    assert sum(agent.executed.values()) == 2
    assert second.metrics is not None
    assert second.metrics.score.value == 1.0
    assert second.metrics.damaged_lines == 2


async def test_duplicated_lines_count_once(lab: Lab) -> None:
    """Lines that stand twice change no number but the count of duplicates."""
    first = await lab.run(benchmark_params={"tasks": 3})
    lines = journal_of(first).read_bytes().splitlines(keepends=True)
    journal_of(first).write_bytes(b"".join([*lines, lines[1], lines[2]]))
    second = await lab.run(benchmark_params={"tasks": 3}, run_id=first.run_id, resumable=False)
    assert second.metrics is not None
    assert second.metrics.duplicate_lines == 2
    assert second.metrics.counts == first.metrics.counts if first.metrics else False


async def test_run_that_died_before_its_first_record_is_started(lab: Lab) -> None:
    """A reserved folder without run.json is no obstacle."""
    first = await lab.run(run_id="early")
    for path in files_of(first):
        path.unlink()
    assert (await lab.run(run_id="early")).status is RunStatus.COMPLETED


async def test_second_process_is_refused_while_the_first_runs(lab: Lab) -> None:
    """Two runs never write into one folder; the second one is told who is in the way."""
    inner: list[RunResult] = []

    async def agent(trial: Trial) -> Outcome:
        if not inner:
            inner.append(await lab.run_unchecked(answer_right, run_id="one", benchmark_params={"tasks": 1}))
        return RIGHT

    await lab.run(agent, run_id="one", benchmark_params={"tasks": 1}, resumable=False)
    assert "in use by process" in error_of(inner[0])


async def test_plan_is_written_once_per_change(lab: Lab) -> None:
    """The journal says what the run covers, and says it again only when that changes."""
    options: dict[str, Any] = {"benchmark_params": {"tasks": 4}, "resumable": False}
    first = await lab.run(limit=2, **options)
    await lab.run(limit=2, run_id=first.run_id, **options)
    await lab.run(limit=4, run_id=first.run_id, **options)
    assert [len(plan.task_ids) for plan in plans(first)] == [2, 4]
