"""What an earlier session or an earlier run already finished, and whether it may be kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from ..errors import ConfigError
from ..records import PlanRecord, RunRecord, TrialRecord
from ..store.run import LoadedRun
from .loading import PlannedTask
from .task import Assignment

_COMPARED = ("benchmark", "harness", "environment", "model", "recipes", "strategy", "seed")
NOT_COMPARED = {"source", "base_url", "priority"}
"""Where a component or an endpoint happens to live does not change what is measured."""


class Earlier(NamedTuple):
    """
    What exists of one attempt.

    Args:
        digest: Of the task as it was then.
        counted: The number of the trial that counts; 0 while there is none, and the attempt is to be run.
        success: Its verdict; None for a scalar score.
        score: Its score; 0 while there is none.
        trials: The highest trial number on disk.
    """

    digest: str
    counted: int = 0
    success: bool | None = None
    score: float = 0.0
    trials: int = 0

    @property
    def finished(self) -> bool:
        """Whether the attempt needs no further trial."""
        return self.counted > 0


@dataclass(frozen=True, slots=True)
class History:
    """
    What the journal of a run says.

    Args:
        attempts: What exists, by task id and attempt.
        plan: What the run was last meant to cover.
        begun: Whether the run got as far as its own work; until then it may be copying that of another run.
        journal_bytes: How long the journal was.
    """

    attempts: dict[tuple[str, int], Earlier]
    plan: PlanRecord | None
    begun: bool
    journal_bytes: int


def read_history(run: LoadedRun) -> History:
    """
    Read a run's journal; blocks.

    Discarded trials, infrastructure and internal errors and cancelled trials count for nothing.
    """
    journal_bytes = run.journal_bytes()
    attempts: dict[tuple[str, int], Earlier] = {}
    plan, begun = None, False
    for record in run.journal():
        if isinstance(record, PlanRecord):
            plan, begun = record, True
        else:
            begun = begun or not record.reused_from
            key = (record.task_id, record.attempt)
            attempts[key] = _with_trial(attempts.get(key), record)
    return History(attempts, plan, begun, journal_bytes)


def _with_trial(before: Earlier | None, trial: TrialRecord) -> Earlier:
    before = before or Earlier(trial.task_hash)
    trials = max(before.trials, trial.trial)
    score = None if trial.discarded or not trial.outcome.counts else trial.score
    if score is None or trial.trial < before.counted:
        return before._replace(trials=trials)
    return Earlier(trial.task_hash, trial.trial, trial.success, score, trials)


def worth_copying(
    earlier: Mapping[tuple[str, int], Earlier], tasks: Sequence[PlannedTask], *, k: int
) -> dict[tuple[str, int], Earlier]:
    """Return the finished attempts that a new run of these tasks can keep; changed tasks are left out."""
    digests = {planned.task.id: planned.digest for planned in tasks}
    return {
        key: it
        for key, it in earlier.items()
        if it.finished and key[1] <= k and digests.get(key[0]) == it.digest
    }


def counted_trials(run: LoadedRun, earlier: Mapping[tuple[str, int], Earlier]) -> Iterator[TrialRecord]:
    """Yield the trial that counts of each of these attempts, once; blocks."""
    left = {key: it.counted for key, it in earlier.items()}
    for trial in run.trials():
        key = (trial.task_id, trial.attempt)
        if not trial.discarded and left.get(key) == trial.trial and trial.outcome.counts:
            del left[key]
            yield trial


@dataclass(slots=True)
class Kept:
    """
    How much of a plan is settled before the first trial.

    Args:
        attempts: Finished ones.
        needless: Attempts that an earlier success of their task has made needless.
        score_sum: Over the finished ones.
    """

    attempts: int = 0
    needless: int = 0
    score_sum: float = 0.0


def kept(
    tasks: Sequence[PlannedTask],
    earlier: Mapping[tuple[str, int], Earlier],
    *,
    k: int,
    in_order: bool,
) -> Kept:
    """Count what of a plan is settled already."""
    total = Kept()
    for planned in tasks if earlier else ():
        for attempt in range(1, k + 1):
            before = earlier.get((planned.task.id, attempt))
            if before is None or not before.finished:
                continue
            total.attempts += 1
            total.score_sum += before.score
            if in_order and before.success:
                total.needless += k - attempt
                break
    return total


def require_compatible(old: RunRecord, new: RunRecord, *, what: str, way_out: str) -> None:
    """
    Refuse to mix results that were measured differently.

    Raises:
        ConfigError: Names every difference.
    """
    found = differences(_measured(old), _measured(new), ignored=NOT_COMPARED)
    texts = [f"{it.field}: {it.old!r} then, {it.new!r} now" for it in found]
    if texts:
        raise ConfigError(f"{what} was measured differently ({'; '.join(texts)}); {way_out}")


def _measured(run: RunRecord) -> dict[str, Any]:
    return {name: value for name, value in described(run).items() if name in _COMPARED}


def described(run: RunRecord) -> dict[str, Any]:
    """Return what a run is as nested mappings, recipes by their id."""
    fields = msgspec.structs.asdict(run)
    fields["recipes"] = {recipe.id: msgspec.structs.asdict(recipe) for recipe in run.recipes}
    return {
        name: msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value
        for name, value in fields.items()
    }


class FieldDifference(NamedTuple):
    """A field, by its dotted path, that two descriptions do not agree in; None where one has no value."""

    field: str
    old: Any
    new: Any


def differences(
    old: Any, new: Any, *, ignored: AbstractSet[str] = frozenset(), path: str = ""
) -> Iterator[FieldDifference]:
    """Yield what two nested mappings differ in, but for the fields of ignored names."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted((old.keys() | new.keys()) - ignored):
            below = f"{path}.{name}".lstrip(".")
            yield from differences(old.get(name), new.get(name), ignored=ignored, path=below)
    elif old != new:
        yield FieldDifference(path, old, new)


def require_same_tasks(
    tasks: Sequence[PlannedTask], earlier: Mapping[tuple[str, int], Earlier], *, what: str, way_out: str
) -> None:
    """
    Refuse results of tasks whose content has changed since.

    Raises:
        ConfigError: Names some of them.
    """
    digests = {planned.task.id: planned.digest for planned in tasks}
    changed = sorted(
        {task_id for (task_id, _), it in earlier.items() if digests.get(task_id, it.digest) != it.digest}
    )
    if changed:
        names = ", ".join(repr(task_id) for task_id in changed[:5])
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise ConfigError(f"{what}: the content of {names}{more} has changed since; {way_out}")


def assignments(
    tasks: Sequence[PlannedTask],
    earlier: Mapping[tuple[str, int], Earlier],
    *,
    k: int,
    in_order: bool,
) -> Iterator[Assignment]:
    """Yield the work that is left, in feeding order, made as it is asked for."""
    for planned in tasks:
        left = []
        for attempt in range(1, k + 1):
            before = earlier.get((planned.task.id, attempt))
            if before is None or not before.finished:
                left.append((attempt, before.trials + 1 if before else 1))
            elif in_order and before.success:
                break
        if in_order and left:
            yield Assignment(planned=planned, attempts=tuple(left), stop_at_success=True)
        elif not in_order:
            for pair in left:
                yield Assignment(planned=planned, attempts=(pair,), stop_at_success=False)
