"""The benchmark for tests of everything else."""

from __future__ import annotations

import tracemalloc
from collections import deque
from pathlib import Path

import pytest

from agentcompass.benchmarks.fake import FakeBenchmark, FakeParams
from agentcompass.protocols import Outcome


@pytest.mark.anyio
@pytest.mark.parametrize(("answer", "right"), [("ok", True), ("OK", False), (None, False)])
async def test_only_ok_passes(answer: str | None, right: bool) -> None:
    """The reference passes, anything else fails."""
    benchmark = FakeBenchmark(FakeParams(tasks=2))
    tasks = list(benchmark.load(Path()))
    verdict = await benchmark.verifier().verify(tasks[0], Outcome(answer=answer), None)
    assert [(task.id, task.reference) for task in tasks] == [("t0000", "ok"), ("t0001", "ok")]
    assert verdict.success is right


def test_tasks_are_made_one_by_one() -> None:
    """Going through many tasks needs no memory for all of them."""
    tracemalloc.start()
    deque(FakeBenchmark(FakeParams(tasks=5_000)).load(Path()), maxlen=1)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 100_000
