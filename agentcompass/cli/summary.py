"""``agentcompass summary``: recompute the scores of a run from its journal alone."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..records import Metrics
from ..store.batch import write_scores
from ..store.encode import to_json
from ..store.layout import run_paths
from ..store.run import LoadedRun, load_run
from .report import print_report
from .terminal import print_json


@click.command("summary")
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the tables.")
def command(run_dir: Path, as_json: bool) -> None:
    """
    Recompute metrics.json and summary.md of the run in RUN_DIR and print its scores.

    All numbers come from the journal of the run, so this also works while the run is going on, after a
    crash, and if those files were deleted.
    """
    from ..engine.request import fold_journal
    from ..engine.result import plain

    run, paths = load_run(run_dir), run_paths(run_dir)
    metrics = fold_journal(paths.journal)
    if as_json:
        print_json({"run_id": run.record.run_id, "metrics": plain(metrics), "paths": plain(paths)})
    else:
        print_report(run, metrics)
    try:
        _write(run, metrics)
    except OSError as error:
        raise click.ClickException(f"cannot write to {str(run_dir)!r}: {error.strerror}") from error


def _write(run: LoadedRun, metrics: Metrics) -> None:
    from ..metrics.summary import render_summary

    paths = run_paths(run.run_dir)
    text = render_summary(run.record, metrics).encode("utf-8", "replace")
    partial = f"{paths.run_dir}/.partial.{os.getpid()}"  # the run itself may be writing right now
    write_scores(paths, to_json(metrics), text, partial=partial)
