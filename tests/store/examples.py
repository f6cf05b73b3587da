"""Small records that the tests of the store write and read."""

from __future__ import annotations

from agentcompass.records import (
    CommandStep,
    ComponentRecord,
    Counts,
    Detail,
    Estimate,
    Metrics,
    ModelRecord,
    OutcomeClass,
    RunRecord,
    TrialRecord,
)

CANARY = 'sk-canary/4f+9 "q\\z"-é7Kd02hBv8XwLm'
"""A secret with everything that encoders escape."""


def trial(task_id: str = "task", *, attempt: int = 1, number: int = 1) -> TrialRecord:
    return TrialRecord(
        task_id=task_id,
        task_hash="0f",
        attempt=attempt,
        trial=number,
        outcome=OutcomeClass.COMPLETED,
        score=0.5,
        metrics={"tests": 0.25},
    )


def detail(task_id: str = "task", *, output: str = "fine", attempt: int = 1, number: int = 1) -> Detail:
    step = CommandStep(command="make test", exit_code=0, stdout=output)
    return Detail(task_id=task_id, attempt=attempt, trial=number, steps=[step])


def run_record(run_id: str = "run-1", *, model: str = "tiny") -> RunRecord:
    return RunRecord(
        run_id=run_id,
        name="demo",
        benchmark=ComponentRecord(id="arithmetic"),
        harness=ComponentRecord(id="echo"),
        environment=ComponentRecord(id="local"),
        model=ModelRecord(id=model),
    )


def metrics() -> Metrics:
    nothing = Estimate(
        value=None,
        low=None,
        high=None,
        method="none",
        evaluated=0,
        planned=0,
        coverage=0.0,
        bound_low=None,
        bound_high=None,
    )
    counts = Counts(planned=0, finished=0, failed=0, cancelled=0, missing=0)
    return Metrics(score=nothing, counts=counts, tasks=0, k=1, strategy="avg")
