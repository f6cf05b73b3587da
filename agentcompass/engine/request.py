"""One request from its resolved components to its result: feed its attempts, then write its summary."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import anyio
import msgspec
from anyio import to_thread

from ..clock import utc_text
from ..errors import CompassError, ConfigError, OutageError, StoreError
from ..llm.client import open_model
from ..llm.endpoint import Endpoint
from ..logs import bind_log, current_log, open_run_log
from ..metrics.fold import fold
from ..metrics.summary import render_summary
from ..records import (
    Metrics,
    OutageChanged,
    PhaseChanged,
    ProgressEvent,
    RunFinished,
    RunStarted,
    RunStatus,
    TrialFinished,
    TrialProgressed,
)
from ..store.journal import read_journal
from ..store.writer import RunStore, open_store
from .context import ModelClient
from .control import RunningRequest
from .control_socket import serve_controls
from .environment import close_environment
from .job import Job
from .outage import OutageBreaker
from .prepare import PreparedRequest, lock, prepare
from .resolve import ResolvedRequest
from .result import Execution, RunResult
from .resume import Kept, assignments, kept
from .retry import RetryPolicy
from .reuse import copy_attempts
from .shared import Shared
from .task import Assignment, run_task

_SNAPSHOT_SECONDS = 1.0


@dataclass(slots=True)
class _Course:
    """How a request is going; becomes its result."""

    running: RunningRequest
    started_at: str
    started: float
    executed_trials: int = 0
    kept_attempts: int = 0
    error: CompassError | None = None
    timed_out: bool = False
    metrics: Metrics | None = None
    snapshot_due: float = field(default=0.0)


async def run_request(
    shared: Shared, request: ResolvedRequest, *, folder: str, running: RunningRequest
) -> RunResult:
    """
    Run one request to its result; whatever goes wrong in it is its own outcome.

    Returns:
        The result, also when it failed, was stopped or ran into the deadline.
    """
    course = _Course(running=running, started_at=_now(shared), started=shared.clock.now())
    prepared: PreparedRequest | None = None
    early: list[bytes] = []
    with running.stop.work(deadline=shared.deadline) as scope:
        await running.place.wait_admission()
    course.timed_out = scope.cancelled_caught and not running.stop.requested
    with _open_log(shared, request, early.append):
        async with AsyncExitStack() as ending:
            ending.push_async_callback(close_environment, request.components.environment)
            try:
                async with _open_client(request.endpoint) as client:
                    with running.stop.work(deadline=shared.deadline) as scope:
                        prepared = await prepare(
                            request, folder=folder, datasets=shared.datasets, clock=shared.clock
                        )
                    course.timed_out = scope.cancelled_caught and not running.stop.requested
                    if prepared is not None:
                        await _run_prepared(shared, prepared, client, course, early=early, ending=ending)
            except (ConfigError, StoreError) as error:
                course.error = error
            finally:
                running.place.end()
    if isinstance(course.error, StoreError):
        shared.stop.request()  # a disk that fails one request fails them all
    running.status = _status(course)
    return _result(shared, request, prepared, course)


@contextmanager
def _open_log(
    shared: Shared, request: ResolvedRequest, write_line: Callable[[bytes], object]
) -> Iterator[None]:
    with (
        open_run_log(
            write_line,
            file_level=request.runtime.file_log_level or shared.runtime.file_log_level,
            print_line=shared.hub.print_line,
            console_level=request.runtime.log_level or shared.runtime.log_level,
        ),
        bind_log(request=request.name),
    ):
        yield


async def _run_prepared(
    shared: Shared,
    prepared: PreparedRequest,
    client: ModelClient | None,
    course: _Course,
    *,
    early: Sequence[bytes],
    ending: AsyncExitStack,
) -> None:
    held = await to_thread.run_sync(lock, prepared)
    try:
        # What is done at the end is done while the run's log is open.
        async with (
            _open_files(shared, prepared, early) as store,
            ending.pop_all(),
            serve_controls(prepared.run_dir, course.running.controls, request=prepared.request.name),
        ):
            course.running.run_dir = prepared.paths.run_dir
            try:
                await _work(shared, prepared, client, store, course)
            finally:
                # Also when the host cancelled us: what exists by now is summed up.
                with course.running.stop.shield():
                    await _sum_up(shared, prepared, store, course)
    finally:
        held.release()


@asynccontextmanager
async def _open_files(
    shared: Shared, prepared: PreparedRequest, early: Sequence[bytes]
) -> AsyncIterator[RunStore]:
    """Open the store and, on top of it, the log, which begins with what was said before there was a file."""
    async with open_store(prepared.run_dir, scrubber=shared.scrubber, files=shared.files) as store:
        for line in early:
            store.log_line(line)
        with _open_log(shared, prepared.request, store.log_line), shared.watch.reporting():
            if not prepared.background.resumes:
                await store.write_run(prepared.record)
            yield store


async def _work(
    shared: Shared,
    prepared: PreparedRequest,
    client: ModelClient | None,
    store: RunStore,
    course: _Course,
) -> None:
    """Run what is left of the plan; a stop or the deadline ends it early."""
    background = prepared.background
    earlier = background.earlier
    if background.reused is not None:
        await copy_attempts(background.reused, earlier, run_dir=prepared.run_dir, store=store)
    if prepared.plan_is_new:
        await store.commit_plan(prepared.plan)
    k, in_order = prepared.record.k, prepared.record.strategy == "pass"
    settled = kept(prepared.tasks, earlier, k=k, in_order=in_order)
    course.kept_attempts = settled.attempts
    _emit_start(shared, prepared, store, course, settled)
    work = assignments(prepared.tasks, earlier, k=k, in_order=in_order)
    with course.running.stop.work(deadline=shared.deadline) as scope:
        try:
            job = _job(shared, prepared, client, store, course)
            await _feed(job, work, on_start=lambda: _start_deadline(prepared.request, scope))
        except* (OutageError, StoreError) as group:
            course.error = _first(group)
    course.timed_out = scope.cancelled_caught and not course.running.stop.requested


def _start_deadline(request: ResolvedRequest, scope: anyio.CancelScope) -> None:
    """Count the request's own deadline from now on, when its first attempt starts."""
    seconds = request.runtime.timeout_seconds
    if seconds is not None:
        scope.deadline = min(scope.deadline, anyio.current_time() + seconds)


def _first(group: BaseExceptionGroup[CompassError]) -> CompassError:
    leaf: BaseException = group
    while isinstance(leaf, BaseExceptionGroup):
        leaf = leaf.exceptions[0]
    assert isinstance(leaf, CompassError)
    return leaf


async def _feed(job: Job, work: Iterator[Assignment], *, on_start: Callable[[], None]) -> None:
    """Take a slot, then start the next assignment: only live ones cost memory."""
    started = False
    async with anyio.create_task_group() as live:
        for assignment in work:
            await job.place.take(assignment)
            if not started:
                on_start()
                started = True
            live.start_soon(run_task, job, assignment)
        job.place.end()


def _job(
    shared: Shared,
    prepared: PreparedRequest,
    client: ModelClient | None,
    store: RunStore,
    course: _Course,
) -> Job:
    request = prepared.request
    execution = request.execution
    running = course.running

    def emit(event: ProgressEvent) -> None:
        _publish(shared, store, course, event)

    def tell_outage(down: bool, error: str) -> None:
        emit(OutageChanged(request=request.name, down=down, error=error, at=_now(shared)))
        current_log().error("outage", down=down, error=error)

    patterns = execution.retry_pattern_list
    provider = request.components.environment_id
    running.breaker = OutageBreaker(
        shared.clock,
        give_up_seconds=execution.outage_timeout_seconds,
        on_change=tell_outage,
    )
    return Job(
        name=request.name,
        run_id=prepared.record.run_id,
        components=request.components,
        model=client,
        execution=execution,
        retry=RetryPolicy(
            max_retries=execution.max_retries,
            patterns=None if patterns is None else tuple(patterns),
        ),
        gates=shared.providers.gates(provider),
        lane=shared.lane(provider),
        place=running.place,
        live=running.live,
        breaker=running.breaker,
        workers=shared.workers,
        store=store,
        stop=running.stop,
        clock=shared.clock,
        emit=emit,
    )


@asynccontextmanager
async def _open_client(endpoint: Endpoint | None) -> AsyncIterator[ModelClient | None]:
    if endpoint is None:
        yield None
        return
    async with open_model(endpoint) as client:
        yield client


# --- telling ----------------------------------------------------------------------------------------


def _now(shared: Shared) -> str:
    return utc_text(shared.clock.wall())


def _publish(shared: Shared, store: RunStore, course: _Course, event: ProgressEvent) -> None:
    shared.hub.emit(event)
    match event:
        case PhaseChanged() | TrialProgressed():
            return  # for the live display only; the record holds the phases' times
        case TrialFinished():
            course.executed_trials += 1
    store.event(event)
    now = shared.clock.now()
    if now >= course.snapshot_due:
        course.snapshot_due = now + _SNAPSHOT_SECONDS
        _save_snapshot(shared, store, event.request)


def _save_snapshot(shared: Shared, store: RunStore, request: str) -> None:
    snapshot = shared.hub.snapshot(request, at=_now(shared))
    if snapshot is not None:
        store.snapshot(snapshot)


def _emit_start(
    shared: Shared, prepared: PreparedRequest, store: RunStore, course: _Course, settled: Kept
) -> None:
    event = RunStarted(
        request=prepared.request.name,
        run_id=prepared.record.run_id,
        run_dir=prepared.paths.run_dir,
        tasks=len(prepared.tasks),
        attempts=len(prepared.tasks) * prepared.record.k,
        already_finished=settled.attempts + settled.needless,
        kept_evaluated=settled.attempts,
        kept_score_sum=settled.score_sum,
        strategy=prepared.record.strategy,
        at=_now(shared),
    )
    _publish(shared, store, course, event)
    current_log().info("run_started", run_id=event.run_id, tasks=event.tasks, attempts=event.attempts)


# --- the end ----------------------------------------------------------------------------------------


async def _sum_up(shared: Shared, prepared: PreparedRequest, store: RunStore, course: _Course) -> None:
    """Fold the journal into metrics and summary, and say that the run is over."""
    prepared.tasks.clear()  # the fold needs their memory when there are very many
    course.metrics = await to_thread.run_sync(fold_journal, prepared.paths.journal)
    await store.write_final(course.metrics, render_summary(prepared.record, course.metrics))
    event = RunFinished(
        request=prepared.request.name,
        run_id=prepared.record.run_id,
        status=_status(course),
        value=course.metrics.score.value,
        seconds=shared.clock.now() - course.started,
        at=_now(shared),
    )
    _publish(shared, store, course, event)
    _save_snapshot(shared, store, event.request)
    current_log().info(
        "run_finished",
        status=event.status,
        value=event.value,
        seconds=event.seconds,
        loop_lag_worst_seconds=round(shared.watch.worst_seconds, 3),
    )


def fold_journal(path: str) -> Metrics:
    """Compute a run's metrics from its journal alone; blocks."""
    reader = read_journal(path)
    metrics = fold(reader)
    return msgspec.structs.replace(metrics, damaged_lines=reader.damaged_lines)


def _status(course: _Course) -> RunStatus:
    if course.error is not None:
        return RunStatus.FAILED
    score = course.metrics.score if course.metrics else None
    if score is not None and score.planned and score.evaluated == score.planned:
        return RunStatus.COMPLETED
    if course.timed_out:
        return RunStatus.TIMED_OUT
    if course.running.stop.requested or score is None:
        return RunStatus.CANCELLED
    return RunStatus.PARTIAL if score.evaluated else RunStatus.FAILED


def _result(
    shared: Shared, request: ResolvedRequest, prepared: PreparedRequest | None, course: _Course
) -> RunResult:
    return RunResult(
        name=request.name,
        status=_status(course),
        run_id=prepared.record.run_id if prepared else "",
        metrics=course.metrics,
        paths=prepared.paths if prepared else None,
        error=course.error,
        execution=Execution(
            started_at=course.started_at,
            seconds=shared.clock.now() - course.started,
            executed_trials=course.executed_trials,
            kept_attempts=course.kept_attempts,
        ),
    )
