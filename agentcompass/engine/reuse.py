"""Copy finished attempts of an earlier run into a new one, evidence included."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from anyio import to_thread

from ..records import TrialRecord
from ..store.layout import artifact_dir
from ..store.run import LoadedRun
from ..store.writer import RunStore
from .resume import Earlier, counted_trials


async def copy_attempts(
    run: LoadedRun, earlier: Mapping[tuple[str, int], Earlier], *, run_dir: Path, store: RunStore
) -> None:
    """Copy the trials that count of these attempts of an earlier run."""

    def copy_files() -> list[TrialRecord]:
        return [_copied(trial, run, run_dir) for trial in counted_trials(run, earlier)]

    await store.commit_copies(await to_thread.run_sync(copy_files))


def _copied(trial: TrialRecord, run: LoadedRun, run_dir: Path) -> TrialRecord:
    """Bring a trial's files over, under the same names; missing evidence costs no score."""
    with suppress(OSError):
        if trial.details:
            _link(run.run_dir / trial.details, run_dir / trial.details)
        artifacts = artifact_dir(trial.task_id, attempt=trial.attempt, trial=trial.trial)
        if (run.run_dir / artifacts).is_dir():
            shutil.copytree(run.run_dir / artifacts, run_dir / artifacts, dirs_exist_ok=True)
    return msgspec.structs.replace(trial, reused_from=trial.reused_from or run.record.run_id)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)  # detail files are never written to again
    except OSError:
        shutil.copyfile(source, target)
