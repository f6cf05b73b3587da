"""One task slot's worth of work: a single attempt, or all attempts of a task in order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..clock import utc_text
from ..records import AttemptsSkipped
from .attempt import run_attempt
from .job import Job
from .loading import PlannedTask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assignment:
    """
    Attempts of one task that run one after another in one slot.

    Args:
        attempts: Pairs of attempt and the number of its next trial.
    """

    planned: PlannedTask
    attempts: tuple[tuple[int, int], ...]
    stop_at_success: bool


async def run_task(job: Job, assignment: Assignment) -> None:
    """Run the attempts and give the slot back that the feeder took for them."""
    try:
        last = assignment.attempts[-1][0]
        finish_work = partial(job.place.finish_work, assignment)
        task_id = assignment.planned.task.id
        for attempt, first_trial in assignment.attempts:
            if job.live.is_cancelled(task_id):
                return
            with job.live.enter(task_id, attempt, borrower=assignment) as live:
                record = await run_attempt(
                    job,
                    assignment.planned,
                    live,
                    first_trial=first_trial,
                    finish_work=finish_work if attempt == last else None,
                )
                if assignment.stop_at_success and record.success:
                    job.emit(_skipped(job, assignment, attempt))
                    return
    finally:
        job.place.free(assignment)


def _skipped(job: Job, assignment: Assignment, succeeded: int) -> AttemptsSkipped:
    needless = sum(attempt > succeeded for attempt, _ in assignment.attempts)
    return AttemptsSkipped(
        request=job.name,
        task_id=assignment.planned.task.id,
        attempts=needless,
        at=utc_text(job.clock.wall()),
    )
