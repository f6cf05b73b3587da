"""Which trial stands for each attempt of a run, as ``show`` and the scores' table tell it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..records import OutcomeClass, TrialRecord


def counted_trials(trials: Iterable[TrialRecord]) -> list[TrialRecord]:
    """Return the trial that stands for each attempt: an evaluated one if there is any, then the latest."""
    counted: dict[tuple[str, int], TrialRecord] = {}
    for record in trials:
        if record.discarded:
            continue
        key = (record.task_id, record.attempt)
        held = counted.get(key)
        if held is None or _rank(record) >= _rank(held):
            counted[key] = record
    return list(counted.values())


def _rank(record: TrialRecord) -> tuple[bool, int]:
    return record.outcome.counts, record.trial


def succeeded(record: TrialRecord) -> bool:
    """Tell whether an attempt has a verdict other than "failed"."""
    return record.outcome is OutcomeClass.COMPLETED and record.success is not False


def failure_counts(trials: Iterable[TrialRecord]) -> list[tuple[str, int]]:
    """Count the attempts that broke by error class, the most frequent first; a wrong answer is no break."""
    counts = Counter(_error_class(record) for record in trials if _broke(record))
    return counts.most_common()


def _broke(record: TrialRecord) -> bool:
    return record.failure is not None or record.outcome is not OutcomeClass.COMPLETED


def _error_class(record: TrialRecord) -> str:
    return record.failure.error if record.failure is not None else str(record.outcome)
