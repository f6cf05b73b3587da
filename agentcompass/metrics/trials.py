"""
The trial lines of a journal, packed small, and which of them counts for each attempt.

A line is packed as soon as it is read, so that a journal of 100,000 trials folds in some 20 MB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import msgspec

from ..records import JournalRecord, OutcomeClass, PlanRecord, TrialRecord, Usage

_LARGEST_NUMBER = 1e100
"""Larger numbers measure nothing and their squares overflow; they are left out like NaN."""

USAGE_COUNTS = tuple(name for name in Usage.__struct_fields__ if name != "cost_usd")
"""The integer fields of ``Usage``."""
_counts = attrgetter(*USAGE_COUNTS)

_FAILED = frozenset({OutcomeClass.AGENT_ERROR, OutcomeClass.TIMED_OUT})


class TrialRow(msgspec.Struct, frozen=True, array_like=True):
    """What the scores need of one trial line; every number is finite."""

    task_id: str
    attempt: int
    trial: int
    discarded: bool
    outcome: OutcomeClass
    score: float | None
    """None: missing data."""
    success: bool | None
    metrics: dict[str, float]
    category: str
    counts: tuple[int, ...]
    """What the fields ``USAGE_COUNTS`` of its usage hold."""
    cost_usd: float | None
    agent_seconds: float


@dataclass(frozen=True, slots=True)
class Journal:
    """
    The records of a journal as the fold needs them.

    Args:
        plan: The last one; None if no plan line survived.
        lines: All trial lines, packed and sorted, so that nothing depends on their order in the file.
        highest_attempt: The largest attempt number seen, 0 without trials.
    """

    plan: PlanRecord | None
    lines: list[bytes]
    highest_attempt: int

    def iter_tasks(self) -> Iterator[tuple[str, list[TrialRow]]]:
        """Yield each task that has trial lines with these lines, duplicates included."""
        rows = map(msgspec.msgpack.Decoder(TrialRow).decode, self.lines)
        for task_id, group in groupby(rows, attrgetter("task_id")):
            yield task_id, list(group)

    def effective_plan(self) -> PlanRecord:
        """Return the plan; made up if its line was lost, so that damage to one line costs no scores."""
        if self.plan is not None:
            return self.plan
        categories = {
            task_id: max(row.category for row in rows)  # lines of one task differ only if the data changed
            for task_id, rows in self.iter_tasks()
        }
        return PlanRecord(
            task_ids=list(categories), categories=list(categories.values()), k=max(1, self.highest_attempt)
        )


def read_journal(records: Iterable[JournalRecord]) -> Journal:
    """Take in all records, keeping none of the trial records themselves."""
    encode = msgspec.msgpack.Encoder().encode
    plan: PlanRecord | None = None
    lines: list[bytes] = []
    highest_attempt = 0
    for record in records:
        match record:
            case PlanRecord():
                plan = record
            case TrialRecord():
                lines.append(encode(_row(record)))
                highest_attempt = max(highest_attempt, record.attempt)
    lines.sort()
    return Journal(plan, lines, highest_attempt)


def unique_trials(rows: Sequence[TrialRow]) -> Sequence[TrialRow]:
    """Return one row per trial of a task; of different lines for the same trial, the one that tells most."""
    if len(rows) == 1:
        return rows
    best: dict[tuple[int, int], TrialRow] = {}
    for row in rows:
        key = (row.attempt, row.trial)
        held = best.get(key)
        if held is None or _worth(row) > _worth(held):
            best[key] = row
    return list(best.values())


def counted_trials(trials: Iterable[TrialRow]) -> dict[int, TrialRow]:
    """Return by attempt the trial that stands for it: an evaluated one if there is any, then the latest."""
    counted: dict[int, TrialRow] = {}
    for row in trials:
        if row.discarded:
            continue
        held = counted.get(row.attempt)
        if held is None or (row.outcome.counts, row.trial) > (held.outcome.counts, held.trial):
            counted[row.attempt] = row
    return counted


def _worth(row: TrialRow) -> tuple[bool, bool, bool]:
    return not row.discarded, row.outcome.counts, row.score is not None


def _row(record: TrialRecord) -> TrialRow:
    usage = record.usage
    score, success = _verdict(record)
    return TrialRow(
        task_id=record.task_id,
        attempt=record.attempt,
        trial=record.trial,
        discarded=record.discarded,
        outcome=record.outcome,
        score=score,
        success=success,
        metrics={name: float(value) for name, value in record.metrics.items() if _is_sound(value)},
        category=record.category,
        counts=_counts(usage),
        cost_usd=usage.cost_usd if usage.cost_usd is not None and _is_sound(usage.cost_usd) else None,
        agent_seconds=record.timings.agent if _is_sound(record.timings.agent) else 0.0,
    )


def _verdict(record: TrialRecord) -> tuple[float | None, bool | None]:
    """Return score and success; a score that is no number in [0, 1] is as good as none."""
    if not record.outcome.counts:
        return None, None
    # NaN must mean what None means: JSON has no NaN, so it comes back from the disk as None.
    if record.score is not None and 0 <= record.score <= 1:
        return float(record.score), record.success
    return (0.0, False) if record.outcome in _FAILED else (None, None)


def _is_sound(value: float) -> bool:
    return -_LARGEST_NUMBER <= value <= _LARGEST_NUMBER  # False for NaN and infinities
