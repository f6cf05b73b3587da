"""What each task of a run came to, read from the journal: what a comparison pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from ..metrics.scores import score_task, scores_per_task
from ..metrics.totals import Totals
from ..metrics.trials import USAGE_COUNTS, TrialRow, counted_trials, read_journal, unique_trials
from ..records import JournalRecord, OutcomeClass, PlanRecord, TrialRecord, Usage
from ..store.run import LoadedRun

Scale = Literal["pass or fail", "scalar"]
Origin = tuple[str, str, float]
"""The run that a trial was made in, which may share its id with another, when, and how long it took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """
    One planned task.

    Args:
        value: The mean over its evaluated attempts; None if there are none.
        low: What it would be if every missing attempt scored 0.
        high: What it would be if every missing attempt scored 1.
        once: Whether it was passed or failed just once.
        scale: What its verdicts are; None if no verdict tells.
        digest: Of the task's content; empty if it has no trial.
        origins: What tells its trials from all others, wherever they were copied to.
        trials: All of them, discarded ones included.
    """

    value: float | None
    low: float
    high: float
    once: bool
    scale: Scale | None
    digest: str
    origins: frozenset[Origin]
    trials: Sequence[TrialRow]


@dataclass(frozen=True, slots=True)
class TaskResults:
    """All planned tasks of a run, in their order."""

    plan: PlanRecord
    by_id: dict[str, TaskResult]
    damaged_lines: int

    @property
    def evaluated(self) -> int:
        """How many tasks have a score."""
        return sum(task.value is not None for task in self.by_id.values())

    def consumed_by(self, task_ids: Iterable[str]) -> tuple[Usage, float]:
        """
        Return what all trials of these tasks took, and the seconds of their agents.

        The cost is unknown as soon as that of one trial is, unlike in the metrics: of two runs, the one with
        the smaller known part must not look cheaper.
        """
        totals = Totals()
        priced = True
        for task_id in task_ids:
            trials = self.by_id[task_id].trials
            totals.add_task(trials, lines=len(trials))
            priced = priced and not any(_calls(row) and row.cost_usd is None for row in trials)
        usage = totals.usage if priced else msgspec.structs.replace(totals.usage, cost_usd=None)
        return usage, totals.agent_seconds


def read_task_results(run: LoadedRun) -> TaskResults:
    """
    Read a run's journal, whatever state it is in; blocks.

    Raises:
        StoreError: It cannot be read.
    """
    seen = _Seen(run.record.run_id)
    reader = run.journal()
    journal = read_journal(seen.watch(reader))
    plan = journal.effective_plan()
    rows = {task_id: unique_trials(rows) for task_id, rows in journal.iter_tasks()}
    by_id = {task_id: _task_result(rows.get(task_id, ()), task_id, plan, seen) for task_id in plan.task_ids}
    return TaskResults(plan, by_id, reader.damaged_lines)


class _Seen:
    """What a journal says of tasks that scores do not need."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self.digests: dict[str, str] = {}
        self.origins: dict[str, frozenset[Origin]] = {}

    def watch(self, records: Iterable[JournalRecord]) -> Iterator[JournalRecord]:
        """Pass records on."""
        for record in records:
            if isinstance(record, TrialRecord):
                self.digests[record.task_id] = record.task_hash
                made_in = record.reused_from or self._run_id
                origin = (made_in, record.started_at, record.timings.total)
                self.origins[record.task_id] = self.origins.get(record.task_id, frozenset()) | {origin}
            yield record


def _task_result(trials: Sequence[TrialRow], task_id: str, plan: PlanRecord, seen: _Seen) -> TaskResult:
    counted = counted_trials(trials)
    task = score_task(counted, k=plan.k, strategy=plan.strategy)
    expected = scores_per_task(plan.k, plan.strategy)
    total = math.fsum(task.scores)
    return TaskResult(
        value=total / len(task.scores) if task.scores else None,
        low=total / expected,
        high=(total + expected - len(task.scores)) / expected,
        once=expected == 1 and task.binary,
        scale=_scale(task.evaluated),
        digest=seen.digests.get(task_id, ""),
        origins=seen.origins.get(task_id, frozenset()),
        trials=trials,
    )


def _scale(evaluated: Sequence[TrialRow]) -> Scale | None:
    """Judge by verdicts alone: an agent that broke has failed on any scale."""
    verdicts = [row for row in evaluated if row.outcome is OutcomeClass.COMPLETED]
    if not verdicts:
        return None
    return "scalar" if any(row.success is None for row in verdicts) else "pass or fail"


def _calls(row: TrialRow) -> int:
    return row.counts[USAGE_COUNTS.index("calls")]
