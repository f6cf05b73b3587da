"""What all requests of an orchestration share."""

from __future__ import annotations

from dataclasses import dataclass

from ..clock import Clock
from ..progress.hub import ProgressHub
from ..spec.options import RuntimeOptions
from ..store.files import Files
from ..store.scrub import Scrubber
from .datasets import Datasets
from .limits import ProviderSettings
from .schedule import Lane, Schedule
from .stop import StopControl
from .watchdog import LoopWatch
from .workers import WorkerPool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """
    The shared part of an orchestration.

    Args:
        schedule: ``task_concurrency``; the feeders borrow from it.
        lanes: By provider.
        deadline: On the event loop's clock.
        files: The disk that run directories lie on.
        watch: Knows for how long the event loop has stood still.
    """

    runtime: RuntimeOptions
    schedule: Schedule
    providers: ProviderSettings
    lanes: dict[str, Lane]
    deadline: float
    stop: StopControl
    workers: WorkerPool
    datasets: Datasets
    hub: ProgressHub
    scrubber: Scrubber
    clock: Clock
    files: Files
    watch: LoopWatch

    def lane(self, provider: str) -> Lane:
        """Return where attempts queue up for sessions of a provider."""
        if provider not in self.lanes:
            self.lanes[provider] = Lane(self.providers.gates(provider), self.schedule.grant)
        return self.lanes[provider]
