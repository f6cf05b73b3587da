"""CPU per task and memory of the engine with an instant agent and full persistence."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import anyio
import msgspec
from anyio import to_thread
from measure import cost_of, main, show

from agentcompass import run_evaluation
from agentcompass.engine.registry import harness
from agentcompass.harnesses.fake import InstantHarness
from agentcompass.records import Detail, OutcomeClass, TrialRecord

CONCURRENCY = 16


def engine(arguments: list[str]) -> None:
    """Run N tasks through the engine."""
    harness("instant")(InstantHarness)
    result = run_evaluation(
        benchmark="fake",
        benchmark_params={"tasks": int(arguments[0])},
        harness="instant",
        progress="none",
        task_concurrency=CONCURRENCY,
    )
    assert result.metrics is not None
    assert result.metrics.score.value == 1.0


def bare(arguments: list[str]) -> None:
    """Spawn N tasks that write a detail file and a journal line each, one fsync for every 16."""
    Path("details").mkdir()
    anyio.run(_bare, int(arguments[0]))


async def _bare(tasks: int) -> None:
    journal = os.open("attempts.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    slots = anyio.CapacityLimiter(CONCURRENCY)
    for start in range(0, tasks, CONCURRENCY):
        lines: list[bytes] = []
        details: list[tuple[str, bytes]] = []

        async def one(number: int) -> None:
            async with slots:
                task_id = f"t{number}"
                record = TrialRecord(
                    task_id=task_id,
                    task_hash="0" * 16,
                    attempt=1,
                    trial=1,
                    outcome=OutcomeClass.COMPLETED,
                    score=1.0,
                    success=True,
                )
                detail = Detail(task_id=task_id, attempt=1, trial=1, prompt="Say ok.", answer="ok")
                lines.append(msgspec.json.encode(record) + b"\n")  # noqa: B023
                details.append((f"details/{task_id}.1.json", msgspec.json.encode(detail)))  # noqa: B023

        async with anyio.create_task_group() as group:
            for number in range(start, min(start + CONCURRENCY, tasks)):
                group.start_soon(one, number)
        await to_thread.run_sync(partial(_write, journal, lines, details))
    os.close(journal)


def _write(journal: int, lines: list[bytes], details: list[tuple[str, bytes]]) -> None:
    for path, data in details:
        with open(".partial", "wb") as file:  # noqa: PTH123
            file.write(data)
        os.rename(".partial", path)  # noqa: PTH104
    os.write(journal, b"".join(lines))
    os.fdatasync(journal)


def report(quick: bool) -> None:
    """Print CPU per task at growing N, and memory."""
    print(f"engine overhead (concurrency {CONCURRENCY}; CPU of start-up taken off)")
    repeat = 2
    start_engine = cost_of(__file__, "engine", 1, repeat=repeat)
    start_bare = cost_of(__file__, "bare", 1, repeat=repeat)
    peaks = []
    for tasks in (1_000, 10_000) if quick else (1_000, 10_000, 100_000):
        ours = cost_of(__file__, "engine", tasks, repeat=repeat)
        theirs = cost_of(__file__, "bare", tasks, repeat=repeat)
        mine = (ours.cpu_seconds - start_engine.cpu_seconds) / tasks * 1e3
        bare_ms = (theirs.cpu_seconds - start_bare.cpu_seconds) / tasks * 1e3
        peaks.append(ours.peak_mb)
        show(
            f"N = {tasks:,}",
            f"{mine:.3f} ms/task = {mine / bare_ms:.1f} x bare",
            target="at most 0.4 ms/task",
            met=mine <= 0.4,
        )
    show(
        "peak memory above that at 1,000",
        f"{peaks[-1] - peaks[0]:.0f} MB",
        target="at most 60 MB",
        met=peaks[-1] - peaks[0] <= 60,
    )


if __name__ == "__main__":
    main({"engine": engine, "bare": bare}, report)
