"""Load a benchmark's tasks in a worker process, check their ids, and select the ones that run."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ..errors import ConfigError, nearest
from ..protocols import Benchmark, Task
from ..spec.options import SelectionParams
from .digest import task_digest, tree_digest
from .returned import as_task
from .workers import WorkerCallError, WorkerPool

_CHUNK = 200
"""Tasks per message from the worker: unpickling one must not stall the event loop."""


class PlannedTask(NamedTuple):
    """A selected task; ``digest`` identifies its content."""

    task: Task
    digest: str


async def load_tasks(
    workers: WorkerPool,
    benchmark: Benchmark,
    *,
    benchmark_id: str,
    data_dir: Path,
    timeout_seconds: float,
) -> list[PlannedTask]:
    """
    Return all tasks of a benchmark.

    Raises:
        ConfigError: They cannot be loaded, there are none, or two share an id.
    """
    tasks: list[PlannedTask] = []
    try:
        await workers.each(
            tasks.extend, _chunks_of_tasks, benchmark, data_dir, timeout_seconds=timeout_seconds
        )
    except TimeoutError:
        raise ConfigError(
            f"benchmark {benchmark_id!r}: loading its tasks took longer than {timeout_seconds:g} s; "
            "raise load_timeout_seconds"
        ) from None
    except (ConfigError, WorkerCallError) as error:
        raise ConfigError(f"benchmark {benchmark_id!r} cannot be loaded: {error}") from error
    _check_ids(benchmark_id, tasks)
    return tasks


def _chunks_of_tasks(benchmark: Benchmark, data_dir: Path) -> Iterator[list[PlannedTask]]:
    tasks = iter(benchmark.load(data_dir))
    once = cache(tree_digest)  # for this load only: between two, files may change
    while chunk := list(islice(tasks, _CHUNK)):
        yield [PlannedTask(task=task, digest=task_digest(as_task(task), tree_digest=once)) for task in chunk]


def dataset_hash(tasks: Iterable[PlannedTask]) -> str:
    """Return a hash over all tasks of a benchmark, in order."""
    total = blake2b(digest_size=16)
    for planned in tasks:
        total.update(planned.digest.encode())
    return total.hexdigest()


def _check_ids(benchmark_id: str, tasks: Sequence[PlannedTask]) -> None:
    if not tasks:
        raise ConfigError(f"benchmark {benchmark_id!r} has no tasks")
    seen: dict[str, int] = {}
    for number, planned in enumerate(tasks, start=1):
        task_id = planned.task.id
        if not task_id:
            raise ConfigError(f"benchmark {benchmark_id!r}: task {number} has an empty id")
        first = seen.setdefault(task_id, number)
        if first != number:
            raise ConfigError(
                f"benchmark {benchmark_id!r}: tasks {first} and {number} share the id {task_id!r}"
            )


def select_tasks(
    tasks: Sequence[PlannedTask],
    selection: SelectionParams,
    *,
    seed: int,
    limit: int | None,
    excluded: Collection[str] = (),
) -> list[PlannedTask]:
    """
    Return the tasks that run: by id, by category, less the excluded ones, shuffled, limited, in this order.

    Raises:
        ConfigError: An id or a category does not exist, or nothing is left.
    """
    selected = list(tasks)
    if selection.sample_ids is not None:
        ids = [selection.sample_ids] if isinstance(selection.sample_ids, str) else selection.sample_ids
        wanted = _known("sample_ids", ids, {planned.task.id for planned in tasks})
        selected = [planned for planned in selected if planned.task.id in wanted]
    if selection.category is not None:
        names = [selection.category] if isinstance(selection.category, str) else selection.category
        wanted = _known("category", names, {planned.task.category for planned in tasks} - {""})
        selected = [planned for planned in selected if planned.task.category in wanted]
    selected = [planned for planned in selected if planned.task.id not in excluded]
    if selection.shuffle:
        random.Random(seed).shuffle(selected)  # noqa: S311
    if not selected:
        why = "; exclude_audit leaves all of them out" if excluded else ""
        raise ConfigError(f"benchmark_params: no task is selected{why}")
    return selected[:limit]


def _known(field: str, wanted: Sequence[str], known: set[str]) -> set[str]:
    unknown = sorted(set(wanted) - known)
    if unknown:
        parts = [f"{name!r}{nearest(name, known)}" for name in unknown[:5]]
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        raise ConfigError(f"benchmark_params.{field}: unknown: {', '.join(parts)}{more}")
    return set(wanted)
