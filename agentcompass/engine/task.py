"""One task slot's worth of work: a single attempt, or all attempts of a task in order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..clock import utc_text
from ..records import AttemptsSkipped
from .attempt import run_attempt
from .job import Job
from .limits import TaskSlots
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


async def run_task(job: Job, assignment: Assignment, slots: TaskSlots) -> None:
    """Run the attempts and give the slot back that the feeder took for them."""
    try:
        last = assignment.attempts[-1][0]
        finish_work = partial(slots.finish_work, assignment)
        for attempt, first_trial in assignment.attempts:
            record = await run_attempt(
                job,
                assignment.planned,
                attempt,
                first_trial=first_trial,
                finish_work=finish_work if attempt == last else None,
            )
            if assignment.stop_at_success and record.success:
                job.emit(_skipped(job, assignment, attempt))
                return
    finally:
        slots.free(assignment)


def _skipped(job: Job, assignment: Assignment, succeeded: int) -> AttemptsSkipped:
    needless = sum(attempt > succeeded for attempt, _ in assignment.attempts)
    return AttemptsSkipped(
        request=job.name,
        task_id=assignment.planned.task.id,
        attempts=needless,
        at=utc_text(job.clock.wall()),
    )
