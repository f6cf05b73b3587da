"""``agentcompass run --dry-run``: what a run would do, without doing it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..records import RunRecord
from ..spec.options import RunArguments, RuntimeOptions
from .report import facts_table
from .table import Table, print_tables

if TYPE_CHECKING:
    from ..engine.survey import PlannedRun


def print_plan(planned: PlannedRun, record: RunRecord, arguments: RunArguments) -> None:
    """
    Print components, their parameters, counts and limits.

    Args:
        record: That of the plan, without secrets.
    """
    print_tables(
        facts_table(record),
        Table(("", ""), list(_parameters(record))),
        Table(("", ""), list(_counts(planned))),
        Table(("", ""), list(limits(arguments.task_concurrency, arguments))),
    )


def _parameters(record: RunRecord) -> Iterator[tuple[str, str]]:
    for component, params in (
        ("benchmark", record.benchmark.params),
        ("harness", record.harness.params),
        ("environment", record.environment.params),
        ("model", record.model.params),
    ):
        yield from ((f"{component}.{name}", _as_json(value)) for name, value in params.items())
    if record.model.protocol:
        yield "model protocol", record.model.protocol
    if record.model.base_url:
        yield "model url", record.model.base_url


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _counts(planned: PlannedRun) -> Iterator[tuple[str, str]]:
    record = planned.record
    order = ", until the first success" if record.strategy == "pass" else ""
    yield "tasks", str(planned.tasks)
    yield "attempts", f"{planned.attempts} ({record.k} per task{order})"
    yield "kept", f"{planned.kept} finished before"
    yield "to run", str(planned.attempts - planned.kept)
    if planned.images:
        missing = len(planned.images_missing or ())
        yield "images", f"{len(planned.images)}, {missing} of them not there yet"
    if planned.max_output_tokens is not None:
        yield "output tokens", f"at most {planned.max_output_tokens:,}"
    if planned.max_output_cost_usd is not None:
        yield "their cost", f"at most ${planned.max_output_cost_usd:,.2f}"
    yield "results", planned.folder


def limits(task_concurrency: int, runtime: RuntimeOptions) -> Iterator[tuple[str, str]]:
    """Yield what bounds a run as rows of a table."""
    yield "at once", f"{task_concurrency} tasks{_by_provider(runtime.provider_limits, 'sessions')}"
    if runtime.env_open_qps:
        yield "sessions opened", _by_provider(runtime.env_open_qps, "a second").removeprefix(", ")
    deadline = runtime.timeout_seconds
    yield "deadline", "none" if deadline is None else f"{deadline:g} s"


def _by_provider(numbers: Mapping[str, Any], unit: str) -> str:
    return "".join(f", {number:g} {unit} of {provider}" for provider, number in numbers.items())
