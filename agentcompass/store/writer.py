"""
The one writer of a run directory: it gathers what many attempts want on disk and writes it in batches.

A commit returns only after its batch is on disk; the batch grows by itself with the number of waiters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio

from ..daemon import DaemonThread
from ..errors import StoreError
from ..records import Detail, Metrics, PlanRecord, ProgressEvent, ProgressSnapshot, RunRecord, TrialRecord
from .batch import NO_ARTIFACTS, Commit, Lines, RunFiles
from .files import SYSTEM_FILES, Files
from .scrub import Scrubber

_IDLE_SECONDS = 1.0
"""How long progress and log lines may wait for a batch to go with."""
_PATIENCE_SECONDS = 60.0
"""How long a single file, or the rest at the end, may take; a disk that hangs for longer has failed."""
MAX_PENDING_LINES = 100_000
"""More progress or log lines than this are not kept waiting; later ones are dropped."""


class _Batch:
    """Commits that will be written together, and the event that their callers wait for."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.done = anyio.Event()
        self.is_written = False


class RunStore:
    """A run directory that is open for writing; made by ``open_store``."""

    def __init__(self, files: RunFiles, thread: DaemonThread, writing: anyio.CancelScope) -> None:
        self._files = files
        self._thread = thread
        self._writing = writing
        self._batch = _Batch()
        self._wanted = anyio.Event()
        self._refusal = ""
        self._is_closing = False
        # Other threads append: a deque's single operations need no lock.
        self._events: deque[ProgressEvent] = deque()
        self._log: deque[bytes] = deque()
        self._snapshot: ProgressSnapshot | None = None
        self.lost_lines = 0
        """Progress and log lines that were not written: too many at once, or their file failed."""

    # --- what must not be lost --------------------------------------------------------------------

    async def commit(
        self, record: TrialRecord, detail: Detail | None, artifacts: Mapping[str, bytes] = NO_ARTIFACTS
    ) -> TrialRecord:
        """
        Put a trial on disk.

        Call it under a shield: a caller who is cancelled does not learn whether it was written.

        Returns:
            The record as written, with the path of its details.

        Raises:
            StoreError: It is not on disk, and nothing more can be written.
        """
        commit = Commit(record=record, detail=detail, artifacts=artifacts)
        await self._put([commit])
        match commit.record:
            case TrialRecord() as written:
                return written
            case _:
                raise AssertionError("a commit keeps the kind of its record")

    async def commit_plan(self, plan: PlanRecord) -> None:
        """
        Put on disk what the run is meant to cover from here on.

        Raises:
            StoreError: It is not on disk.
        """
        await self._put([Commit(record=plan)])

    async def commit_copies(self, records: Sequence[TrialRecord]) -> None:
        """
        Put many trials on disk at once whose evidence is there already.

        Raises:
            StoreError: Some are not on disk.
        """
        await self._put([Commit(record=record) for record in records])

    async def _put(self, commits: Sequence[Commit]) -> None:
        if self._refusal:
            raise StoreError(self._refusal)
        batch = self._batch
        batch.commits += commits
        self._wanted.set()
        await batch.done.wait()
        if not batch.is_written:
            raise StoreError(self._refusal)
        for commit in commits:
            if commit.error is not None:
                raise StoreError(f"a record cannot be written: {commit.error}") from commit.error

    async def write_run(self, record: RunRecord) -> None:
        """
        Write ``run.json``.

        Raises:
            StoreError: It cannot be written, or is there already.
        """
        await self._in_thread(partial(self._files.write_run, record))

    async def write_final(self, metrics: Metrics, summary: str) -> None:
        """
        Write ``metrics.json`` and ``summary.md``, replacing earlier ones.

        Raises:
            StoreError: They cannot be written.
        """
        await self._in_thread(partial(self._files.write_final, metrics, summary))

    async def _in_thread(self, write: Callable[[], None]) -> None:
        if self._writing.cancel_called:
            raise StoreError(self._refusal)
        try:
            with anyio.move_on_after(_PATIENCE_SECONDS, shield=True) as waiting:
                await self._thread.run(write)
        except OSError as error:
            raise StoreError(self._explain(error.strerror or str(error))) from error
        if waiting.cancelled_caught:
            raise self.give_up()

    # --- what may be lost -------------------------------------------------------------------------

    def event(self, event: ProgressEvent) -> None:
        """Add a line to ``progress.jsonl`` soon."""
        if len(self._events) < MAX_PENDING_LINES:
            self._events.append(event)
        else:
            self.lost_lines += 1

    def log_line(self, line: bytes) -> None:
        """Add a line to ``run.log`` soon; may be called on any thread."""
        if len(self._log) < MAX_PENDING_LINES:
            self._log.append(line)
        else:
            self.lost_lines += 1

    def snapshot(self, snapshot: ProgressSnapshot) -> None:
        """Rewrite ``progress.json`` soon; of several that wait, the latest is written."""
        self._snapshot = snapshot

    # --- the writer -------------------------------------------------------------------------------

    def give_up(self) -> StoreError:
        """Wait no longer for a disk that hangs: turn away everybody, and return what they are told."""
        self._refuse("it does not answer")
        self._writing.cancel()
        return StoreError(self._refusal)

    async def _run(self) -> None:
        """Write batches until closing, and then whatever is left, also when the run is cancelled."""
        try:
            with self._writing:
                is_last = False
                while not is_last:
                    with anyio.move_on_after(_IDLE_SECONDS):
                        await self._wanted.wait()
                    is_last = self._is_closing
                    await self._write_batch()
        finally:
            self._refuse("its writer has stopped")
            self._batch.done.set()  # for who came after the last batch had been taken

    async def _write_batch(self) -> None:
        batch, self._batch = self._batch, _Batch()
        self._wanted = anyio.Event()
        commits = [] if self._refusal else batch.commits
        lines = self._take_lines()
        try:
            if commits or lines:
                # Abandoned only by `give_up` and the deadline of the drain: nothing else cancels the scope.
                self.lost_lines += await self._thread.run(
                    partial(self._files.write, commits, lines or Lines())
                )
            batch.is_written = not self._refusal
            if self._files.evidence_error is not None:
                raise self._files.evidence_error
        except OSError as error:
            self._refuse(error.strerror or str(error))
        finally:
            batch.done.set()

    def _take_lines(self) -> Lines | None:
        events = [self._events.popleft() for _ in range(len(self._events))]
        log = [self._log.popleft() for _ in range(len(self._log))]
        snapshot, self._snapshot = self._snapshot, None
        return Lines(events=events, log=log, snapshot=snapshot) if events or log or snapshot else None

    def _refuse(self, reason: str) -> None:
        """Turn away every later commit; the first reason stands."""
        self._refusal = self._refusal or self._explain(reason)

    def _explain(self, reason: str) -> str:
        run_dir = self._files.paths.run_dir
        return (
            f"cannot write to {run_dir!r}: {reason}; everything acknowledged so far is kept: "
            f"mend it and continue with run_id={Path(run_dir).name!r}"
        )

    def _close(self) -> None:
        self._is_closing = True
        self._wanted.set()


@asynccontextmanager
async def open_store(
    run_dir: Path, *, scrubber: Scrubber, files: Files = SYSTEM_FILES
) -> AsyncIterator[RunStore]:
    """
    Open a run directory for writing; leaving the block writes everything that still waits.

    Args:
        files: The disk.

    Raises:
        StoreError: It cannot be opened.
    """
    thread = DaemonThread("agentcompass store")
    opened = await _open(thread, run_dir, scrubber=scrubber, files=files)
    writing = anyio.CancelScope(shield=True)
    store = RunStore(opened, thread, writing)
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(store._run)  # noqa: SLF001
            try:
                yield store
            except Exception as error:  # noqa: BLE001  # raised below: the group would wrap it
                failure = error
            finally:
                store._close()  # noqa: SLF001
                writing.deadline = anyio.current_time() + _PATIENCE_SECONDS
    finally:
        if not writing.cancelled_caught:  # else an abandoned thread may still use them
            opened.close()
        thread.stop()
    if failure is not None:
        raise failure


async def _open(thread: DaemonThread, run_dir: Path, *, scrubber: Scrubber, files: Files) -> RunFiles:
    try:
        with anyio.move_on_after(_PATIENCE_SECONDS, shield=True):
            return await thread.run(partial(RunFiles, run_dir, scrubber=scrubber, files=files))
        reason = "it does not answer"
    except OSError as error:
        reason = error.strerror or str(error)
    thread.stop()
    raise StoreError(f"cannot write to {str(run_dir)!r}: {reason}")
