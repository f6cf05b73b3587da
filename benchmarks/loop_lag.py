"""The worst delay of the event loop while tasks are loaded, run and summed up."""

from __future__ import annotations

import time

import anyio
from engine_overhead import CONCURRENCY
from measure import cost_of, main, show

from agentcompass import async_run_evaluation
from agentcompass.engine.registry import harness
from agentcompass.harnesses.fake import InstantHarness


def lag(arguments: list[str]) -> float:
    """Run N tasks beside a ticker; return its worst delay in seconds."""
    return anyio.run(_lag, int(arguments[0]), int(arguments[1]))


async def _lag(tasks: int, limit: int) -> float:
    harness("instant")(InstantHarness)
    worst = 0.0

    async def tick() -> None:
        nonlocal worst
        while True:
            began = time.perf_counter()
            await anyio.sleep(0.005)
            worst = max(worst, time.perf_counter() - began - 0.005)

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        await async_run_evaluation(
            benchmark="fake",
            benchmark_params={"tasks": tasks},
            limit=limit,
            harness="instant",
            progress="none",
            task_concurrency=CONCURRENCY,
        )
        group.cancel_scope.cancel()
    return worst


def report(quick: bool) -> None:
    """Print the worst lag."""
    loaded, run = (10_000, 2_000) if quick else (100_000, 10_000)
    print("event-loop lag")
    cost = cost_of(__file__, "lag", loaded, run)
    show(
        f"worst, {loaded:,} tasks loaded, {run:,} run",
        f"{cost.value * 1e3:.0f} ms",
        target="at most 100 ms",
        met=cost.value <= 0.1,
    )


if __name__ == "__main__":
    main({"lag": lag}, report)
