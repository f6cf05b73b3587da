"""``agentcompass compare``: how runs differ, and whether that is more than chance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..metrics.markdown import literal, table
from ..progress.phrases import duration
from .report import number
from .table import Table, print_tables
from .terminal import print_json, print_text

if TYPE_CHECKING:
    from ..engine.compare import Comparison, FieldOfBoth, RunComparison, TaskOfBoth

_NONE = "-"
_TESTS = {
    "exact_mcnemar": "exact McNemar test, one pass or fail per task",
    "paired_t": "paired t test of the tasks' means",
}


@click.command("compare")
@click.argument(
    "runs", nargs=-1, required=True, metavar="RUN_A RUN_B [RUN_A RUN_B]...", type=click.Path(path_type=Path)
)
@click.option(
    "--allow",
    multiple=True,
    metavar="FIELD",
    help="Compare although this field differs, and mark that; repeatable. `all` allows everything.",
)
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, with all tasks that differ.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Name at most so many tasks gained, and as many lost.",
)
def command(
    runs: tuple[Path, ...], allow: tuple[str, ...], markdown: bool, as_json: bool, limit: int
) -> None:
    """
    Compare run A with run B on the tasks that both evaluated; differences are B - A.

    Each is a run directory, the folder of a request (its latest run counts), or a results directory (the
    latest run of each request, paired by request or benchmark). Of several pairs, p is also told after Holm's
    correction.
    """
    from ..engine.compare import compare_runs

    if markdown and as_json:
        raise click.UsageError("--markdown and --json exclude each other")
    comparison = compare_runs(*runs, allow=allow)
    if as_json:
        print_json(comparison.to_dict())
    elif markdown:
        print_text("\n".join(_markdown(comparison, limit)))
    else:
        _print(comparison, limit)


def _print(comparison: Comparison, limit: int) -> None:
    print_tables(_overview(comparison))
    for pair in comparison.pairs:
        print_tables(*_tables(pair, limit))
        print_text("\n".join(_sentences(pair, several=len(comparison.pairs) > 1)) + "\n")
    for run_dir in comparison.unmatched:
        print_text(f"without a counterpart: {run_dir}")


def _markdown(comparison: Comparison, limit: int) -> Iterator[str]:
    yield "# Comparison"
    yield from _markdown_table(_overview(comparison))
    for pair in comparison.pairs:
        yield f"\n## {literal(pair.benchmark)}\n"
        yield from (
            f"- {literal(sentence)}" for sentence in _sentences(pair, several=len(comparison.pairs) > 1)
        )
        for shown in _tables(pair, limit):
            yield from _markdown_table(shown)
    if comparison.unmatched:
        yield "\n## Without a counterpart\n"
        yield from (f"- {literal(run_dir)}" for run_dir in comparison.unmatched)


def _markdown_table(shown: Table) -> Iterator[str]:
    if shown.rows:
        yield ""
        yield from table(
            [literal(name) for name in shown.head], [list(map(literal, row)) for row in shown.rows]
        )


# --- what is told -----------------------------------------------------------------------------------


def _overview(comparison: Comparison) -> Table:
    several = len(comparison.pairs) > 1
    head = ["benchmark", "tasks", "A", "B", "B - A", "95% interval", "p"]
    rows = [
        [
            pair.benchmark,
            f"{pair.compared}/{pair.planned}",
            number(pair.a.score),
            number(pair.b.score),
            _signed(pair.difference.value),
            _range(pair.difference.low, pair.difference.high) if pair.compared else _NONE,
            _p(pair.difference.p),
            *([_p(pair.p_corrected)] if several else []),
            f"+{len(pair.gained)} -{len(pair.lost)}",
        ]
        for pair in comparison.pairs
    ]
    return Table([*head, *(["p (Holm)"] if several else []), "+/-"], rows)


def _tables(pair: RunComparison, limit: int) -> Sequence[Table]:
    return (
        Table((pair.benchmark, "A", "B"), list(_side_by_side(pair))),
        Table(("not comparable, but allowed", "A", "B"), list(map(_field, pair.allowed))),
        Table(("differs", "A", "B"), list(map(_field, pair.differs))),
        _tasks("gained in B", pair.gained, limit),
        _tasks("lost in B", pair.lost, limit),
    )


def _side_by_side(pair: RunComparison) -> Iterator[tuple[str, str, str]]:
    a, b = pair.a, pair.b
    yield "request", a.name, b.name
    yield "run", a.run_id, b.run_id
    yield "tasks evaluated", f"{a.evaluated}/{a.tasks}", f"{b.evaluated}/{b.tasks}"
    yield f"score on the {pair.compared} of both", number(a.score), number(b.score)
    yield "their cost", _cost(a.cost_usd), _cost(b.cost_usd)
    yield "their tokens in", f"{a.input_tokens:,}", f"{b.input_tokens:,}"
    yield "their tokens out", f"{a.output_tokens:,}", f"{b.output_tokens:,}"
    yield "their model calls", f"{a.model_calls:,}", f"{b.model_calls:,}"
    yield "their agent time", duration(a.agent_seconds), duration(b.agent_seconds)


def _field(it: FieldOfBoth) -> tuple[str, str, str]:
    return it.field, _value(it.a), _value(it.b)


def _value(value: object) -> str:
    match value:
        case None:
            return _NONE
        case str():
            return value
        case _:
            return json.dumps(value, ensure_ascii=False, default=str)


def _tasks(title: str, tasks: Sequence[TaskOfBoth], limit: int) -> Table:
    rows = [(task.task_id, number(task.a), number(task.b)) for task in tasks[:limit]]
    if len(tasks) > limit:
        rows.append((f"and {len(tasks) - limit} more (see --limit, --json)", "", ""))
    return Table((title, "A", "B"), rows)


def _sentences(pair: RunComparison, *, several: bool) -> Iterator[str]:
    yield _verdict(pair, several=several)
    missing = pair.planned - pair.compared
    if missing:
        bounds = _range(pair.bound_low, pair.bound_high)
        yield f"{missing} of {pair.planned} tasks lack a score in A or B; with them B - A could be {bounds}"
    for name, run in (("A", pair.a), ("B", pair.b)):
        if run.tasks > pair.planned:
            yield f"{run.tasks - pair.planned} tasks are planned in {name} alone and left out"
    if pair.difference.further_tasks:
        more = f"{pair.difference.further_tasks:,} more tasks"
        yield f"if a difference of this size is real, about {more} would show it, in 4 of 5 cases"
    if pair.allowed:
        yield "these runs were not measured alike; the comparison was allowed"
    yield from pair.notes


def _verdict(pair: RunComparison, *, several: bool) -> str:
    difference = pair.difference
    if not pair.compared:
        return "no task is evaluated in both"
    p = f"p = {_p(pair.p_corrected)} after Holm" if several else f"p = {_p(difference.p)}"
    how = f"{p}, {_TESTS[difference.method]}"
    interval = f"{_signed(difference.value)} {_range(difference.low, difference.high)}"
    match pair.better:
        case None:
            return f"not settled: B - A is {interval}, {how}"
        case better:
            return f"{better.upper()} is better: B - A is {interval}, {how}"


def _signed(value: float | None) -> str:
    return _NONE if value is None else f"{value:+.3f}"


def _range(low: float, high: float) -> str:
    return f"[{_signed(low)}, {_signed(high)}]"


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _cost(cost_usd: float | None) -> str:
    return "unknown" if cost_usd is None else f"${cost_usd:,.4f}"
