"""Component code in worker processes: bounded, killable, and its errors keep their names."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import psutil
import pytest

from agentcompass.engine.workers import WorkerCallError, WorkerPool, open_workers
from agentcompass.errors import ConfigError

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    async with open_workers(1) as pool:
        yield pool
    assert not live_workers()


def live_workers() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE and "worker_main" in " ".join(child.cmdline())
    ]


def catastrophe() -> object:
    return re.search("(a+)+$", "a" * 60 + "b")


def three() -> Iterator[int]:
    yield from (1, 2, 3)


def refuse() -> None:
    raise ConfigError("the file is not there")


def break_down() -> None:
    raise ValueError("odd")


async def test_result_comes_back(pool: WorkerPool) -> None:
    """A function runs elsewhere and its result arrives."""
    there = await pool.run(os.getpid, timeout_seconds=10)
    assert there != os.getpid()
    assert there == await pool.run(os.getpid, timeout_seconds=10), "the process is used again"


async def test_items_come_one_by_one(pool: WorkerPool) -> None:
    """A generator's items arrive in order."""
    items: list[int] = []
    await pool.each(items.append, three, timeout_seconds=10)
    assert items == [1, 2, 3]


async def test_catastrophic_regex_is_killed_at_its_deadline(pool: WorkerPool) -> None:
    """Code that never returns and holds the interpreter lock ends in time, and the pool lives on."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await anyio.sleep(0.01)

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        with pytest.raises(TimeoutError):
            await pool.run(catastrophe, timeout_seconds=0.3)
        group.cancel_scope.cancel()
    assert ticks > 10, "the event loop went on"
    assert not live_workers()
    assert await pool.run(len, "abc", timeout_seconds=10) == 3


async def test_cancelled_call_kills_its_process(pool: WorkerPool) -> None:
    """Nobody computes for a caller who has gone."""
    with anyio.move_on_after(0.3):
        await pool.run(catastrophe, timeout_seconds=60)
    assert not live_workers()


async def test_own_errors_keep_their_class(pool: WorkerPool) -> None:
    """A component may raise our plain errors from a worker."""
    with pytest.raises(ConfigError, match="the file is not there"):
        await pool.run(refuse, timeout_seconds=10)


async def test_foreign_errors_are_named(pool: WorkerPool) -> None:
    """Anything else arrives with class, message and traceback."""
    with pytest.raises(WorkerCallError, match="ValueError: odd") as caught:
        await pool.run(break_down, timeout_seconds=10)
    assert "break_down" in caught.value.remote_traceback


async def test_dead_process_is_an_error(pool: WorkerPool) -> None:
    """A worker that dies takes down its call only."""
    with pytest.raises(WorkerCallError, match="WorkerDied"):
        await pool.run(os._exit, 3, timeout_seconds=10)
    assert await pool.run(len, "ab", timeout_seconds=10) == 2


async def test_printing_does_not_disturb(pool: WorkerPool) -> None:
    """What a component prints is no part of the protocol."""
    await pool.run(print, "hello", timeout_seconds=10)
    assert await pool.run(len, "a", timeout_seconds=10) == 1


async def test_what_cannot_travel_is_refused(pool: WorkerPool) -> None:
    """A component that holds an open file is told what to do instead."""
    with open(os.devnull) as handle, pytest.raises(ConfigError, match="open files, locks and connections"):  # noqa: PTH123, ASYNC230
        await pool.run(handle.read, timeout_seconds=10)


async def test_local_classes_travel_by_value(pool: WorkerPool) -> None:
    """Code that no module holds, as in a notebook cell, runs too."""
    factor = 3
    assert await pool.run(lambda number: number * factor, 2, timeout_seconds=10) == 6


@pytest.mark.skipif(sys.platform != "linux", reason="the engine's end is told by Linux only")
def test_worker_ends_with_its_engine_in_the_middle_of_a_catastrophe(tmp_path: Path) -> None:
    """SIGKILL of the engine leaves no worker behind, however deep it is in a regular expression."""
    script = (
        "import anyio\n"
        "from agentcompass.engine.workers import open_workers\n"
        "from tests.engine.test_workers import catastrophe\n"
        "async def main():\n"
        "    async with open_workers(1) as pool:\n"
        "        print('up', flush=True)\n"
        "        await pool.run(catastrophe, timeout_seconds=60)\n"
        "anyio.run(main)\n"
    )
    engine = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT)
    assert engine.stdout is not None
    engine.stdout.readline()
    worker = wait_for_child(psutil.Process(engine.pid))
    engine.kill()
    engine.wait()
    engine.stdout.close()
    worker.wait(timeout=10)


def wait_for_child(process: psutil.Process) -> psutil.Process:
    """Return a worker that has been computing for a moment."""
    while not (children := process.children()) or children[0].cpu_times().user < 0.3:
        time.sleep(0.01)
    return children[0]


async def test_worker_outlives_the_thread_that_started_it(pool: WorkerPool) -> None:
    """Event loops may start processes from threads that end soon; that is not the engine's end."""
    first = await pool.run(os.getpid, timeout_seconds=10)
    os.kill(first, signal.SIGTERM)  # what Linux sends when such a thread ends
    assert await pool.run(os.getpid, timeout_seconds=10) == first
