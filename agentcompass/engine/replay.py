"""
The replay harness: hand in what was handed in before, so that grading it again costs no model call.

It reads run directories, which is why it is part of the engine and not a harness beside the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, model_validator

from ..errors import ConfigError, TrialError
from ..protocols import Outcome, Trial
from ..records import Detail, TrialRecord
from ..store.run import LoadedRun, load_run, read_artifact, read_detail


class ReplayParams(BaseModel):
    """Where the answers come from: one of the two has to be given."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    predictions: Path | None = None
    """A predictions file of SWE-bench (JSON Lines or JSON): ``instance_id`` and ``model_patch``."""
    run_dir: Path | None = None
    """The directory of an earlier run."""

    @model_validator(mode="after")
    def _one_source(self) -> ReplayParams:
        if (self.predictions is None) == (self.run_dir is None):
            raise ValueError("name either predictions or run_dir")
        return self


class ReplayHarness:
    """Hands in recorded answers."""

    needs_session: ClassVar[bool] = False
    needs_model: ClassVar[bool] = False
    sees_reference: ClassVar[bool] = False

    def __init__(self, params: ReplayParams) -> None:
        self._predictions: Mapping[str, str | None] = {}
        self._run: LoadedRun | None = None
        self._trials: Mapping[tuple[str, int], TrialRecord] = {}
        if params.predictions is not None:
            self._predictions = read_predictions(params.predictions)
        elif params.run_dir is not None:
            self._run = load_run(params.run_dir)
            self._trials = _last_trials(self._run)

    async def run(self, trial: Trial) -> Outcome:
        """
        Hand in what was handed in for the same task (and attempt, of an earlier run).

        Raises:
            TrialError: The earlier run lacks it, or its files are damaged: missing data.
        """
        if self._run is None:
            patch = self._predictions.get(trial.task.id)
            return Outcome(answer=patch, stop_reason="no prediction" if patch is None else "replayed")
        record = self._trials.get((trial.task.id, trial.attempt))
        if record is None:
            raise TrialError(
                f"run {self._run.record.run_id} has no finished attempt {trial.attempt} of {trial.task.id!r}"
            )
        return await to_thread.run_sync(_recorded_outcome, self._run, record)


def _last_trials(run: LoadedRun) -> dict[tuple[str, int], TrialRecord]:
    """Return the trials that left evidence, the last one of each attempt."""
    found = {(record.task_id, record.attempt): record for record in run.trials() if record.details}
    if not found:
        raise ConfigError(f"harness_params.run_dir: the run {str(run.run_dir)!r} has no finished attempt")
    return found


def _recorded_outcome(run: LoadedRun, record: TrialRecord) -> Outcome:
    match read_detail(run.run_dir, record):
        case Detail() as detail:
            artifacts = {name: read_artifact(run.run_dir, detail, name) for name in detail.artifacts}
        case reason:
            raise TrialError(f"attempt {record.attempt} of {record.task_id!r} cannot be replayed: {reason}")
    if lost := [name for name, content in artifacts.items() if content is None]:
        raise TrialError(f"attempt {record.attempt} of {record.task_id!r} has lost {', '.join(lost)}")
    kept = {name: content for name, content in artifacts.items() if content is not None}
    if detail.answer is None and not kept and not record.outcome.counts:
        raise TrialError(
            f"attempt {record.attempt} of {record.task_id!r} ended as {record.outcome}, "
            "before anything was handed in"
        )
    return Outcome(answer=detail.answer, artifacts=kept, stop_reason="replayed")


def read_predictions(path: Path) -> dict[str, str | None]:
    """
    Read a predictions file: patch by instance id; blocks.

    Raises:
        ConfigError: It cannot be read, or a prediction is no such thing.
    """
    found: dict[str, str | None] = {}
    for place, prediction in _rows(path):
        instance_id = prediction.get("instance_id") if isinstance(prediction, dict) else None
        if not isinstance(instance_id, str):
            raise ConfigError(f"{place}: must be an object with a text instance_id")
        patch = prediction.get("model_patch")
        if not isinstance(patch, str | None):
            raise ConfigError(f"{place}: model_patch must be a text or null, not {patch!r:.60}")
        if instance_id in found:
            raise ConfigError(f"{place}: there is a prediction for {instance_id!r} already")
        found[instance_id] = patch
    if not found:
        raise ConfigError(f"harness_params.predictions: there is no prediction in {str(path)!r}")
    return found


def _rows(path: Path) -> list[tuple[str, Any]]:
    try:
        data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise ConfigError(
            f"harness_params.predictions: cannot read {str(path)!r}: {error.strerror}"
        ) from error
    if path.suffix == ".json":
        content = _parsed(data, str(path))
        rows = list(content.values()) if isinstance(content, dict) else content
        if not isinstance(rows, list):
            raise ConfigError(f"{path}: must hold a list or an object of predictions")
        return [(f"{path}: prediction {number}", row) for number, row in enumerate(rows, start=1)]
    places = ((f"{path}:{number}", line) for number, line in enumerate(data.split(b"\n"), start=1))
    return [(place, _parsed(line, place)) for place, line in places if line.strip()]


def _parsed(data: bytes, place: str) -> Any:
    try:
        return json.loads(data)  # not msgspec: patches that are no UTF-8 are written with lone surrogates
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from error
