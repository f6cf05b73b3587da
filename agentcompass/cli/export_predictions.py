"""``agentcompass export-predictions``: the patches of a run in the official format of SWE-bench."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ..errors import ConfigError
from ..protocols import PATCH_ARTIFACT, Outcome
from ..records import Detail, TrialRecord
from ..store.run import LoadedRun, load_run, read_artifact, read_detail
from .attempts import counted_trials
from .terminal import print_note

_STANDARD_OUTPUT = "-"


@click.command("export-predictions")
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write there; - for the standard output. By default predictions.jsonl in RUN_DIR.",
)
@click.option(
    "--attempt",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Which attempt of each task.",
)
@click.option("--model-name", metavar="NAME", help="By default the model of the run, else its harness.")
def command(run_dir: Path, output: str | None, attempt: int, model_name: str | None) -> None:
    """
    Write the predictions of the run in RUN_DIR as JSON Lines: instance_id, model_name_or_path, model_patch.

    An attempt that handed in nothing gets an empty patch; one that is missing gets no line. The file can be
    given to the official harness, or to the harness `replay`.
    """
    run = load_run(run_dir)
    name = model_name or run.record.model.id or run.record.harness.id
    records = [record for record in counted_trials(run.trials()) if record.attempt == attempt]
    if not records:
        raise ConfigError(f"the run {str(run_dir)!r} has no finished attempt {attempt}")
    lines = [json.dumps(row) + "\n" for row in _predictions(run, records, name)]
    if output == _STANDARD_OUTPUT:
        sys.stdout.writelines(lines)
        return
    target = Path(output) if output else run_dir / "predictions.jsonl"
    try:
        target.write_text("".join(lines), "utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {str(target)!r}: {error.strerror}") from error
    print_note(f"{len(lines)} predictions: {target}")


def _predictions(run: LoadedRun, records: list[TrialRecord], name: str) -> Iterator[dict[str, Any]]:
    for record in sorted(records, key=lambda record: record.task_id):
        match read_detail(run.run_dir, record):
            case Detail() as detail:
                patch = _patch(run.run_dir, detail)
                if patch or record.outcome.counts:
                    yield {"instance_id": record.task_id, "model_name_or_path": name, "model_patch": patch}
                else:
                    print_note(f"warning: {record.task_id} is left out: it ended as {record.outcome}")
            case reason:
                print_note(f"warning: {record.task_id} is left out: {reason}")


def _patch(run_dir: Path, detail: Detail) -> str:
    """Return the patch as text; bytes that are no UTF-8 become lone surrogates, which `replay` undoes."""
    from ..benchmarks.swebench.patches import prediction

    kept = read_artifact(run_dir, detail, PATCH_ARTIFACT)
    artifacts = {} if kept is None else {PATCH_ARTIFACT: kept}
    patch = prediction(Outcome(answer=detail.answer, artifacts=artifacts))
    return patch.decode("utf-8", "surrogateescape")
