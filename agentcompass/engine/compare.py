"""Compare runs in pairs on the tasks that both evaluated, and refuse what cannot be compared."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from ..errors import ConfigError, Finding, nearest
from ..metrics.paired import SIGNIFICANCE, PairedDifference, binary_difference, holm, mean_difference
from ..records import RunRecord
from ..store.run import LoadedRun
from .result import Items
from .resume import NOT_COMPARED, described, differences
from .run_pairs import find_pairs
from .task_results import TaskResult, TaskResults, read_task_results

ALLOWED = ("benchmark", "strategy", "k", "scale", "tasks", "all")
"""What ``allow`` may name, whole or a field below it, e.g. ``benchmark.params.path``."""

_SHOWN = (
    "benchmark",
    "harness",
    "environment",
    "model",
    "recipes",
    "dataset_hash",
    "seed",
    "execution",
    "versions",
)
_SAYS_NOTHING = frozenset(
    {"k", "strategy", "seed", "limit", "run_id", "resume", "reuse", "reuse_run_id", "load_timeout_seconds"}
)
"""Execution options that stand elsewhere, or that only say how a run came about."""
_OBSTACLES_TOLD = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOfBoth(Items):
    """Something that two runs do not agree in; None where one has no value."""

    field: str
    a: Any
    b: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOfBoth(Items):
    """A task with its scores in both runs."""

    task_id: str
    a: float
    b: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun(Items):
    """
    One of two runs.

    Args:
        tasks: How many tasks it plans.
        evaluated: How many of them have a score.
        k: Its attempts per task.
        score: Over the tasks that both evaluated.
        model_calls: In all trials of these; so are tokens, cost and seconds.
        cost_usd: None if that of any trial is unknown.
    """

    run_dir: str
    run_id: str
    name: str
    harness: str
    environment: str
    model: str
    tasks: int
    evaluated: int
    k: int
    score: float | None
    model_calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    agent_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison(Items):
    """
    How run B differs from run A on the tasks that both evaluated; every difference is B - A.

    Args:
        planned: Tasks that both plan.
        compared: Those of them that both evaluated.
        difference: Of the scores over these.
        p_corrected: After Holm's correction for the number of pairs that are compared at once.
        better: Which run is better at the level 0.05 after that correction; None while it is not settled.
        bound_low: The difference over all planned tasks if all that is missing spoke for A.
        bound_high: The same if it spoke for B.
        gained: Tasks with a higher score in B, the largest change first.
        lost: Tasks with a lower score in B, the largest change first.
        differs: What else differs between the runs, the reason for comparing them.
        allowed: What makes them incomparable, and was allowed.
        notes: What to know before trusting the numbers.
    """

    benchmark: str
    a: ComparedRun
    b: ComparedRun
    planned: int
    compared: int
    difference: PairedDifference
    p_corrected: float
    better: Literal["a", "b"] | None
    bound_low: float
    bound_high: float
    gained: tuple[TaskOfBoth, ...]
    lost: tuple[TaskOfBoth, ...]
    differs: tuple[FieldOfBoth, ...]
    allowed: tuple[FieldOfBoth, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Items):
    """
    Runs compared in pairs.

    Args:
        unmatched: Run directories in the folders that have no counterpart.
    """

    pairs: tuple[RunComparison, ...]
    unmatched: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Side:
    run: LoadedRun
    results: TaskResults


def compare_runs(*paths: str | PathLike[str], allow: Collection[str] = ()) -> Comparison:
    """
    Compare run A with run B, and further pairs, each on the tasks that both evaluated; blocks.

    Runs of any state will do: finished, stopped, damaged, still running.

    Args:
        paths: A, B, and more pairs. Each is a run directory, the folder of a request (its latest run counts),
            or a results directory (the latest run of each request, paired by request or benchmark).
        allow: Compare although these fields differ, and mark that: ``benchmark``, ``strategy``, ``k``,
            ``scale``, ``tasks``, a field below one of them, or ``all``.

    Raises:
        ConfigError: There is nothing to compare, or it cannot be compared: names each field with both values.
        StoreError: A journal cannot be read.
    """
    _check_allowed(allow)
    found = find_pairs([Path(path) for path in paths])
    compared = [_compare(_read(a), _read(b), allow) for a, b in found.pairs]
    return Comparison(
        pairs=tuple(_corrected(compared)),
        unmatched=tuple(str(run.run_dir) for run in found.unmatched),
    )


def _check_allowed(allow: Collection[str]) -> None:
    if isinstance(allow, str):
        raise ConfigError(f"allow: give a list of fields, e.g. [{allow!r}]")
    for name in allow:
        if name.partition(".")[0] not in ALLOWED:
            raise ConfigError(
                f"allow: unknown field {name!r}{nearest(name, ALLOWED)} (there are: {', '.join(ALLOWED)})"
            )


def _read(run: LoadedRun) -> _Side:
    return _Side(run, read_task_results(run))


def _corrected(compared: Sequence[RunComparison]) -> Iterator[RunComparison]:
    """Correct for the number of pairs; those without a task to compare are no attempt at a finding."""
    corrected = iter(holm([pair.difference.p for pair in compared if pair.compared]))
    for pair in compared:
        p = next(corrected) if pair.compared else 1.0
        yield replace(pair, p_corrected=p, better=_better(pair, p))


def _better(pair: RunComparison, p: float) -> Literal["a", "b"] | None:
    if p >= SIGNIFICANCE or not pair.difference.value:
        return None
    return "b" if pair.difference.value > 0 else "a"


def _compare(a: _Side, b: _Side, allow: Collection[str]) -> RunComparison:
    planned = [task_id for task_id in a.results.by_id if task_id in b.results.by_id]
    pairs = {task_id: (a.results.by_id[task_id], b.results.by_id[task_id]) for task_id in planned}
    obstacles = tuple(_obstacles(a, b, pairs))
    _refuse(a, b, [it for it in obstacles if not _is_allowed(it.field, allow)])
    if not planned:
        raise ConfigError(
            f"{_places(a, b)} have no task in common: {len(a.results.by_id)} planned in A, "
            f"{len(b.results.by_id)} in B; compare runs of the same tasks"
        )
    scores = {
        task_id: (one.value, other.value)
        for task_id, (one, other) in pairs.items()
        if one.value is not None and other.value is not None
    }
    difference = _difference([pairs[task_id] for task_id in scores], scores)
    changes = sorted(
        (TaskOfBoth(task_id=task_id, a=one, b=other) for task_id, (one, other) in scores.items()),
        key=lambda task: -abs(task.b - task.a),  # stable: then in the order of the tasks
    )
    return RunComparison(
        benchmark=a.run.record.benchmark.id,
        a=_compared_run(a, scores, [one for one, _ in scores.values()]),
        b=_compared_run(b, scores, [other for _, other in scores.values()]),
        planned=len(planned),
        compared=len(scores),
        difference=difference,
        p_corrected=difference.p,
        better=None,
        bound_low=math.fsum(other.low - one.high for one, other in pairs.values()) / len(planned),
        bound_high=math.fsum(other.high - one.low for one, other in pairs.values()) / len(planned),
        gained=tuple(task for task in changes if task.b > task.a),
        lost=tuple(task for task in changes if task.b < task.a),
        differs=tuple(_what_differs(a, b)),
        allowed=obstacles,
        notes=tuple(_notes(a, b, pairs)),
    )


def _difference(
    tasks: Sequence[tuple[TaskResult, TaskResult]], scores: Mapping[str, tuple[float, float]]
) -> PairedDifference:
    if all(one.once and other.once for one, other in tasks):
        gained = sum(other > one for one, other in scores.values())
        lost = sum(other < one for one, other in scores.values())
        return binary_difference(gained=gained, lost=lost, tasks=len(tasks))
    return mean_difference([other - one for one, other in scores.values()])


def _compared_run(side: _Side, task_ids: Collection[str], scores: Sequence[float]) -> ComparedRun:
    record, results = side.run.record, side.results
    usage, agent_seconds = results.consumed_by(task_ids)
    return ComparedRun(
        run_dir=str(side.run.run_dir),
        run_id=record.run_id,
        name=record.name,
        harness=record.harness.id,
        environment=record.environment.id,
        model=record.model.id,
        tasks=len(results.by_id),
        evaluated=results.evaluated,
        k=results.plan.k,
        score=math.fsum(scores) / len(scores) if scores else None,
        model_calls=usage.calls,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=usage.cost_usd,
        agent_seconds=agent_seconds,
    )


# --- what cannot be compared, and what makes it worth comparing ---------------------------------------


def _obstacles(
    a: _Side, b: _Side, pairs: Mapping[str, tuple[TaskResult, TaskResult]]
) -> Iterator[FieldOfBoth]:
    """Yield what must agree and does not: what the tasks are, and how they are judged and counted."""
    yield from _benchmark_obstacles(a.run.record, b.run.record)
    plan_a, plan_b = a.results.plan, b.results.plan
    if plan_a.strategy != plan_b.strategy:
        yield FieldOfBoth(field="strategy", a=plan_a.strategy, b=plan_b.strategy)
    elif plan_a.strategy == "pass" and plan_a.k != plan_b.k:
        yield FieldOfBoth(field="k", a=plan_a.k, b=plan_b.k)
    scales = (_scale([one for one, _ in pairs.values()]), _scale([other for _, other in pairs.values()]))
    if None not in scales and scales[0] != scales[1]:
        yield FieldOfBoth(field="scale", a=scales[0], b=scales[1])
    for task_id, (one, other) in pairs.items():
        if one.digest and other.digest and one.digest != other.digest:
            yield FieldOfBoth(field=f"tasks.{task_id}", a=one.digest, b=other.digest)


def _benchmark_obstacles(a: RunRecord, b: RunRecord) -> Iterator[FieldOfBoth]:
    if a.benchmark.id != b.benchmark.id:  # then nothing else of them means the same
        yield FieldOfBoth(field="benchmark.id", a=a.benchmark.id, b=b.benchmark.id)
        return
    of_a, of_b = described(a)["benchmark"], described(b)["benchmark"]
    for it in differences(of_a, of_b, ignored=NOT_COMPARED, path="benchmark"):
        yield FieldOfBoth(field=it.field, a=it.old, b=it.new)


def _scale(tasks: Sequence[TaskResult]) -> str | None:
    scales = {task.scale for task in tasks} - {None}
    return " and ".join(sorted(map(str, scales))) or None


def _is_allowed(field: str, allow: Collection[str]) -> bool:
    return "all" in allow or any(field == name or field.startswith(f"{name}.") for name in allow)


def _refuse(a: _Side, b: _Side, obstacles: Sequence[FieldOfBoth]) -> None:
    if not obstacles:
        return
    findings = [Finding(tuple(it.field.split(".")), f"{it.a!r} in A, {it.b!r} in B") for it in obstacles]
    told = [f"  {it.field}: {it.a!r} in A, {it.b!r} in B" for it in obstacles[:_OBSTACLES_TOLD]]
    if len(obstacles) > len(told):
        told.append(f"  and {len(obstacles) - len(told)} more")
    ways = sorted({it.field.partition(".")[0] for it in obstacles})
    options = " ".join(f"--allow {way}" for way in ways)
    raise ConfigError(
        f"{_places(a, b)} cannot be compared:\n"
        + "\n".join(told)
        + f"\nto compare them all the same, marked: {options}, or allow={ways!r}",
        findings=findings,
    )


def _places(a: _Side, b: _Side) -> str:
    return f"{str(a.run.run_dir)!r} (A) and {str(b.run.run_dir)!r} (B)"


def _what_differs(a: _Side, b: _Side) -> Iterator[FieldOfBoth]:
    """Yield what differs without making the runs incomparable."""
    found = list(differences(_shown(a), _shown(b)))
    fields = {it.field for it in found}
    for it in found:
        part, _, name = it.field.rpartition(".")
        judges = part.startswith("benchmark") and name not in NOT_COMPARED
        follows = name == "source" and f"{part}.id" in fields  # of course another class lies elsewhere
        if not judges and not follows:
            yield FieldOfBoth(field=it.field, a=it.old, b=it.new)
    if a.results.plan.k != b.results.plan.k:
        yield FieldOfBoth(field="k", a=a.results.plan.k, b=b.results.plan.k)


def _shown(side: _Side) -> dict[str, Any]:
    run = described(side.run.record)
    shown = {name: run[name] for name in _SHOWN}
    shown["execution"] = {
        name: value for name, value in run["execution"].items() if name not in _SAYS_NOTHING
    }
    return shown


def _notes(a: _Side, b: _Side, pairs: Mapping[str, tuple[TaskResult, TaskResult]]) -> Iterator[str]:
    k_a, k_b = a.results.plan.k, b.results.plan.k
    if k_a != k_b:
        yield f"attempts per task: {k_a} in A, {k_b} in B; the means over them are compared"
    copies = sum(not one.origins.isdisjoint(other.origins) for one, other in pairs.values())
    if copies:
        yield f"tasks with trials that both runs have by reuse, which cannot differ: {copies}"
    for name, side in (("A", a), ("B", b)):
        if side.results.damaged_lines:
            yield f"damaged lines in the journal of {name}, left out: {side.results.damaged_lines}"
