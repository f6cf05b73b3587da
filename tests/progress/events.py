"""Short ways to write events and a clock that stands still until moved."""

from __future__ import annotations

from agentcompass.records import (
    NO_USAGE,
    OutcomeClass,
    PhaseChanged,
    RunFinished,
    RunStarted,
    RunStatus,
    TrialFinished,
    TrialProgressed,
    TrialStarted,
    Usage,
)


class StillClock:
    """Reads what the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def run_started(attempts: int = 10, *, kept: int = 0, request: str = "demo") -> RunStarted:
    return RunStarted(
        request=request,
        run_id="run-1",
        run_dir="/results/demo",
        tasks=attempts,
        attempts=attempts,
        already_finished=kept,
    )


def started(task_id: str, *, trial: int = 1, request: str = "demo") -> TrialStarted:
    return TrialStarted(request=request, task_id=task_id, attempt=1, trial=trial)


def phase(task_id: str, name: str, *, request: str = "demo") -> PhaseChanged:
    return PhaseChanged(request=request, task_id=task_id, attempt=1, phase=name)


def progressed(task_id: str, steps: int, usage: Usage = NO_USAGE) -> TrialProgressed:
    return TrialProgressed(request="demo", task_id=task_id, attempt=1, steps=steps, usage=usage)


def finished(
    task_id: str,
    *,
    score: float | None = 1.0,
    outcome: OutcomeClass = OutcomeClass.COMPLETED,
    discarded: bool = False,
    error: str = "",
    usage: Usage = NO_USAGE,
    request: str = "demo",
) -> TrialFinished:
    return TrialFinished(
        request=request,
        task_id=task_id,
        attempt=1,
        trial=1,
        outcome=outcome,
        discarded=discarded,
        score=score,
        success=None if score is None else score == 1.0,
        usage=usage,
        seconds=1.0,
        error=error,
    )


def run_finished(
    status: RunStatus = RunStatus.COMPLETED, *, value: float | None = 1.0, request: str = "demo"
) -> RunFinished:
    return RunFinished(request=request, run_id="run-1", status=status, value=value, seconds=1.0)
