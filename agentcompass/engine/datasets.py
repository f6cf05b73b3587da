"""Data sets of an orchestration: one that several requests use, one after another, is loaded once."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import anyio
import msgspec
from anyio import to_thread

from .loading import PlannedTask, dataset_hash, load_tasks
from .resolve import ResolvedRequest
from .workers import WorkerPool

_KEPT = 2
"""How many data sets are kept at most for requests to come."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """All tasks of a benchmark, and a hash over them in order."""

    tasks: tuple[PlannedTask, ...]
    hash: str


class Datasets:
    """Loads data sets in worker processes, and keeps the latest ones while further requests need them."""

    def __init__(self, workers: WorkerPool, requests: Iterable[ResolvedRequest]) -> None:
        self._workers = workers
        self._needed = Counter(map(_key, requests))
        self._kept: OrderedDict[bytes, Dataset] = OrderedDict()
        self._locks: defaultdict[bytes, anyio.Lock] = defaultdict(anyio.Lock)

    async def load(self, request: ResolvedRequest) -> Dataset:
        """
        Return the data set of a request's benchmark.

        Raises:
            ConfigError: It cannot be loaded.
        """
        key = _key(request)
        async with self._locks[key]:
            dataset = self._kept.pop(key, None) or await self._load(request)
            self._needed[key] -= 1
            if self._needed[key] > 0:
                self._kept[key] = dataset
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
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
