"""What blocks the event loop is noticed and named; what does not is left alone."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from agentcompass.engine.watchdog import LoopWatch, watch_loop
from agentcompass.logs import load_structlog, open_run_log
from agentcompass.protocols import Outcome, Trial

from .lab import RIGHT, Lab

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def occupy(until: Callable[[], bool]) -> None:
    """Block without a call that could be noticed otherwise, as parsing something huge does."""
    end = time.monotonic() + 10
    while not until() and time.monotonic() < end:
        pass


def occupy_seconds(seconds: float) -> None:
    end = time.monotonic() + seconds
    occupy(lambda: time.monotonic() >= end)


def events(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "run.log").read_text().splitlines()]


async def test_component_that_blocks_the_loop_is_named(lab: Lab) -> None:
    """The log has one line with the component's method and the time, and the worst lag at the end."""

    async def agent(trial: Trial) -> Outcome:
        if trial.task.id == "t0001":
            occupy_seconds(1.4)
        return RIGHT

    result = await lab.run(agent, benchmark_params={"tasks": 3}, resumable=False)
    assert result.paths is not None
    log = await to_thread.run_sync(events, Path(result.paths.run_dir))
    [blocked] = [event for event in log if event["event"] == "event_loop_blocked"]
    assert any("agent (" in frame and "test_watchdog.py" in frame for frame in blocked["stack"])
    assert "test_watchdog.py" in blocked["where"]
    assert 1.0 <= blocked["seconds"] < 3
    [finished] = [event for event in log if event["event"] == "run_finished"]
    assert 1.0 <= finished["loop_lag_worst_seconds"] < 3


async def test_loop_that_turns_is_left_alone() -> None:
    """Waiting is not blocking, and costs a moment of lag at most."""
    lines: list[bytes] = []
    await to_thread.run_sync(load_structlog)
    with open_run_log(lines.append):
        async with watch_loop(threshold_seconds=0.5) as watch:
            with watch.reporting():
                while not watch.worst_seconds:  # noqa: ASYNC110 -- the thread sets no event
                    await anyio.sleep(0.01)
    assert lines == []
    assert watch.worst_seconds < 0.5


async def test_what_may_never_end_is_told_before_it_ends() -> None:
    """A loop that stands still for ever is reported while it does."""
    async with watch_loop(threshold_seconds=0.05, stuck_seconds=0.1) as watch:
        occupy(lambda: watch.told > 0)
        assert watch.told == 1


async def test_each_time_is_told_once_and_to_every_run() -> None:
    """Runs that share the loop all learn why they stood still; the thread is gone afterwards."""
    logs: list[list[bytes]] = [[], []]
    await to_thread.run_sync(load_structlog)
    async with watch_loop(threshold_seconds=0.05) as watch:

        async def run(lines: list[bytes], over: anyio.Event) -> None:
            with open_run_log(lines.append), watch.reporting():
                await over.wait()

        async with anyio.create_task_group() as group:
            over = anyio.Event()
            for lines in logs:
                group.start_soon(run, lines, over)
            await anyio.lowlevel.checkpoint()
            for _ in range(2):
                await block_until_noticed(watch)
            over.set()
    for lines in logs:
        assert sum(json.loads(line)["seconds"] >= 0.25 for line in lines) == 2  # less is a busy machine's
    with anyio.fail_after(5):
        while any(  # noqa: ASYNC110 -- a thread's end has no event
            thread.name == "agentcompass watchdog" for thread in threading.enumerate()
        ):
            await anyio.sleep(0.01)


async def block_until_noticed(watch: LoopWatch) -> None:
    """Occupy the loop for a while, and wait until that has been told."""
    told = watch.told
    occupy_seconds(0.4)
    with anyio.fail_after(5):
        while watch.told == told:  # noqa: ASYNC110 -- the thread sets no event
            await anyio.sleep(0.01)
