"""The root of the task tree: one orchestration, its shared limits, its deadline and its requests."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from inspect import iscoroutinefunction
from pathlib import Path

import anyio
from anyio import to_thread

from ..clock import Clock, SystemClock, utc_text
from ..errors import ConfigError, Finding
from ..logs import current_log, load_structlog
from ..metrics.intervals import wilson
from ..progress.hub import open_progress
from ..records import RunStatus
from ..spec.orchestration import RUN_NAME, OrchestrationSpec
from ..store.files import SYSTEM_FILES, Files
from ..store.layout import namespace, slug
from ..store.scrub import Scrubber
from .control import Controls, RunningRequest
from .datasets import Datasets
from .environment import close_environment
from .extras import install_extras
from .launch_file import LaunchFile
from .limits import open_provider_settings
from .live import LiveAttempts
from .registry import BrokenComponentError, load_plugins
from .request import run_request
from .resolve import BrokenRequest, ResolvedRequest, resolve
from .result import Execution, OrchestrationResult, RunResult, worst
from .schedule import Schedule
from .shared import Shared
from .stop import RequestStop, StopControl
from .survey import PlannedRun, survey
from .watchdog import watch_loop
from .workers import open_workers


def resolve_all(spec: OrchestrationSpec) -> list[ResolvedRequest | BrokenRequest]:
    """
    Construct the components of every request; imports components, so it blocks.

    Raises:
        ConfigError: Anything in the specification cannot work; lists every finding of every request.
    """
    load_plugins(spec.runtime.plugins)
    install_extras(spec)
    resolved: list[ResolvedRequest | BrokenRequest] = []
    problems: list[str] = []
    for index, request in enumerate(spec.requests):
        try:
            resolved.append(resolve(request, spec.runtime))
        except BrokenComponentError as error:
            resolved.append(BrokenRequest(request.name, error))
        except ConfigError as error:
            if request.name == RUN_NAME:
                raise
            problems += spec.locate(_by_section(error), "requests", index)
    if problems:
        raise ConfigError("\n".join(dict.fromkeys(problems)))
    return resolved


def _by_section(error: ConfigError) -> ConfigError:
    """Name parameters by the section of a request that they stand in, not by an argument of a single run."""
    findings = []
    for path, text in error.findings:
        first, *rest = path
        section = str(first).removesuffix("_params")
        own = ("model", section) if section.startswith("model_") else (section,)
        findings.append(Finding((*own, *rest), text))
    return ConfigError(str(error), findings=findings)


async def run_orchestration(
    spec: OrchestrationSpec,
    requests: Sequence[ResolvedRequest | BrokenRequest],
    *,
    stop: StopControl,
    controls: Controls | None = None,
    clock: Clock | None = None,
    files: Files = SYSTEM_FILES,
) -> OrchestrationResult:
    """
    Run all requests under one task limit and one deadline, and return when everything has ended.

    Args:
        controls: Attached to the orchestration while it runs.
    """
    controls = controls or Controls()
    clock = clock or SystemClock()
    started = clock.now()
    await to_thread.run_sync(load_structlog)
    async with _open_shared(spec, requests, stop=stop, clock=clock, files=files) as shared:
        with _placed(shared, requests, controls) as running:
            controls.attach(shared, running)
            try:
                results = await _run_all(shared, spec, requests, running)
            finally:
                controls.detach()
    return OrchestrationResult(
        status=worst([result.status for result in results]),
        requests=results,
        seconds=clock.now() - started,
    )


@asynccontextmanager
async def _open_shared(
    spec: OrchestrationSpec,
    requests: Sequence[ResolvedRequest | BrokenRequest],
    *,
    stop: StopControl,
    clock: Clock,
    files: Files,
) -> AsyncIterator[Shared]:
    runtime = spec.runtime
    async with (
        open_workers() as workers,
        open_progress(mode=runtime.progress, on_progress=runtime.on_progress, interval=wilson) as hub,
        watch_loop() as watch,
    ):
        with open_provider_settings(
            limits=runtime.provider_limits, open_qps=runtime.env_open_qps
        ) as providers:
            yield Shared(
                runtime=runtime,
                schedule=Schedule(spec.task_concurrency),
                providers=providers,
                lanes={},
                deadline=anyio.current_time() + (runtime.timeout_seconds or math.inf),
                stop=stop,
                workers=workers,
                datasets=Datasets(workers, _resolved(requests)),
                hub=hub,
                scrubber=Scrubber(_secrets(spec)),
                clock=clock,
                files=files,
                watch=watch,
            )


@contextmanager
def _placed(
    shared: Shared, requests: Sequence[ResolvedRequest | BrokenRequest], controls: Controls
) -> Iterator[dict[str, RunningRequest]]:
    """Give every request its place in the schedule, in order, before any of them starts."""
    with ExitStack() as places:
        yield {
            request.name: _running(shared, request, order=order, places=places, controls=controls)
            for order, request in enumerate(_resolved(requests))
        }


async def _run_all(
    shared: Shared,
    spec: OrchestrationSpec,
    requests: Sequence[ResolvedRequest | BrokenRequest],
    running: Mapping[str, RunningRequest],
) -> tuple[RunResult, ...]:
    """Run every request in a task of its own; results are in order."""
    results: dict[str, RunResult] = {}
    file = _launch_file(spec, shared)

    async def run(request: ResolvedRequest | BrokenRequest) -> None:
        if isinstance(request, BrokenRequest):
            result = _failed(request, shared.clock)
        else:
            result = await run_request(
                shared, request, folder=_folder(request), running=running[request.name]
            )
        results[request.name] = result
        await file.note(result)
        await _tell(shared.runtime.on_request_finished, result, shared.stop)

    await file.start()
    try:
        async with anyio.create_task_group() as root:
            for request in requests:
                root.start_soon(run, request)
    finally:
        await file.end()
    return tuple(results[request.name] for request in requests)


def _launch_file(spec: OrchestrationSpec, shared: Shared) -> LaunchFile:
    names = [request.name for request in spec.requests]
    return LaunchFile(
        Path(spec.requests[0].output.results_dir),
        name=spec.name,
        requests=[] if names == [RUN_NAME] else names,  # a single run tells all by itself
        scrubber=shared.scrubber,
        clock=shared.clock,
        files=shared.files,
    )


def _resolved(requests: Sequence[ResolvedRequest | BrokenRequest]) -> list[ResolvedRequest]:
    return [request for request in requests if isinstance(request, ResolvedRequest)]


def _running(
    shared: Shared, request: ResolvedRequest, *, order: int, places: ExitStack, controls: Controls
) -> RunningRequest:
    provider = request.components.environment_id if request.needs_sessions else ""
    place = shared.schedule.place(
        order=order,
        provider=provider,
        cap=request.runtime.task_concurrency,
        weight=request.runtime.weight,
        lane=shared.lane(provider) if provider else None,
    )
    return RunningRequest(
        name=request.name,
        controls=controls,
        provider=request.components.environment_id,
        place=places.enter_context(place),
        stop=RequestStop(shared.stop),
        live=LiveAttempts(shared.clock),
    )


def _failed(request: BrokenRequest, clock: Clock) -> RunResult:
    return RunResult(
        name=request.name,
        status=RunStatus.FAILED,
        error=request.error,
        execution=Execution(started_at=utc_text(clock.wall()), seconds=0.0),
    )


async def _tell(callback: Callable[[RunResult], object] | None, result: RunResult, stop: StopControl) -> None:
    """Tell the caller about a request that has ended; its mistakes are its own."""
    if callback is None:
        return
    try:
        with stop.shield():
            if iscoroutinefunction(callback):
                await callback(result)
            else:
                await to_thread.run_sync(callback, result)
    except Exception as error:  # noqa: BLE001  # a caller's mistake must not cost the other requests
        current_log().error("on_request_finished_failed", error=f"{type(error).__name__}: {error}")


async def plan_orchestration(
    requests: Sequence[ResolvedRequest | BrokenRequest], *, clock: Clock | None = None
) -> list[PlannedRun | BrokenRequest]:
    """Say what running these requests would do, or why one cannot run, and write nothing."""
    plans: list[PlannedRun | BrokenRequest] = []
    async with open_workers() as workers:
        datasets = Datasets(workers, _resolved(requests))
        for request in requests:
            if isinstance(request, BrokenRequest):
                plans.append(request)
                continue
            try:
                plan = survey(
                    request, folder=_folder(request), datasets=datasets, clock=clock or SystemClock()
                )
                plans.append(await plan)
            except ConfigError as error:
                plans.append(BrokenRequest(request.name, error))
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
