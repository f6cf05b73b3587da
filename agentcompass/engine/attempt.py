"""One attempt: its trials, the decision to retry, and the one record of each trial."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from ..clock import utc_text
from ..errors import Phase, TrialError
from ..logs import bind_log, current_log
from ..protocols import Verdict
from ..records import (
    Detail,
    Failure,
    OutcomeClass,
    PhaseChanged,
    Timings,
    TrialFinished,
    TrialProgressed,
    TrialRecord,
    TrialStarted,
)
from .context import Gathered
from .job import Job
from .live import LiveAttempt
from .loading import PlannedTask
from .retry import pause_seconds
from .trial import run_trial

FinishWork = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Identity:
    """Which trial of which attempt of which task."""

    planned: PlannedTask
    live: LiveAttempt
    attempt: int
    trial: int
    retries_done: int
    finish_work: FinishWork | None
    started_at: str
    started: float


async def run_attempt(
    job: Job,
    planned: PlannedTask,
    live: LiveAttempt,
    *,
    first_trial: int = 1,
    finish_work: FinishWork | None = None,
) -> TrialRecord:
    """
    Run trials until one counts or the retries are used up; each is on disk before the next begins.

    Args:
        finish_work: Awaited when nothing but writing the last record is left to do.

    Returns:
        The record of the last trial.

    Raises:
        OutageError: The request's infrastructure stayed down for too long.
        StoreError: The record could not be written.
    """
    retries_done = 0
    while True:
        live.trial = first_trial + retries_done
        live.now("waits for the end of an outage")
        await job.breaker.wait_admission()
        identity = _Identity(
            planned=planned,
            live=live,
            attempt=live.attempt,
            trial=live.trial,
            retries_done=retries_done,
            finish_work=finish_work,
            started_at=utc_text(job.clock.wall()),
            started=job.clock.now(),
        )
        with bind_log(task=planned.task.id, attempt=live.attempt, trial=live.trial):
            record, error = await _run_and_record(job, identity)
        if error is None or not record.discarded:
            return record
        live.now("waits before a retry")
        await job.clock.sleep(pause_seconds(error, retries_done=retries_done))
        retries_done += 1


async def _run_and_record(job: Job, identity: _Identity) -> tuple[TrialRecord, Exception | None]:
    task, attempt = identity.planned.task, identity.attempt
    gathered = Gathered(
        clock=job.clock,
        live=identity.live,
        on_phase=lambda phase: _emit_phase(job, identity, phase),
        on_step=lambda gathered: _emit_step(job, identity, gathered),
    )
    job.emit(
        TrialStarted(
            request=job.name,
            task_id=task.id,
            attempt=attempt,
            trial=identity.trial,
            at=identity.started_at,
        )
    )
    verdict: Verdict | None = None
    error: Exception | None = None
    try:
        verdict = await run_trial(job, task, attempt, gathered)
        error = gathered.agent_error
    except anyio.get_cancelled_exc_class():
        job.breaker.note_abandoned()
        await _record(job, identity, gathered, OutcomeClass.CANCELLED)
        raise
    except Exception as raised:  # noqa: BLE001  # the one guard: whatever a trial raises becomes its record
        error = raised
    outcome = _outcome_class(gathered, error)
    _tell_breaker(job, outcome, error)
    retries_done = identity.retries_done
    discarded = error is not None and verdict is None and job.retry.wants(error, retries_done=retries_done)
    record = await _record(
        job, identity, gathered, outcome, verdict=verdict, error=error, discarded=discarded
    )
    return record, error


def _outcome_class(gathered: Gathered, error: Exception | None) -> OutcomeClass:
    match error:
        case TrialError() if error.agent_fault:
            return OutcomeClass.AGENT_ERROR
        case TrialError():
            return OutcomeClass.INFRA_ERROR
        case Exception():
            return OutcomeClass.INTERNAL_ERROR
    return OutcomeClass.TIMED_OUT if gathered.timed_out else OutcomeClass.COMPLETED


def _tell_breaker(job: Job, outcome: OutcomeClass, error: Exception | None) -> None:
    match outcome:
        case OutcomeClass.COMPLETED | OutcomeClass.AGENT_ERROR:
            job.breaker.note_success()
        case OutcomeClass.INFRA_ERROR if error is not None:
            job.breaker.note_failure(error)
        case _:
            job.breaker.note_abandoned()


async def _record(
    job: Job,
    identity: _Identity,
    gathered: Gathered,
    outcome: OutcomeClass,
    *,
    verdict: Verdict | None = None,
    error: Exception | None = None,
    discarded: bool = False,
) -> TrialRecord:
    """Put the trial on disk, under a shield, then tell."""
    gathered.leave()
    task, attempt = identity.planned.task, identity.attempt
    failed = verdict is None and outcome.counts
    record = TrialRecord(
        task_id=task.id,
        task_hash=identity.planned.digest,
        category=task.category,
        attempt=attempt,
        trial=identity.trial,
        outcome=outcome,
        score=verdict.score if verdict else 0.0 if failed else None,
        success=verdict.success if verdict else False if failed else None,
        metrics=dict(verdict.metrics) if verdict else {},
        discarded=discarded,
        failure=_failure(gathered, outcome, error),
        stop_reason=gathered.outcome.stop_reason if gathered.outcome else "",
        usage=gathered.usage,
        timings=_timings(gathered, job.clock.now() - identity.started),
        started_at=identity.started_at,
    )
    detail = Detail(
        task_id=task.id,
        attempt=attempt,
        trial=identity.trial,
        prompt=gathered.prompt or task.prompt,
        answer=gathered.outcome.answer if gathered.outcome else None,
        steps=gathered.steps,
        verdict=verdict.explanation if verdict else "",
        verifier_output=dict(verdict.output) if verdict else {},
    )
    identity.live.now("waits for its record to be written")
    with job.stop.shield() as finishing:
        if identity.finish_work is not None and not discarded:
            await identity.finish_work()
        record = await job.store.commit(
            record, detail, gathered.outcome.artifacts if gathered.outcome else {}
        )
    if finishing.cancelled_caught:  # the grace period is over, and the record is not known to be on disk
        raise job.store.give_up()
    job.emit(_finished_event(job, record))
    if record.failure:
        current_log().info(
            "trial_failed", outcome=outcome, error=record.failure.error, message=record.failure.message
        )
    return record


def _failure(gathered: Gathered, outcome: OutcomeClass, error: Exception | None) -> Failure | None:
    if error is None:
        if not gathered.timed_out:
            return None
        limit = f"the agent was stopped by its deadline after {gathered.seconds.get('agent', 0.0):.1f} s"
        return Failure(error="PhaseTimeoutError", phase="agent", message=limit)
    is_bug = outcome is OutcomeClass.INTERNAL_ERROR
    return Failure(
        error=type(error).__name__,
        phase=(error.phase if isinstance(error, TrialError) else None) or gathered.phase,
        message=str(error),
        retryable=isinstance(error, TrialError) and error.retryable,
        traceback="".join(traceback.format_exception(error)) if is_bug else "",
    )


def _timings(gathered: Gathered, total: float) -> Timings:
    seconds = gathered.seconds
    return Timings(
        queued=gathered.queued_seconds,
        open=seconds.get("open", 0.0) + seconds.get("prepare", 0.0),
        agent=seconds.get("agent", 0.0),
        verify=seconds.get("verify", 0.0),
        total=total,
    )


def _emit_phase(job: Job, identity: _Identity, phase: Phase) -> None:
    job.emit(
        PhaseChanged(
            request=job.name,
            task_id=identity.planned.task.id,
            attempt=identity.attempt,
            phase=phase,
            at=utc_text(job.clock.wall()),
        )
    )


def _emit_step(job: Job, identity: _Identity, gathered: Gathered) -> None:
    job.emit(
        TrialProgressed(
            request=job.name,
            task_id=identity.planned.task.id,
            attempt=identity.attempt,
            steps=len(gathered.steps),
            usage=gathered.usage,
            at=utc_text(job.clock.wall()),
        )
    )


def _finished_event(job: Job, record: TrialRecord) -> TrialFinished:
    return TrialFinished(
        request=job.name,
        task_id=record.task_id,
        attempt=record.attempt,
        trial=record.trial,
        outcome=record.outcome,
        discarded=record.discarded,
        score=record.score,
        success=record.success,
        usage=record.usage,
        seconds=record.timings.total,
        error=f"{record.failure.error}: {record.failure.message}" if record.failure else "",
        at=utc_text(job.clock.wall()),
    )
