"""The scores of a run on the screen: what ran, its table of scores, and the line that sums it up."""

from __future__ import annotations

from collections.abc import Iterator

from ..metrics.summary import score_line
from ..progress.phrases import duration
from ..records import Estimate, Metrics, RunRecord
from ..store.run import LoadedRun
from .attempts import counted_trials, failure_counts
from .table import Table, print_tables
from .terminal import print_text

_CATEGORIES_SHOWN = 20
_NONE = "-"


def print_report(run: LoadedRun, metrics: Metrics, *, seconds: float | None = None) -> None:
    """
    Print the scores of a run; blocks.

    Args:
        seconds: How long the run took, if known; else the time of its agents is told.
    """
    print_tables(
        facts_table(run.record),
        _scores_table(metrics),
        _categories_table(metrics),
        Table(
            ("failures", "attempts"), [(e, str(n)) for e, n in failure_counts(counted_trials(run.trials()))]
        ),
    )
    print_text(total_line(metrics, seconds=seconds))
    print_text(str(run.run_dir))


def facts_table(record: RunRecord) -> Table:
    """Say what ran."""
    facts = (
        ("benchmark", record.benchmark.id),
        ("harness", record.harness.id),
        ("model", record.model.id or _NONE),
        ("environment", record.environment.id),
    )
    return Table(("", ""), facts)


def _scores_table(metrics: Metrics) -> Table:
    rows = [
        _row("score", metrics.score),
        *_draws(metrics),
        *(_row(name, estimate) for name, estimate in metrics.metrics.items()),
    ]
    return Table(("", "value", "95% interval", "coverage", "bounds"), rows)


def _draws(metrics: Metrics) -> Iterator[tuple[str, ...]]:
    """Yield pass@j and pass^j, which say nothing new for one attempt per task."""
    for name, values in (("pass@", metrics.pass_at), ("pass^", metrics.pass_hat)):
        for j, value in values.items():
            yield (f"{name}{j}", number(value), "", "", "")


def _categories_table(metrics: Metrics) -> Table:
    rows = [_row(name, estimate) for name, estimate in metrics.categories.items()]
    more = len(rows) - _CATEGORIES_SHOWN
    if more > 0:
        rows = [*rows[:_CATEGORIES_SHOWN], (f"{more} more in summary.md", "", "", "", "")]
    if rows:
        rows.append(("mean of categories", number(metrics.macro), "", "", ""))
    return Table(("category", "value", "95% interval", "coverage", "bounds"), rows)


def _row(name: str, estimate: Estimate) -> tuple[str, ...]:
    return (
        name,
        number(estimate.value),
        number_range(estimate.low, estimate.high),
        f"{estimate.evaluated}/{estimate.planned}",
        number_range(estimate.bound_low, estimate.bound_high),
    )


def number(value: float | None) -> str:
    """Show a number, or that there is none."""
    return _NONE if value is None else f"{value:.3f}" if abs(value) < 1e6 else f"{value:.3e}"


def number_range(low: float | None, high: float | None) -> str:
    """Show an interval, or that there is none."""
    return _NONE if low is None or high is None else f"[{number(low)}, {number(high)}]"


def total_line(metrics: Metrics, *, seconds: float | None = None) -> str:
    """Return the score with its uncertainty, the cost and the time on one line."""
    usage = metrics.usage
    words = [score_line(metrics)]
    if usage.cost_usd is not None:
        words.append(f"${usage.cost_usd:.4f}")
    elif usage.calls:
        words.append("cost unknown")
    words.append(f"agents {duration(metrics.agent_seconds)}" if seconds is None else duration(seconds))
    return " · ".join(words)
