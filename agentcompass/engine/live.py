"""What is in flight: every live attempt, what it does or waits for, and since when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from ..clock import Clock


@dataclass(slots=True, eq=False)
class LiveAttempt:
    """
    An attempt in flight.

    Args:
        borrower: Who holds the task slot.
        doing: What it does, or ``waits for ...``.
        since: When it began to, on the run's clock.
        scope: Cancels it.
    """

    clock: Clock
    task_id: str
    attempt: int
    borrower: object = field(repr=False)  # holds the whole task
    trial: int = 1
    doing: str = "starting"
    since: float = 0.0
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def now(self, doing: str) -> None:
        """Say what the attempt does from now on."""
        self.doing = doing
        self.since = self.clock.now()


class LiveAttempts:
    """The attempts of a request that are in flight, and the tasks that somebody has cancelled."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._attempts: dict[LiveAttempt, None] = {}
        self._cancelled: set[str] = set()

    def __iter__(self) -> Iterator[LiveAttempt]:
        return iter(tuple(self._attempts))

    @contextmanager
    def enter(self, task_id: str, attempt: int, *, borrower: object) -> Iterator[LiveAttempt]:
        """Count an attempt as live while the block runs; ``cancel`` ends the block early."""
        live = LiveAttempt(self._clock, task_id, attempt, borrower, since=self._clock.now())
        self._attempts[live] = None
        try:
            with live.scope:
                yield live
        finally:
            del self._attempts[live]

    def cancel(self, task_id: str) -> int:
        """Cancel a task's live attempts and start no further ones; return how many were live."""
        self._cancelled.add(task_id)
        live = [attempt for attempt in self if attempt.task_id == task_id]
        for attempt in live:
            attempt.scope.cancel()
        return len(live)

    def is_cancelled(self, task_id: str) -> bool:
        """Whether no further attempts of the task may start."""
        return task_id in self._cancelled
