"""Read run directories: for summaries, for showing, for resuming, and for reuse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..errors import ConfigError, nearest
from ..records import SCHEMA_VERSION, Detail, RunRecord, TrialRecord
from .journal import JournalReader, read_journal
from .layout import RUN_FILE, check_run_id, run_paths


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run directory on disk; its journal is read each time that it is asked for."""

    run_dir: Path
    record: RunRecord

    def journal(self) -> JournalReader:
        """Return a reader of the journal."""
        return read_journal(run_paths(self.run_dir).journal)

    def journal_bytes(self) -> int:
        """Return how long the journal is; blocks."""
        path = Path(run_paths(self.run_dir).journal)
        return path.stat().st_size if path.exists() else 0

    def trials(self) -> Iterator[TrialRecord]:
        """Yield every trial on disk; blocks."""
        return (record for record in self.journal() if isinstance(record, TrialRecord))


def load_run(run_dir: Path) -> LoadedRun:
    """
    Open a run directory for reading; blocks.

    Raises:
        ConfigError: It is not one, or its ``run.json`` cannot be read.
    """
    path = run_dir / RUN_FILE
    try:
        record = msgspec.json.decode(path.read_bytes(), type=RunRecord)
    except FileNotFoundError:
        raise ConfigError(f"{str(run_dir)!r} is not a run directory: it has no {RUN_FILE}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{str(path)!r} is damaged: {error}") from error
    if record.schema_version > SCHEMA_VERSION:
        raise ConfigError(f"{str(path)!r} was written by a newer version of agentcompass; update to read it")
    return LoadedRun(run_dir=run_dir, record=record)


def find_run(namespace_dir: Path, run_id: str) -> LoadedRun:
    """
    Find a run among those of a namespace; blocks.

    Raises:
        ConfigError: It does not exist or cannot be read.
    """
    check_run_id(run_id)
    if not (namespace_dir / run_id).is_dir():
        raise ConfigError(_no_such_run(namespace_dir, run_id))
    return load_run(namespace_dir / run_id)


def readable_runs(namespace_dir: Path) -> Iterator[LoadedRun]:
    """
    Yield the runs of a namespace that can be read, the newest first; blocks.

    Raises:
        ConfigError: The folder cannot be read.
    """
    for name in sorted(_run_ids(namespace_dir), reverse=True):
        try:
            yield load_run(namespace_dir / name)
        except ConfigError:
            continue  # damaged or never started: an older one will do


def _run_ids(namespace_dir: Path) -> list[str]:
    try:
        return [path.name for path in namespace_dir.iterdir() if (path / RUN_FILE).is_file()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ConfigError(f"cannot look for runs in {str(namespace_dir)!r}: {error.strerror}") from error


def _no_such_run(namespace_dir: Path, run_id: str) -> str:
    known = sorted(_run_ids(namespace_dir))
    listing = ", ".join(known[-5:]) or "none"
    return f"no run {run_id!r} in {str(namespace_dir)!r}{nearest(run_id, known)} (there: {listing})"


def read_detail(run_dir: Path, record: TrialRecord) -> Detail | str:
    """Return the evidence of a trial, or one sentence on why there is none; blocks."""
    if not record.details:
        return "no details were kept"
    path = run_dir / record.details
    if not path.resolve().is_relative_to(run_dir.resolve()):
        return f"its detail file {record.details!r} lies outside the run directory"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Detail)
    except FileNotFoundError:
        return f"its detail file {record.details!r} is missing"
    except (OSError, ValueError, RecursionError) as error:  # a msgspec.DecodeError is a ValueError
        return f"its detail file {record.details!r} cannot be read: {error}"


def read_artifact(run_dir: Path, detail: Detail, name: str) -> bytes | None:
    """Return a kept file of a trial; None if there is none or it cannot be read; blocks."""
    relative = detail.artifacts.get(name)
    if relative is None:
        return None
    path = run_dir / relative
    if not path.resolve().is_relative_to(run_dir.resolve()):
        return None
    try:
        return path.read_bytes()
    except OSError:
        return None
