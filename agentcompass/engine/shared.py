"""What all requests of an orchestration share."""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from ..clock import Clock
from ..progress.hub import ProgressHub
from ..spec.options import RuntimeOptions
from ..store.scrub import Scrubber
from .limits import TaskSlots
from .stop import StopControl
from .workers import WorkerPool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """
    The shared part of an orchestration.

    Args:
        slots: ``task_concurrency``; the feeders borrow from it.
        deadline: On the event loop's clock.
    """

    runtime: RuntimeOptions
    slots: TaskSlots
    deadline: float
    stop: StopControl
    workers: WorkerPool
    hub: ProgressHub
    scrubber: Scrubber
    clock: Clock


class Turn:
    """Lets requests feed in declaration order: each begins when its predecessor has handed out all it has."""

    def __init__(self, previous: Turn | None) -> None:
        self._previous = previous
        self._over = anyio.Event()

    async def wait(self) -> None:
        """Wait until it is this request's turn to feed."""
        if self._previous is not None:
            await self._previous._over.wait()  # noqa: SLF001

    def end(self) -> None:
        """Let the next request feed."""
        self._over.set()
