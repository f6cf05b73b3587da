"""``agentcompass run --dry-run``: what a run would do, without doing it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..records import RunRecord
from ..spec.options import RunArguments
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
        Table(("", ""), list(_limits(arguments))),
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
    yield "results", planned.folder


def _limits(arguments: RunArguments) -> Iterator[tuple[str, str]]:
    yield (
        "at once",
        f"{arguments.task_concurrency} tasks{_by_provider(arguments.provider_limits, 'sessions')}",
    )
    if arguments.env_open_qps:
        yield "sessions opened", _by_provider(arguments.env_open_qps, "a second").removeprefix(", ")
    deadline = arguments.timeout_seconds
    yield "deadline", "none" if deadline is None else f"{deadline:g} s"


def _by_provider(numbers: Mapping[str, Any], unit: str) -> str:
    return "".join(f", {number:g} {unit} of {provider}" for provider, number in numbers.items())
