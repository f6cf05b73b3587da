"""
Notice when something blocks the event loop, and say what.

A thread asks the loop a few times a second to answer. While there is no answer, nothing moves: no deadline,
no model call, no Ctrl-C. The stack of the loop's thread at that moment names the culprit.
"""

from __future__ import annotations

import math
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from anyio.lowlevel import EventLoopToken, current_token

from ..logs import Log, current_log
from .limits import wake_call

THRESHOLD_SECONDS = 1.0
"""A loop that stands still for longer is blocked."""
STUCK_SECONDS = 30.0
"""What stands still for longer may do so for ever: it is told at once then, not when it is over."""
_TICKS = 4
"""Questions per threshold."""
_FRAMES = 12
_MAX_REPORTS = 20
"""A component that blocks in every trial is not told every time."""


@dataclass(slots=True)
class LoopWatch:
    """What the thread has seen; made by ``watch_loop``."""

    worst_seconds: float = 0.0
    """The longest time that the loop has stood still."""
    told: int = 0
    """How many times it was blocked."""
    _logs: list[Log] = field(default_factory=list)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Report to the current log while the block runs: whose component it was cannot be told apart."""
        log = current_log()
        self._logs.append(log)
        try:
            yield
        finally:
            self._logs.remove(log)

    def _report(self, seconds: float, stack: list[str]) -> None:
        if self.told < _MAX_REPORTS:
            for log in list(self._logs):
                log.warning("event_loop_blocked", seconds=round(seconds, 1), where=stack[-1], stack=stack)
        self.told += 1


@asynccontextmanager
async def watch_loop(
    *, threshold_seconds: float = THRESHOLD_SECONDS, stuck_seconds: float = STUCK_SECONDS
) -> AsyncIterator[LoopWatch]:
    """Watch the event loop that runs this, from a thread, while the block runs."""
    watch, over = LoopWatch(), threading.Event()
    thread = threading.Thread(
        target=_Watcher(watch, over, threshold_seconds, stuck_seconds).run,
        name="agentcompass watchdog",
        daemon=True,
    )
    thread.start()
    try:
        yield watch
    finally:
        over.set()


class _Watcher:
    """The thread's side; made in the loop's thread."""

    def __init__(
        self, watch: LoopWatch, over: threading.Event, threshold_seconds: float, stuck_seconds: float
    ) -> None:
        self._watch = watch
        self._over = over
        self._threshold_seconds = threshold_seconds
        self._stuck_seconds = stuck_seconds
        self._token: EventLoopToken = current_token()
        self._loop_thread = threading.get_ident()

    def run(self) -> None:
        """Ask, wait for the answer, pause."""
        pause_seconds = self._threshold_seconds / _TICKS
        while not self._over.wait(pause_seconds):
            answered = threading.Event()
            asked = time.monotonic()
            wake_call(self._token, answered.set)
            if not answered.wait(self._threshold_seconds):
                self._wait_blocked(answered, asked)
            if answered.is_set():
                self._watch.worst_seconds = max(self._watch.worst_seconds, time.monotonic() - asked)

    def _wait_blocked(self, answered: threading.Event, asked: float) -> None:
        """Wait until the loop turns again, then tell; after a while tell without waiting."""
        stack = self._stack()
        turned = self._wait_answer(answered, until=asked + self._stuck_seconds)
        if self._over.is_set():
            return
        self._watch._report(time.monotonic() - asked, stack)  # noqa: SLF001
        if not turned:
            self._wait_answer(answered, until=math.inf)

    def _wait_answer(self, answered: threading.Event, *, until: float) -> bool:
        while not answered.wait(self._threshold_seconds / _TICKS):
            if self._over.is_set() or time.monotonic() >= until:
                return False
        return True

    def _stack(self) -> list[str]:
        """Return what the loop's thread is doing, the innermost call last."""
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001  # there is no other way
        frames = traceback.extract_stack(frame) if frame else []
        return [f"{it.name} ({it.filename}:{it.lineno})" for it in frames[-_FRAMES:]] or ["unknown"]
