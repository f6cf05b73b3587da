"""Hand events to the caller's ``on_progress`` one at a time, in order, at the caller's own speed."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from inspect import isawaitable, iscoroutinefunction

from anyio import Event, move_on_after

from ..daemon import DaemonThread
from ..logs import current_log
from ..records import ProgressEvent
from .backlog import Backlog
from .mishaps import Mishaps

OnProgress = Callable[[ProgressEvent], object | Awaitable[object]]

_BATCH = 100
"""Events per visit to the thread: visits cost more than most callbacks."""


class Delivery:
    """Feed a callback; a plain function runs in a thread of its own, an async one on the event loop."""

    def __init__(self, callback: OnProgress) -> None:
        self._callback = callback
        self._backlog = Backlog()
        self._batch: deque[ProgressEvent] = deque()
        self._arrived = Event()
        self._idle = Event()
        self._abandoned = False
        self._mishaps = Mishaps(self._report)
        self._thread = DaemonThread("agentcompass on_progress")
        self._log = current_log()

    def push(self, event: ProgressEvent) -> None:
        """Queue an event."""
        self._log = current_log()  # delivery belongs to no run, so errors go to the log of the last event
        self._backlog.push(event)
        self._arrived.set()
        if self._idle.is_set():
            self._idle = Event()

    async def run(self) -> None:
        """Deliver until cancelled."""
        on_loop = iscoroutinefunction(self._callback)
        try:
            while True:
                await self._refill()
                await (self._call_here() if on_loop else self._call_in_thread())
        finally:
            self._abandoned = True
            self._thread.stop()
            self._idle.set()

    async def drain(self, seconds: float) -> None:
        """Wait until everything is delivered, but not for longer than the given time."""
        with move_on_after(seconds):
            await self._idle.wait()

    def log_losses(self) -> None:
        """Say at the end what the callback did not get or could not take."""
        if self._mishaps.count > 1:
            self._log.warning("on_progress_kept_failing", calls=self._mishaps.count)
        if lost := self._backlog.dropped + len(self._backlog) + len(self._batch):
            self._log.warning("on_progress_too_slow", lost_events=lost)

    def _report(self, error: Exception) -> None:
        self._log.warning("on_progress_failed", exc_info=error)

    async def _refill(self) -> None:
        while not self._backlog:
            self._idle.set()
            self._arrived = Event()
            await self._arrived.wait()
        self._batch.extend(self._backlog.take(_BATCH))

    async def _call_here(self) -> None:
        while self._batch:
            with self._mishaps:
                await self._wait(self._callback(self._batch.popleft()))

    async def _call_in_thread(self) -> None:
        while self._batch:
            result = await self._thread.run(self._call_until_awaitable)
            with self._mishaps:
                await self._wait(result)

    async def _wait(self, result: object) -> None:
        if isawaitable(result):
            await result

    def _call_until_awaitable(self) -> object:
        """Call the callback for the events of the batch; stop where its result has to be awaited."""
        while self._batch and not self._abandoned:
            with self._mishaps:
                result = self._callback(self._batch.popleft())
                if isawaitable(result):
                    return result
        return None
