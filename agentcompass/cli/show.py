"""``agentcompass show``: look into a run, at what did not succeed or at one task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ..errors import ConfigError, nearest
from ..progress.phrases import duration
from ..records import Detail, PlanRecord, TrialRecord
from ..store.layout import run_paths
from ..store.run import LoadedRun, load_run, read_detail
from .attempts import counted_trials, succeeded
from .report import facts_table, total_line
from .table import Table, print_tables
from .terminal import print_json, print_text
from .trial_text import trial_lines


@click.command("show")
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.argument("task", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Show at most so many attempts that did not succeed.",
)
def command(run_dir: Path, task: str | None, as_json: bool, limit: int) -> None:
    """
    Look into the run in RUN_DIR.

    Without TASK: its score and the attempts that did not succeed. With TASK: every trial of that task with
    its steps, answer, verdict, failure, usage and files.
    """
    run = load_run(run_dir)
    if task is None:
        _show_run(run, as_json=as_json, limit=limit)
    else:
        _show_task(run, task, as_json=as_json)


def _show_run(run: LoadedRun, *, as_json: bool, limit: int) -> None:
    from ..engine.request import fold_journal
    from ..engine.result import plain

    metrics = fold_journal(run_paths(run.run_dir).journal)
    failing = [record for record in counted_trials(run.trials()) if not succeeded(record)]
    if as_json:
        shown = plain(tuple(failing[:limit]))
        print_json({"run": plain(run.record), "metrics": plain(metrics), "unsuccessful": shown})
        return
    print_tables(facts_table(run.record), _attempts_table(failing[:limit]))
    if not failing:
        print_text("nothing that ran failed")
    if len(failing) > limit:
        print_text(f"{len(failing) - limit} more did not succeed; see them with --limit {len(failing)}\n")
    print_text(total_line(metrics))


def _attempts_table(records: list[TrialRecord]) -> Table:
    rows = [
        (
            record.task_id,
            str(record.attempt),
            "wrong" if record.failure is None and record.outcome == "completed" else str(record.outcome),
            duration(record.timings.total),
            f"{record.failure.error}: {record.failure.message}" if record.failure else "",
        )
        for record in records
    ]
    return Table(("task", "attempt", "outcome", "time", "error"), rows)


def _show_task(run: LoadedRun, task_id: str, *, as_json: bool) -> None:
    trials = sorted(
        (record for record in run.trials() if record.task_id == task_id),
        key=lambda record: (record.attempt, record.trial),
    )
    if not trials:
        raise ConfigError(_why_nothing(run, task_id))
    if as_json:
        print_json({"task_id": task_id, "trials": [_as_json(run, record) for record in trials]})
        return
    for record in trials:
        print_text("\n".join(trial_lines(record, read_detail(run.run_dir, record))) + "\n")


def _why_nothing(run: LoadedRun, task_id: str) -> str:
    known = set(_task_ids(run))
    if task_id in known:
        return f"task {task_id!r} has no trial yet"
    return f"no task {task_id!r} in this run{nearest(task_id, known)}"


def _task_ids(run: LoadedRun) -> Iterator[str]:
    for record in run.journal():
        match record:
            case PlanRecord():
                yield from record.task_ids
            case TrialRecord():
                yield record.task_id


def _as_json(run: LoadedRun, record: TrialRecord) -> dict[str, Any]:
    from ..engine.result import plain

    match read_detail(run.run_dir, record):
        case Detail() as detail:
            return {"record": plain(record), "detail": plain(detail)}
        case reason:
            return {"record": plain(record), "detail": None, "detail_missing": reason}
