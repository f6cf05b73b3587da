"""
Write batches of records into a run directory: blocking code that the writer runs in a worker thread.

Order matters: evidence first, then the journal with one fsync, so that a record never points to a file
that is still to come; progress and log lines last, because nobody waits for them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ..records import (
    Detail,
    JournalRecord,
    Metrics,
    ProgressEvent,
    ProgressSnapshot,
    RunPaths,
    RunRecord,
    TrialRecord,
)
from .encode import to_json, with_finite_numbers
from .files import SYSTEM_FILES, Files, write_all, write_whole
from .journal import Journal, encode_body, frame_line
from .layout import SNAPSHOT_FILE, artifact_path, detail_path, run_paths
from .scrub import Scrubber

NO_ARTIFACTS: Mapping[str, bytes] = {}


@dataclass(slots=True, eq=False)
class Commit:
    """One record to be written, with its evidence; the writing fills in paths or the error."""

    record: JournalRecord
    detail: Detail | None = None
    artifacts: Mapping[str, bytes] = field(default_factory=lambda: NO_ARTIFACTS)
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """What is written along with a batch and may be lost."""

    events: Sequence[ProgressEvent] = ()
    log: Sequence[bytes] = ()
    snapshot: ProgressSnapshot | None = None


class RunFiles:
    """
    The open files of one run directory; used by one thread at a time.

    Raises:
        OSError: They cannot be opened.
    """

    def __init__(self, run_dir: Path, *, scrubber: Scrubber, files: Files) -> None:
        self.paths = run_paths(run_dir)
        self._files = files
        self._opened = ExitStack()
        self._scrubber = scrubber
        self._partial = f"{self.paths.run_dir}/.partial"
        self.evidence_error: OSError | None = None
        """Why a detail or an artifact could not be written; its record was written all the same."""
        try:
            self._open()
        except OSError:
            self.close()
            raise

    def _open(self) -> None:
        self._journal = Journal(self.paths.journal, files=self._files)  # fails if the directory is gone
        self._opened.callback(self._journal.close)
        self._files.make_dirs(self.paths.details)
        self._progress = self._open_for_append(self.paths.progress)
        self._log = self._open_for_append(self.paths.log)
        self._files.sync_dir(self.paths.run_dir)

    def _open_for_append(self, path: str) -> int:
        """Open a file of lines, ending the last one if a crash has torn it."""
        descriptor = self._files.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._opened.callback(self._files.close, descriptor)
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            write_all(self._files, descriptor, b"\n")
        return descriptor

    def close(self) -> None:
        """Close the files; what had to be on disk is on disk by now, so that a failure costs nothing."""
        with suppress(OSError):
            self._opened.close()

    # --- records ----------------------------------------------------------------------------------

    def write(self, commits: Sequence[Commit], lines: Lines) -> int:
        """
        Write a batch.

        Returns:
            How many progress and log lines were lost because their file could not be written.

        Raises:
            OSError: The journal could not be written; none of the records is in it.
        """
        if commits:
            self._journal.append(b"".join([self._line(commit) for commit in commits]))
        return self._write_lines(lines)

    def _line(self, commit: Commit) -> bytes:
        """Write a commit's evidence and return its journal line; a record that is no JSON yields none."""
        try:
            match commit.record:
                case TrialRecord() as record:
                    commit.record = self._with_evidence(with_finite_numbers(record), commit)
                    keep = {record.task_id, commit.record.details}
                case plan:
                    keep = set(plan.task_ids)
            return frame_line(self._scrubber.scrub_json(encode_body(commit.record), keep=keep))
        except (TypeError, ValueError) as error:
            commit.error = error
            return b""

    def _with_evidence(self, record: TrialRecord, commit: Commit) -> TrialRecord:
        try:
            artifacts = self._write_artifacts(record, commit.artifacts)
            details = self._write_detail(record, commit.detail, artifacts) if commit.detail else ""
        except OSError as error:
            self.evidence_error = error  # the verdict is worth more than its evidence: keep the line
            return record
        return msgspec.structs.replace(record, details=details) if details else record

    def _write_artifacts(self, record: TrialRecord, artifacts: Mapping[str, bytes]) -> dict[str, str]:
        paths: dict[str, str] = {}
        for name, content in artifacts.items():
            clean_name = self._scrubber.scrub_text(name)
            path = artifact_path(record.task_id, clean_name, attempt=record.attempt, trial=record.trial)
            try:
                self._write_artifact(path, content)
            except TypeError:  # no bytes: the harness's mistake, which costs this artifact only
                path = ""
            paths[clean_name] = path
        return paths

    def _write_artifact(self, path: str, content: bytes) -> None:
        target = f"{self.paths.run_dir}/{path}"
        self._files.make_dirs(os.path.dirname(target))  # noqa: PTH120 -- a Path costs more
        write_whole(self._files, target, self._scrubber.scrub_bytes(content), partial=self._partial)

    def _write_detail(self, record: TrialRecord, detail: Detail, artifacts: dict[str, str]) -> str:
        path = detail_path(record.task_id, attempt=record.attempt, trial=record.trial)
        if artifacts:
            detail = msgspec.structs.replace(detail, artifacts=artifacts)
        keep = {record.task_id, *artifacts.values()}
        data = self._scrubber.scrub_json(to_json(detail), keep=keep)
        write_whole(self._files, f"{self.paths.run_dir}/{path}", data, partial=self._partial)
        return path

    # --- progress and log -------------------------------------------------------------------------

    def _write_lines(self, lines: Lines) -> int:
        lost = 0
        events = [self._scrubber.scrub_json(to_json(event)) for event in lines.events]
        log = [self._scrubber.scrub_json(line.rstrip(b"\n")) for line in lines.log]
        for descriptor, texts in ((self._progress, events), (self._log, log)):
            try:
                if texts:
                    write_all(self._files, descriptor, b"\n".join([*texts, b""]))
            except OSError:  # the journal meets the same trouble, and reports it
                lost += len(texts)
        if lines.snapshot:
            self._write_snapshot(lines.snapshot)
        return lost

    def _write_snapshot(self, snapshot: ProgressSnapshot) -> None:
        data = self._scrubber.scrub_json(to_json(snapshot), keep={snapshot.request, snapshot.run_id})
        try:
            path = f"{self.paths.run_dir}/{SNAPSHOT_FILE}"
            write_whole(self._files, path, data, partial=self._partial)
        except OSError:
            return  # the next one may succeed; the journal is what counts

    # --- single files -----------------------------------------------------------------------------

    def write_run(self, record: RunRecord) -> None:
        """
        Write ``run.json``, once.

        Raises:
            FileExistsError: It is there already.
        """
        if Path(self.paths.run_json).exists():
            raise FileExistsError(17, "it is written once, when a run starts", self.paths.run_json)
        data = self._scrubber.scrub_json(to_json(record), keep=_identity(record))
        _write_document(self._files, self.paths.run_json, data, partial=self._partial)

    def write_final(self, metrics: Metrics, summary: str) -> None:
        """Write ``metrics.json`` and ``summary.md``."""
        keep = set(metrics.categories) | set(metrics.metrics)
        scrubbed = self._scrubber.scrub_json(to_json(metrics), keep=keep)
        text = self._scrubber.scrub_bytes(summary.encode("utf-8", "replace"))
        write_scores(self.paths, scrubbed, text, partial=self._partial, files=self._files)


def write_scores(
    paths: RunPaths, metrics_json: bytes, summary: bytes, *, partial: str, files: Files = SYSTEM_FILES
) -> None:
    """
    Write ``metrics.json`` and ``summary.md``, each whole or not at all.

    Args:
        partial: A path that nobody else writes to.

    Raises:
        OSError: One cannot be written.
    """
    _write_document(files, paths.metrics, metrics_json, partial=partial)
    write_whole(files, paths.summary, summary, partial=partial, durable=True)


def _write_document(files: Files, path: str, data: bytes, *, partial: str) -> None:
    write_whole(files, path, msgspec.json.format(data, indent=2) + b"\n", partial=partial, durable=True)


def _identity(record: RunRecord) -> set[str]:
    """Collect what a run is compared by when it is resumed or reused."""
    components = (record.benchmark, record.harness, record.environment)
    ids = {component.id for component in components}
    return ids | {record.run_id, record.name, record.model.id, record.dataset_hash}
