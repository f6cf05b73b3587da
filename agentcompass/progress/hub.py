"""Where the engine sends its events; they reach the display and the caller's callback at their own speed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal, TextIO, assert_never

import anyio

from ..records import ProgressEvent, ProgressSnapshot
from .delivery import Delivery, OnProgress
from .display import Display, QuietDisplay
from .json_lines import JsonDisplay
from .live import LiveDisplay, terminal_lock
from .notebook import NotebookDisplay, find_notebook
from .output import Output
from .plain import PlainDisplay
from .screen import Screen
from .tally import Interval, Tally

Mode = Literal["auto", "plain", "json", "none"]


class ProgressHub:
    """Take events and log lines; neither ever waits or raises."""

    def __init__(
        self,
        screen: Screen,
        delivery: Delivery | None,
        *,
        interval: Interval | None,
        clock: Callable[[], float],
    ) -> None:
        self._screen = screen
        self._delivery = delivery
        self._interval = interval
        self._clock = clock
        self._tallies: dict[str, Tally] = {}

    def emit(self, event: ProgressEvent) -> None:
        """Take in an event; call it on the thread of the event loop."""
        tally = self._tallies.get(event.request)
        if tally is None:
            tally = Tally(event.request, interval=self._interval, clock=self._clock)
            self._tallies[event.request] = tally
        tally.apply(event)
        self._screen.note(event, tally)
        if self._delivery is not None:
            self._delivery.push(event)

    def print_line(self, text: str) -> None:
        """Show one line to a person without tearing the display; call it on any thread."""
        self._screen.line(text)

    def snapshot(self, request: str, *, at: str = "") -> ProgressSnapshot | None:
        """Return where a request stands, None before its first event."""
        tally = self._tallies.get(request)
        return None if tally is None else tally.snapshot(at=at)


@asynccontextmanager
async def open_progress(
    *,
    mode: Mode,
    on_progress: OnProgress | None = None,
    stream: TextIO | None = None,
    interval: Interval | None = None,
    flush_seconds: float = 5.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
) -> AsyncIterator[ProgressHub]:
    """
    Open the display and start delivering events.

    Args:
        on_progress: Receives every event in order; may be slow, may raise.
        stream: Where a person or a program reads; the process's stderr by default.
        interval: Tells how uncertain the running score is.
        flush_seconds: How long callback and display may each take at the end for what still waits.
    """
    screen = Screen(_choose_display(mode, stream, clock))
    delivery = None if on_progress is None else Delivery(on_progress)
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(screen.run, sleep)
            if delivery is not None:
                group.start_soon(delivery.run)
            try:
                yield ProgressHub(screen, delivery, interval=interval, clock=clock)
            except Exception as error:  # noqa: BLE001 - raised below: the task group would wrap it
                failure = error
            if delivery is not None:
                await delivery.drain(flush_seconds)
            group.cancel_scope.cancel()
    finally:
        if delivery is not None:
            delivery.log_losses()
        await screen.close(grace_seconds=flush_seconds)
    if failure is not None:
        raise failure


def _choose_display(mode: Mode, stream: TextIO | None, clock: Callable[[], float]) -> Display:
    output = Output(stream or sys.stderr)
    match mode:
        case "auto":
            return _suitable_display(output, clock, notebook_allowed=stream is None)
        case "plain":
            return PlainDisplay(output, clock=clock)
        case "json":
            return JsonDisplay(output)
        case "none":
            return QuietDisplay(output)
    assert_never(mode)


def _suitable_display(output: Output, clock: Callable[[], float], *, notebook_allowed: bool) -> Display:
    if notebook_allowed and (shell := find_notebook()) is not None:
        return NotebookDisplay(shell, output, clock=clock)
    drawable = output.isatty() and os.environ.get("TERM") != "dumb"
    if drawable and terminal_lock.acquire(blocking=False):  # the last paint releases it
        return LiveDisplay(output, clock=clock)
    return PlainDisplay(output, clock=clock)
