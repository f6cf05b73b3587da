from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Awaitable

import anyio
import pytest

from agentcompass.logs import load_structlog, open_run_log
from agentcompass.progress.hub import Mode, open_progress
from agentcompass.progress.live import terminal_lock
from agentcompass.records import ProgressEvent, TrialFinished

from .events import finished, phase, run_finished, run_started, started

pytestmark = pytest.mark.anyio

EVENTS: list[ProgressEvent] = [
    run_started(1),
    started("a"),
    phase("a", "agent"),
    finished("a"),
    run_finished(),
]


@pytest.fixture(autouse=True, scope="module")
def structlog_is_loaded() -> None:
    load_structlog()


async def feed(
    mode: Mode = "none", *, stream: io.StringIO | None = None, events: list[ProgressEvent] = EVENTS
) -> str:
    stream = stream or io.StringIO()
    async with open_progress(mode=mode, stream=stream) as hub:
        for event in events:
            hub.emit(event)
        hub.print_line("a log line")
    return stream.getvalue()


@pytest.mark.parametrize(("mode", "expected"), [("auto", 3), ("plain", 3), ("json", 6), ("none", 1)])
async def test_mode_chooses_what_is_shown(mode: Mode, expected: int) -> None:
    """Off a terminal `auto` means plain lines; `none` leaves only the log."""
    assert len((await feed(mode)).splitlines()) == expected


async def test_sync_callback_gets_all_events_in_order_off_the_loop() -> None:
    """A plain function runs in one thread of its own, so it may block."""
    seen: list[tuple[ProgressEvent, int]] = []
    async with open_progress(
        mode="none",
        stream=io.StringIO(),
        on_progress=lambda event: seen.append((event, threading.get_ident())),
    ) as hub:
        for event in EVENTS * 100:
            hub.emit(event)
    assert [event for event, _ in seen] == EVENTS * 100
    assert {thread for _, thread in seen}.isdisjoint({threading.get_ident()})
    assert len({thread for _, thread in seen}) == 1


@pytest.mark.parametrize("disguised", [False, True])
async def test_async_callback_is_awaited_one_event_at_a_time(disguised: bool) -> None:
    """An async function runs on the loop; so does what a plain function returns for awaiting."""
    seen: list[ProgressEvent] = []
    busy = anyio.Lock()

    async def slow(event: ProgressEvent) -> None:
        busy.acquire_nowait()
        await anyio.lowlevel.checkpoint()
        seen.append(event)
        busy.release()

    def plain(event: ProgressEvent) -> Awaitable[None]:
        return slow(event)

    async with open_progress(
        mode="none", stream=io.StringIO(), on_progress=plain if disguised else slow
    ) as hub:
        for event in EVENTS:
            hub.emit(event)
    assert seen == EVENTS


@pytest.mark.parametrize("on_loop", [False, True])
async def test_raising_callback_is_logged_once_and_goes_on(on_loop: bool) -> None:
    """Its first error is in the run's log, the number of errors too, and every event is still tried."""
    seen: list[ProgressEvent] = []
    lines: list[bytes] = []

    def broken(event: ProgressEvent) -> None:
        seen.append(event)
        raise ValueError("callback bug")

    async def broken_on_loop(event: ProgressEvent) -> None:
        broken(event)

    async with open_progress(
        mode="none", stream=io.StringIO(), on_progress=broken_on_loop if on_loop else broken
    ) as hub:
        with open_run_log(lines.append):
            for event in EVENTS:
                hub.emit(event)
    assert seen == EVENTS
    assert len(lines) == 2
    assert b'"on_progress_failed"' in lines[0]
    assert b"callback bug" in lines[0]
    assert b'"on_progress_kept_failing"' in lines[1]
    assert b'"calls":5' in lines[1]


@pytest.mark.parametrize("on_loop", [False, True])
async def test_callback_that_never_returns_is_given_up(on_loop: bool) -> None:
    """The end of the run waits for it for a bounded time only; the loss is logged."""
    lines: list[bytes] = []
    release = threading.Event()

    async def stuck(_event: ProgressEvent) -> None:
        await anyio.sleep_forever()

    with anyio.fail_after(5):
        async with open_progress(
            mode="none",
            stream=io.StringIO(),
            flush_seconds=0.01,
            on_progress=stuck if on_loop else lambda _event: release.wait(),
        ) as hub:
            with open_run_log(lines.append):
                for event in EVENTS:
                    hub.emit(event)
    release.set()
    assert b'"on_progress_too_slow"' in lines[-1]
    assert b'"lost_events":4' in lines[-1]


def results_of(events: list[ProgressEvent]) -> list[TrialFinished]:
    return [event for event in events if isinstance(event, TrialFinished)]


async def test_slow_callback_holds_up_neither_run_nor_memory() -> None:
    """While the callback is busy, emitting goes on; results outlive starts in the bounded backlog."""
    seen: list[ProgressEvent] = []
    entered, release = threading.Event(), threading.Event()

    def slow(event: ProgressEvent) -> None:
        seen.append(event)
        entered.set()
        release.wait()

    async with open_progress(mode="none", stream=io.StringIO(), on_progress=slow) as hub:
        hub.emit(run_started(30_000))
        while not entered.is_set():
            await anyio.lowlevel.checkpoint()
        for number in range(9_000):
            hub.emit(started(str(number)))
            hub.emit(finished(str(number)))
        release.set()
    assert len(seen) == 10_001
    assert sum(event == finished(str(number)) for number, event in enumerate(results_of(seen))) == 9_000


async def test_cancelled_run_still_shows_where_it_stood() -> None:
    """Cancellation ends delivery, but the display is painted a last time."""
    stream = io.StringIO()
    with anyio.CancelScope() as scope:
        async with open_progress(mode="plain", stream=stream, on_progress=lambda _event: None) as hub:
            hub.emit(run_started(10))
            hub.emit(finished("a"))
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert "demo · 1/10 (10%)" in stream.getvalue()


async def test_error_of_the_run_passes_unwrapped() -> None:
    """Whoever catches an error round the display gets that error, not a group."""
    with pytest.raises(ValueError, match="from the run"):
        async with open_progress(mode="plain", stream=io.StringIO()):
            raise ValueError("from the run")


class BrokenStream(io.StringIO):
    """Fails in a way that no stream should."""

    def write(self, _text: str) -> int:
        raise AttributeError("no such stream")


async def test_broken_display_never_reaches_the_run() -> None:
    """Errors of the display are logged; emitting goes on."""
    lines: list[bytes] = []
    async with open_progress(mode="plain", stream=BrokenStream()) as hub:
        with open_run_log(lines.append):
            hub.emit(run_started(1))
    assert b'"progress_display_failed"' in lines[0]


async def test_painting_happens_while_the_run_works() -> None:
    """Lines appear at the next tick, not only at the end."""
    stream, ticks = io.StringIO(), 0

    async def tick(_seconds: float) -> None:
        nonlocal ticks
        ticks += 1
        await anyio.lowlevel.checkpoint()

    with anyio.fail_after(5):
        async with open_progress(mode="plain", stream=stream, sleep=tick) as hub:
            hub.emit(run_started(1))
            while "started" not in stream.getvalue():
                await anyio.lowlevel.checkpoint()
    assert ticks > 0


async def test_snapshot_follows_the_events() -> None:
    """Each request has its own standing."""
    async with open_progress(mode="none", stream=io.StringIO()) as hub:
        hub.emit(run_started(3))
        hub.emit(run_started(5, request="other"))
        hub.emit(finished("a", request="other"))
        one, other = hub.snapshot("demo"), hub.snapshot("other")
        assert one is not None
        assert other is not None
        assert (one.done, other.done, hub.snapshot("unknown")) == (0, 1, None)


async def test_second_live_view_of_a_process_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs at once share a terminal without tearing each other's rows; afterwards it is free again."""
    monkeypatch.setenv("TERM", "xterm")
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stream:
        async with open_progress(mode="auto", stream=stream) as first:
            first.emit(run_started(1))
            async with open_progress(mode="auto", stream=stream) as second:
                second.emit(run_started(1, request="second"))
            shown = await anyio.to_thread.run_sync(os.read, controller, 10_000)
        assert "second · started".encode() in shown
        assert not terminal_lock.locked()
    os.close(controller)


@pytest.mark.parametrize("term", ["dumb", "xterm"])
async def test_dumb_terminal_gets_plain_lines(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a terminal that understands control sequences gets any."""
    monkeypatch.setenv("TERM", term)
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stream:
        async with open_progress(mode="auto", stream=stream) as hub:
            hub.emit(run_started(1))
        shown = await anyio.to_thread.run_sync(os.read, controller, 10_000)
    os.close(controller)
    assert (b"\x1b" in shown) is (term == "xterm")


@pytest.mark.slow
def test_opening_a_plain_display_imports_neither_rich_nor_ipython() -> None:
    """Heavy packages are loaded only for the display that needs them."""
    program = (
        "import sys, anyio\n"
        "from agentcompass.progress.hub import open_progress\n"
        "async def main():\n"
        "    async with open_progress(mode='auto') as hub: hub.print_line('x')\n"
        "anyio.run(main)\n"
        "assert not {'rich', 'IPython', 'structlog'} & set(sys.modules), 'imported'\n"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (process.returncode, process.stderr) == (0, b"x\n")
