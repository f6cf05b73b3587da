"""Time as the engine sees it: one protocol, so that tests can bring their own."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

import anyio
import anyio.lowlevel


class Clock(Protocol):
    """A monotonic clock, the wall clock, and pauses."""

    def now(self) -> float:
        """Return monotonic seconds; the same for every thread and event loop of the process."""
        ...

    def wall(self) -> float:
        """Return seconds since the epoch; for people and HTTP dates, never for durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Pause."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


def utc_text(wall_seconds: float) -> str:
    """Write a wall-clock time as ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(wall_seconds, UTC).isoformat(timespec="milliseconds")


class ManualClock:
    """
    A clock for tests: time passes only when told to.

    Args:
        jumping: A sleep moves the time itself instead of waiting for ``advance``.
    """

    def __init__(self, *, jumping: bool = False) -> None:
        self._now = 1000.0
        self._jumping = jumping
        self._sleepers: list[tuple[float, anyio.Event]] = []
        self.slept: list[float] = []
        """Every pause that was asked for."""

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return 1_700_000_000.0 + self._now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self._jumping:
            self.advance(seconds)
            await anyio.lowlevel.checkpoint()
            return
        due = anyio.Event()
        self._sleepers.append((self._now + seconds, due))
        await due.wait()

    def advance(self, seconds: float) -> None:
        """Let time pass and wake who has slept long enough."""
        self._now += seconds
        for until, due in self._sleepers:
            if until <= self._now:
                due.set()
        self._sleepers = [sleeper for sleeper in self._sleepers if sleeper[0] > self._now]

    def sleeping(self) -> int:
        """Return how many wait for the time to pass."""
        return len(self._sleepers)
