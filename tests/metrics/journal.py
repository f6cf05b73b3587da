"""Short ways to write down the records of a journal."""

from __future__ import annotations

from agentcompass.records import NO_USAGE, OutcomeClass, PlanRecord, Timings, TrialRecord, Usage


def plan(*task_ids: str, k: int = 1, categories: list[str] | None = None) -> PlanRecord:
    return PlanRecord(task_ids=list(task_ids), categories=categories or [], k=k)


def pass_plan(*task_ids: str, k: int) -> PlanRecord:
    return PlanRecord(task_ids=list(task_ids), categories=[], k=k, strategy="pass")


def verdict(task_id: str, passed: bool, *, attempt: int = 1, trial: int = 1) -> TrialRecord:
    return TrialRecord(
        task_id=task_id,
        task_hash="",
        attempt=attempt,
        trial=trial,
        outcome=OutcomeClass.COMPLETED,
        score=float(passed),
        success=passed,
    )


def scalar(
    task_id: str, score: float | None, *, attempt: int = 1, metrics: dict[str, float] | None = None
) -> TrialRecord:
    return TrialRecord(
        task_id=task_id,
        task_hash="",
        attempt=attempt,
        trial=1,
        outcome=OutcomeClass.COMPLETED,
        score=score,
        metrics=metrics or {},
    )


def broken(
    task_id: str,
    outcome: OutcomeClass = OutcomeClass.INFRA_ERROR,
    *,
    attempt: int = 1,
    trial: int = 1,
    discarded: bool = False,
    usage: Usage = NO_USAGE,
    agent_seconds: float = 0.0,
) -> TrialRecord:
    return TrialRecord(
        task_id=task_id,
        task_hash="",
        attempt=attempt,
        trial=trial,
        outcome=outcome,
        discarded=discarded,
        usage=usage,
        timings=Timings(agent=agent_seconds),
    )
