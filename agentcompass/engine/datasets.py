"""Data sets of an orchestration: one that several requests use at about the same time is loaded once."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import msgspec
from anyio import to_thread

from .loading import PlannedTask, dataset_hash, load_tasks
from .resolve import ResolvedRequest
from .workers import WorkerPool


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Dataset:
    """All tasks of a benchmark, and a hash over them in order."""

    tasks: tuple[PlannedTask, ...]
    hash: str


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Loading:
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    result: weakref.ref[Dataset] | None = None


class Datasets:
    """Loads data sets in worker processes; one is kept only as long as a request holds it."""

    def __init__(self, workers: WorkerPool) -> None:
        self._workers = workers
        self._loadings: dict[bytes, _Loading] = {}

    async def load(self, request: ResolvedRequest) -> Dataset:
        """
        Return the data set of a request's benchmark.

        Raises:
            ConfigError: It cannot be loaded.
        """
        loading = self._loadings.setdefault(_key(request), _Loading())
        async with loading.lock:
            dataset = loading.result() if loading.result is not None else None
            if dataset is None:
                dataset = await self._load(request)
                loading.result = weakref.ref(dataset)
        return dataset

    async def _load(self, request: ResolvedRequest) -> Dataset:
        tasks = await load_tasks(
            self._workers,
            request.benchmark,
            benchmark_id=request.components.benchmark_id,
            data_dir=Path(request.output.data_dir),
            timeout_seconds=request.execution.load_timeout_seconds,
        )
        return Dataset(tuple(tasks), await to_thread.run_sync(dataset_hash, tasks))


def _key(request: ResolvedRequest) -> bytes:
    """Say what decides which tasks there are."""
    return msgspec.json.encode(
        (request.benchmark_record, str(request.output.data_dir), request.execution.load_timeout_seconds)
    )
