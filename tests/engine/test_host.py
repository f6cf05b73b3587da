"""The synchronous call in every host: scripts, running loops, threads; signals and SIGKILL."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil
import pytest

from .scripts import finish, interrupt, run, start, started, wait_until

pytestmark = pytest.mark.slow

RUN = "print(run_evaluation(**ARGUMENTS).status)"


def metrics(folder: Path) -> dict[str, dict[str, int]]:
    [path] = folder.rglob("metrics.json")
    loaded: dict[str, dict[str, int]] = json.loads(path.read_text())
    return loaded


def test_script_without_main_guard(tmp_path: Path) -> None:
    """Worker processes do not run the user's script again."""
    assert run(tmp_path, RUN, HANG_FROM="99").split() == ["completed"]
    assert len(started(tmp_path)) == 30


def test_inside_running_loops_and_threads(tmp_path: Path) -> None:
    """Inside asyncio, inside trio, in a thread, twice in a row: each call works."""
    code = """
    import asyncio, threading, trio
    def call(name):
        print(run_evaluation(**{**ARGUMENTS, "run_id": name}).status)
    async def inside():
        call("inside")
    asyncio.run(inside())
    async def inside_trio():
        call("trio")
    trio.run(inside_trio)
    thread = threading.Thread(target=call, args=("thread",))
    thread.start()
    thread.join()
    call("again")
    """
    assert run(tmp_path, code, HANG_FROM="99").split() == ["completed"] * 4


def test_host_stays_as_it_was(tmp_path: Path) -> None:
    """Logging, signal handlers, the loop policy and structlog are the same after a run."""
    code = """
    import asyncio, logging, signal, structlog
    def state():
        return (
            list(logging.getLogger().handlers), logging.getLogger().level, logging.root.manager.disable,
            signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM),
            signal.getsignal(signal.SIGCHLD),
            type(asyncio.get_event_loop_policy()), structlog.is_configured(),
        )
    before = state()
    run_evaluation(**ARGUMENTS)
    print(state() == before)
    """
    assert run(tmp_path, code, HANG_FROM="99").split() == ["True"]


def test_handlers_of_the_host_keep_their_signals(tmp_path: Path) -> None:
    """Where the host has a handler of its own, a signal goes there and the run goes on."""
    code = """
    import os, signal
    seen = []
    signal.signal(signal.SIGTERM, lambda *_: seen.append("host"))
    def on_progress(event):
        if type(event).__name__ == "RunStarted":
            os.kill(os.getpid(), signal.SIGTERM)
    print(run_evaluation(**ARGUMENTS, on_progress=on_progress).status, seen)
    """
    assert run(tmp_path, code, HANG_FROM="99").strip() == "completed ['host']"


IN_A_LOOP = """
import asyncio, signal
async def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a notebook's kernel
    run_evaluation(**ARGUMENTS)
asyncio.run(main())
"""


@pytest.mark.parametrize("code", [RUN, IN_A_LOOP], ids=["script", "in a loop"])
@pytest.mark.parametrize("times", [1, 2])
def test_interrupt_stops_in_order(tmp_path: Path, times: int, code: str) -> None:
    """SIGINT: nothing new starts, live trials are recorded, metrics written, nothing is left behind."""
    process = start(tmp_path, code)
    wait_until(lambda: len(started(tmp_path)) >= 5)
    for _ in range(times):
        interrupt(process)
    status, _, err = finish(process)
    assert status in {-signal.SIGINT, 130}
    assert "KeyboardInterrupt" in err
    counts = metrics(tmp_path)["counts"]
    assert (counts["finished"], counts["cancelled"], counts["missing"]) == (3, 2, 25)
    assert len(started(tmp_path)) == 5
    assert not left_behind(tmp_path)


def test_sigterm_stops_in_order_and_is_obeyed(tmp_path: Path) -> None:
    """SIGTERM: the same, and then the process dies of it."""
    process = start(tmp_path, RUN)
    wait_until(lambda: len(started(tmp_path)) >= 5)
    interrupt(process, number=signal.SIGTERM)
    interrupt(process, number=signal.SIGTERM)
    status, _, err = finish(process)
    assert status == -signal.SIGTERM
    assert "Traceback" not in err
    assert metrics(tmp_path)["counts"]["cancelled"] == 2


def test_killed_run_is_resumed_without_repeating_anything(tmp_path: Path) -> None:
    """After SIGKILL no process stays, and a second start does only what was not finished."""
    process = start(tmp_path, RUN, HANG_FROM="10")
    wait_until(lambda: len(started(tmp_path)) >= 12 and recorded(tmp_path) == 10)
    process.kill()
    finish(process)
    wait_until(lambda: not left_behind(tmp_path))
    (tmp_path / "started.txt").rename(tmp_path / "first.txt")
    assert run(tmp_path, RUN, HANG_FROM="99").split() == ["completed"]
    assert sorted(started(tmp_path)) == [f"t{number:04d}" for number in range(10, 30)]


def test_two_runs_in_one_second_get_two_folders(tmp_path: Path) -> None:
    """Runs that start together never share a run directory."""
    code = """
    import threading
    ARGUMENTS.pop("run_id")
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(run_evaluation(**ARGUMENTS).paths.run_dir))
        for _ in range(5)
    ]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(len(set(found)))
    """
    assert run(tmp_path, code, HANG_FROM="99").split() == ["5"]


def recorded(folder: Path) -> int:
    """Count the finished attempts on disk: what is only on its way there may be lost."""
    return sum(path.read_bytes().count(b'"outcome":"completed"') for path in folder.rglob("attempts.jsonl"))


def left_behind(folder: Path) -> list[psutil.Process]:
    """Return processes that still work in the folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found
