"""The scores of a run as text for people: ``summary.md``, and one line for the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from ..records import ComponentRecord, Counts, Estimate, Metrics, RunRecord, Usage
from .markdown import literal, table

_UNRELIABLE_SHARE = 0.1
"""With a larger share of missing data, a score is called unreliable."""

_METHODS = {
    "wilson": "Wilson, one pass or fail per task",
    "cluster": "from the spread between tasks",
    "none": "",
}


def score_line(metrics: Metrics) -> str:
    """Return the score with interval, coverage and bounds on one plain line."""
    score = metrics.score
    if score.value is None:
        return "no score"
    return (
        f"{_number(score.value)} {_range(score.low, score.high)}"
        f" · {score.evaluated}/{score.planned} evaluated"
        f" · bounds {_range(score.bound_low, score.bound_high)}"
    )


def render_summary(run: RunRecord, metrics: Metrics) -> str:
    """Return the text of ``summary.md``; whatever names contain is shown literally."""
    parts = (
        [f"# {literal(run.name)}"],
        _what_ran(run, metrics),
        _score(metrics),
        _warnings(metrics),
        _estimates("Categories", "Category", metrics.categories.items(), macro=metrics.macro),
        _draws(metrics),
        _estimates("Further metrics", "Metric", metrics.metrics.items(), macro=None),
        _attempts(metrics.counts),
        _usage(metrics),
    )
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _what_ran(run: RunRecord, metrics: Metrics) -> list[str]:
    rule = " until the first success" if metrics.strategy == "pass" else ""
    facts = (
        ("Benchmark", _component(run.benchmark)),
        ("Harness", _component(run.harness)),
        ("Environment", _component(run.environment)),
        ("Model", literal(run.model.id)),
        ("Size", f"{metrics.tasks} tasks, attempts per task: {metrics.k}{rule}"),
        (
            "Left out",
            f"{len(run.excluded_tasks)} tasks with findings of an audit" if run.excluded_tasks else "",
        ),
        ("Run", literal(run.run_id)),
        ("Started", literal(run.started_at)),
    )
    return [f"- {name}: {text}" for name, text in facts if text]


def _component(component: ComponentRecord) -> str:
    return literal(f"{component.id} {component.version}".strip())


def _score(metrics: Metrics) -> list[str]:
    title = "any-of-k" if metrics.strategy == "pass" else f"avg@{metrics.k}"
    lines = ["## Score", "", f"**{score_line(metrics)}** ({title})"]
    if metrics.score.value is not None:
        lines += [
            "",
            f"In brackets the 95% interval ({_METHODS[metrics.score.method]}); "
            "the bounds are the score if all that is missing had failed, or had passed.",
        ]
    return lines


def _warnings(metrics: Metrics) -> list[str]:
    score = metrics.score
    missing = score.planned - score.evaluated
    texts = []
    if missing > _UNRELIABLE_SHARE * score.planned:
        texts.append(
            f"The score is unreliable: {missing} of {score.planned} "
            f"({missing / score.planned:.0%}) are missing data. Resume the run to fill them in."
        )
    if metrics.damaged_lines:
        texts.append(f"{metrics.damaged_lines} damaged lines of the journal were left out.")
    if metrics.duplicate_lines:
        texts.append(f"{metrics.duplicate_lines} duplicate lines of the journal were counted once.")
    return ["## Warnings", "", *(f"- {text}" for text in texts)] if texts else []


def _estimates(
    title: str, column: str, estimates: Iterable[tuple[str, Estimate]], *, macro: float | None
) -> list[str]:
    rows = [
        (
            literal(name),
            _number(estimate.value),
            _range(estimate.low, estimate.high),
            f"{estimate.evaluated}/{estimate.planned}",
            _range(estimate.bound_low, estimate.bound_high),
        )
        for name, estimate in estimates
    ]
    if not rows:
        return []
    lines = [f"## {title}", "", *table((column, "Value", "95% interval", "Evaluated", "Bounds"), rows)]
    return lines if macro is None else [*lines, "", f"Mean of the categories: {_number(macro)}"]


def _draws(metrics: Metrics) -> list[str]:
    if not metrics.pass_at:
        return []
    rows = [(j, _number(value), _number(metrics.pass_hat.get(j))) for j, value in metrics.pass_at.items()]
    return [
        "## Several attempts",
        "",
        *table(("j", "pass@j (any of j passes)", "pass^j (all j pass)"), rows),
    ]


def _attempts(counts: Counts) -> list[str]:
    rows = [
        ("planned", counts.planned),
        ("finished", counts.finished),
        ("failed", counts.failed),
        ("cancelled", counts.cancelled),
        ("missing", counts.missing),
    ]
    lines = ["## Attempts", "", *table(("Attempts", "Number"), [(name, str(n)) for name, n in rows])]
    if not counts.by_outcome:
        return lines
    outcomes = ", ".join(f"{literal(name)} {n}" for name, n in counts.by_outcome.items())
    return [*lines, "", f"By outcome: {outcomes}"]


def _usage(metrics: Metrics) -> list[str]:
    usage = metrics.usage
    return [
        "## Usage",
        "",
        f"- Trials: {metrics.trials}, of which {metrics.discarded_trials} were repeated",
        f"- Model calls: {usage.calls:,} ({usage.failed_calls:,} failed)",
        f"- Tokens: {usage.input_tokens:,} in ({usage.cached_tokens:,} cached, "
        f"{usage.cache_write_tokens:,} written to the cache), "
        f"{usage.output_tokens:,} out ({usage.reasoning_tokens:,} reasoning)",
        f"- Cost: {_cost(usage)}",
        f"- Agent time: {metrics.agent_seconds:,.1f} s over all trials",
    ]


def _cost(usage: Usage) -> str:
    return "unknown" if usage.cost_usd is None else f"${usage.cost_usd:,.4f}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if abs(value) < 1e6 else f"{value:.3e}"


def _range(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"[{_number(low)}, {_number(high)}]"
