"""The root of the task tree: one orchestration, its shared limits, its deadline and its requests."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import anyio
from anyio import to_thread

from ..clock import Clock, SystemClock
from ..logs import load_structlog
from ..metrics.intervals import wilson
from ..progress.hub import open_progress
from ..spec.orchestration import RUN_NAME, OrchestrationSpec
from ..store.layout import namespace, slug
from ..store.scrub import Scrubber
from .environment import close_environment
from .limits import TaskSlots
from .prepare import PlannedRun, survey
from .registry import load_plugins
from .request import run_request
from .resolve import ResolvedRequest, refuse_unsupported, resolve
from .result import OrchestrationResult, RunResult, worst
from .shared import Shared, Turn
from .stop import StopControl
from .workers import open_workers


def resolve_all(spec: OrchestrationSpec) -> list[ResolvedRequest]:
    """
    Construct the components of every request; imports components, so it blocks.

    Raises:
        ConfigError: Anything in the specification cannot work.
    """
    refuse_unsupported(spec.runtime)
    load_plugins(spec.runtime.plugins)
    return [resolve(request) for request in spec.requests]


async def run_orchestration(
    spec: OrchestrationSpec,
    requests: Sequence[ResolvedRequest],
    *,
    stop: StopControl,
    clock: Clock | None = None,
) -> OrchestrationResult:
    """Run all requests under one task limit and one deadline, and return when everything has ended."""
    clock = clock or SystemClock()
    runtime = spec.runtime
    started = clock.now()
    results: dict[str, RunResult] = {}
    await to_thread.run_sync(load_structlog)
    async with (
        open_workers() as workers,
        open_progress(mode=runtime.progress, on_progress=runtime.on_progress, interval=wilson) as hub,
    ):
        shared = Shared(
            runtime=runtime,
            slots=TaskSlots(spec.task_concurrency),
            deadline=anyio.current_time() + (runtime.timeout_seconds or math.inf),
            stop=stop,
            workers=workers,
            hub=hub,
            scrubber=Scrubber(_secrets(spec)),
            clock=clock,
        )

        async def run(request: ResolvedRequest, turn: Turn) -> None:
            results[request.name] = await run_request(shared, request, folder=_folder(request), turn=turn)

        async with anyio.create_task_group() as root:
            turn = None
            for request in requests:
                turn = Turn(turn)
                root.start_soon(run, request, turn)
    in_order = tuple(results[request.name] for request in requests)
    return OrchestrationResult(
        status=worst([result.status for result in in_order]),
        requests=in_order,
        seconds=clock.now() - started,
    )


async def plan_orchestration(
    requests: Sequence[ResolvedRequest], *, clock: Clock | None = None
) -> list[PlannedRun]:
    """Say what running these requests would do, and write nothing."""
    plans = []
    async with open_workers() as workers:
        for request in requests:
            try:
                plan = survey(request, folder=_folder(request), workers=workers, clock=clock or SystemClock())
                plans.append(await plan)
            finally:
                await close_environment(request.components.environment)
    return plans


def _folder(request: ResolvedRequest) -> str:
    return namespace(*request.namespace_parts) if request.name == RUN_NAME else slug(request.name)


def _secrets(spec: OrchestrationSpec) -> Iterator[str]:
    """Yield every key that was given, also one that its request does not use."""
    for request in spec.requests:
        if request.model is not None and request.model.key is not None:
            yield request.model.key.get_secret_value()
