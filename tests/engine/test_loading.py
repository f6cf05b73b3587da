"""Loading tasks in a worker, checking their ids, and selecting those that run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agentcompass.engine.loading import PlannedTask, load_tasks, select_tasks
from agentcompass.engine.workers import WorkerPool, open_workers
from agentcompass.errors import ConfigError
from agentcompass.protocols import Grader, Task
from agentcompass.spec.options import SelectionParams


class Listed:
    """A benchmark with these ids."""

    def __init__(self, *ids: object) -> None:
        self._ids = ids

    def load(self, data_dir: Path) -> Iterator[Task]:
        for task_id in self._ids:
            yield Task(id=task_id, prompt="p", category="even" if task_id == "b" else "")  # type: ignore[arg-type]

    def verifier(self) -> Grader:
        raise NotImplementedError


@pytest.fixture
async def workers() -> AsyncIterator[WorkerPool]:
    async with open_workers(1) as pool:
        yield pool


async def load(workers: WorkerPool, benchmark: Listed) -> list[PlannedTask]:
    return await load_tasks(
        workers, benchmark, benchmark_id="listed", data_dir=Path("data"), timeout_seconds=10
    )


def planned(*ids: str) -> list[PlannedTask]:
    return [PlannedTask(task=Task(id=task_id, prompt="", category=task_id[0]), digest="") for task_id in ids]


@pytest.mark.anyio
@pytest.mark.slow
async def test_tasks_keep_their_order(workers: WorkerPool) -> None:
    """Tasks arrive as the benchmark gave them, across chunks."""
    ids = [f"t{number}" for number in range(450)]
    loaded = await load(workers, Listed(*ids))
    assert [item.task.id for item in loaded] == ids


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (("a", "b", "a"), "tasks 1 and 3 share the id 'a'"),
        ((1, "1"), "the task 1 whose id is 1; it must be str"),
        (("",), "task 1 has an empty id"),
        ((), "has no tasks"),
    ],
)
async def test_bad_ids_are_refused(workers: WorkerPool, ids: tuple[object, ...], message: str) -> None:
    """Ids that cannot tell tasks apart are named before anything runs."""
    with pytest.raises(ConfigError, match=message):
        await load(workers, Listed(*ids))


def test_selection_by_id_keeps_the_benchmarks_order() -> None:
    """The order of ``sample_ids`` does not matter."""
    selected = select_tasks(
        planned("a1", "a2", "b1"), SelectionParams(sample_ids=["b1", "a1"]), seed=0, limit=None
    )
    assert [item.task.id for item in selected] == ["a1", "b1"]


def test_unknown_id_is_refused_with_the_nearest() -> None:
    """A mistyped id is an error that helps."""
    with pytest.raises(ConfigError, match="'alpha-1'; did you mean 'alpha_1'"):
        select_tasks(planned("alpha_1", "b"), SelectionParams(sample_ids=["alpha-1"]), seed=0, limit=None)


def test_unknown_category_is_refused() -> None:
    """So is a category that no task has."""
    with pytest.raises(ConfigError, match="category: unknown: 'z'"):
        select_tasks(planned("a1"), SelectionParams(category="z"), seed=0, limit=None)


def test_larger_limit_extends_the_smaller_one() -> None:
    """With one seed the first tasks stay the same, so that a run can be extended."""
    tasks = planned(*(f"t{number}" for number in range(50)))
    shuffled = SelectionParams(shuffle=True)
    five = select_tasks(tasks, shuffled, seed=7, limit=5)
    twenty = select_tasks(tasks, shuffled, seed=7, limit=20)
    assert twenty[:5] == five
    assert five != tasks[:5]
