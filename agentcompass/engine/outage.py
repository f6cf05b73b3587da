"""
Stop feeding while infrastructure is down.

When trial after trial of a request dies of the same infrastructure error with no success between, further
ones would only burn through the tasks. The breaker then lets single trials through, with growing pauses,
until one succeeds or the request gives up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import anyio

from ..clock import Clock
from ..errors import OutageError

FAILURES_IN_A_ROW = 10
FIRST_PAUSE_SECONDS = 5.0
MAX_PAUSE_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageStatistics:
    """A snapshot of a breaker."""

    down: bool
    failures_in_a_row: int
    probing: bool
    waiting: int


class OutageBreaker:
    """
    One request's breaker.

    Args:
        clock: Where pauses are spent.
        give_up_seconds: How long it may stay down.
        on_change: Told ``(down, error)`` when it opens and when it closes.
    """

    def __init__(
        self, clock: Clock, *, give_up_seconds: float, on_change: Callable[[bool, str], None]
    ) -> None:
        self._clock = clock
        self._give_up_seconds = give_up_seconds
        self._on_change = on_change
        self._error_class = ""
        self._error = ""
        self._failures = 0
        self._down_since: float | None = None
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._next_probe_at = 0.0
        self._probing = False
        self._waiting = 0
        self._changed = anyio.Event()

    def statistics(self) -> OutageStatistics:
        """Return where it stands."""
        return OutageStatistics(
            down=self._down_since is not None,
            failures_in_a_row=self._failures,
            probing=self._probing,
            waiting=self._waiting,
        )

    async def wait_admission(self) -> None:
        """
        Return at once while all is well; while down, when it is this trial's turn to probe.

        Raises:
            OutageError: It stayed down for too long.
        """
        if self._may_start():
            return
        self._waiting += 1
        try:
            while not self._may_start():
                await self._wait_change()
        finally:
            self._waiting -= 1

    def _may_start(self) -> bool:
        if self._down_since is None:
            return True
        now = self._clock.now()
        if now - self._down_since > self._give_up_seconds:
            raise OutageError(f"gave up after {self._give_up_seconds:g} s of outage; last: {self._error}")
        if self._probing or now < self._next_probe_at:
            return False
        self._probing = True
        return True

    async def _wait_change(self) -> None:
        """Wait for the probe's result, or for the time of the next probe."""
        changed = self._changed
        if self._probing:
            await changed.wait()
            return
        async with anyio.create_task_group() as race:
            race.start_soon(self._sleep_until_probe, race.cancel_scope)
            await changed.wait()
            race.cancel_scope.cancel()

    async def _sleep_until_probe(self, scope: anyio.CancelScope) -> None:
        await self._clock.sleep(max(0.0, self._next_probe_at - self._clock.now()))
        scope.cancel()

    def note_success(self) -> None:
        """A trial got through its infrastructure."""
        was_down = self._down_since is not None
        self._failures = 0
        self._probing = False
        self._down_since = None
        self._pause_seconds = FIRST_PAUSE_SECONDS
        if was_down:
            self._on_change(False, self._error)
        self._wake()

    def note_failure(self, error: Exception) -> None:
        """A trial died of its infrastructure."""
        name = type(error).__name__
        self._failures = self._failures + 1 if name == self._error_class else 1
        self._error_class, self._error = name, f"{name}: {error}"
        if self._down_since is not None:
            self._plan_next_probe()
        elif self._failures >= FAILURES_IN_A_ROW:
            self._down_since = self._clock.now()
            self._plan_next_probe()
            self._on_change(True, self._error)

    def note_abandoned(self) -> None:
        """A trial ended in a way that says nothing about infrastructure."""
        if self._probing:
            self._probing = False
            self._wake()

    def _plan_next_probe(self) -> None:
        self._probing = False
        self._next_probe_at = self._clock.now() + self._pause_seconds
        self._pause_seconds = min(MAX_PAUSE_SECONDS, self._pause_seconds * 2)
        self._wake()

    def _wake(self) -> None:
        if self._waiting:
            self._changed.set()
            self._changed = anyio.Event()
