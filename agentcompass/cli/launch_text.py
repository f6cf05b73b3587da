"""What ``agentcompass launch`` shows: the plan of each request, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..progress.phrases import duration
from ..records import Metrics
from .plan import limits
from .report import number, number_range
from .table import Table, print_tables
from .terminal import print_note, print_text

if TYPE_CHECKING:
    from ..engine.result import OrchestrationResult, RunResult
    from ..spec.orchestration import OrchestrationSpec


def print_plans(spec: OrchestrationSpec, plans: Sequence[dict[str, Any]]) -> None:
    """
    Print the requests as resolved, what they would do, and what cannot work.

    Args:
        plans: Each a planned run as plain data, or a name with an error; without secrets.
    """
    good = [plan for plan in plans if "error" not in plan]
    print_text(_as_yaml(spec))
    print_tables(
        Table(
            (
                "request",
                "benchmark",
                "harness",
                "model",
                "environment",
                "tasks",
                "attempts",
                "kept",
                "to run",
            ),
            [_plan_row(plan) for plan in good],
        ),
        Table(("", ""), list(_totals(good))),
        Table(("", ""), list(limits(spec.task_concurrency, spec.runtime))),
    )
    for plan in plans:
        for line in _remarks(plan):
            print_note(f"{plan['name']}: {line}")


def _as_yaml(spec: OrchestrationSpec) -> str:
    """Write the specification out with defaults laid under each request; keys are masked."""
    import yaml

    return yaml.safe_dump(
        spec.model_dump(mode="json", exclude_unset=True), sort_keys=False, allow_unicode=True, width=100
    )


def _plan_row(plan: dict[str, Any]) -> tuple[str, ...]:
    return (
        plan["name"],
        plan["benchmark"],
        plan["harness"],
        plan["model"] or "-",
        plan["environment"],
        str(plan["tasks"]),
        str(plan["attempts"]),
        str(plan["kept"]),
        str(plan["attempts"] - plan["kept"]),
    )


def _totals(plans: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    yield "to run", f"{sum(plan['attempts'] - plan['kept'] for plan in plans)} attempts"
    images = {image for plan in plans for image in plan["images"]}
    missing = {image for plan in plans for image in plan["images_missing"] or ()}
    if images:
        yield "images", f"{len(images)}, {len(missing)} of them not there yet"
    limited = [plan["max_output_tokens"] for plan in plans if plan["max_output_tokens"] is not None]
    if limited:
        yield "output tokens", f"at most {sum(limited):,}{_of(limited, plans)}"
    costs = [plan["max_output_cost_usd"] for plan in plans if plan["max_output_cost_usd"] is not None]
    if costs:
        yield "their cost", f"at most ${sum(costs):,.2f}{_of(costs, plans)}"


def _of(known: Sequence[object], plans: Sequence[object]) -> str:
    return "" if len(known) == len(plans) else f" in the {len(known)} requests where that is limited"


def _remarks(plan: dict[str, Any]) -> Iterator[str]:
    if "error" in plan:
        yield f"error: {plan['error']}"
        return
    if plan["kept_from"]:
        yield f"{plan['kept']} attempts kept from {plan['kept_from']}"
    for image in plan["images_missing"] or ():
        yield f"image {image} is not there yet"
    for problem in plan["problems"]:
        yield f"task {problem}"
    yield from plan["warnings"]


def print_outcome(result: OrchestrationResult) -> None:
    """Print what became of each request, and of the whole."""
    head = ("request", "status", "score", "95% interval", "coverage", "time", "cost", "run directory")
    print_tables(Table(head, [_result_row(request) for request in result.requests]))
    print_text(f"{result.status} in {duration(result.seconds)}")


def _result_row(request: RunResult) -> tuple[str, ...]:
    return (
        request.name,
        str(request.status),
        *_numbers(request.metrics),
        duration(request.execution.seconds),
        _cost(request.metrics),
        request.paths.run_dir if request.paths else "-",
    )


def _numbers(metrics: Metrics | None) -> tuple[str, str, str]:
    if metrics is None:
        return "-", "-", "-"
    score = metrics.score
    return (
        number(score.value),
        number_range(score.low, score.high),
        f"{score.evaluated}/{score.planned}",
    )


def _cost(metrics: Metrics | None) -> str:
    if metrics is None or not metrics.usage.calls:
        return "-"
    cost = metrics.usage.cost_usd
    return "unknown" if cost is None else f"${cost:.4f}"
