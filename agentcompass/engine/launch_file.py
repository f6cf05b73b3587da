"""What became of a launch, on disk: one file in ``_launches`` of the results directory, kept up to date."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec
from anyio import to_thread

from ..clock import Clock, utc_text
from ..logs import current_log
from ..records import RunStatus
from ..store.encode import to_json
from ..store.files import Files, write_whole
from ..store.layout import slug
from ..store.scrub import Scrubber
from .result import RunResult, worst

FOLDER = "_launches"
"""No request can have this name: those of their folders begin with a letter or a digit."""
_PAUSE_SECONDS = 1.0
_WRITE_SECONDS = 5.0
"""A disk that takes longer hangs; no launch waits for this file."""


class RequestEntry(msgspec.Struct, frozen=True, kw_only=True):
    """
    A request of a launch.

    Args:
        status: ``running`` (or waiting to), or how it ended.
        run_dir: Empty if it never had one.
    """

    name: str
    status: str
    run_dir: str = ""
    error: str = ""


class LaunchEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A launch; ``status`` is ``running`` until it has ended in order."""

    name: str
    status: str
    started_at: str
    updated_at: str
    requests: list[RequestEntry]


class LaunchFile:
    """
    Writes the file at the start, at most once a second as requests end, and at the end.

    Args:
        requests: Their names; without any, nothing is written at all.
    """

    def __init__(
        self,
        results_dir: Path,
        *,
        name: str,
        requests: Sequence[str],
        scrubber: Scrubber,
        clock: Clock,
        files: Files,
    ) -> None:
        self._folder = results_dir / FOLDER
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(clock.wall()))
        self._path = self._folder / f"{stamp}-{slug(name or 'launch')}-{secrets.token_hex(3)}.json"
        self._name = name
        self._requests = requests
        self._ended: dict[str, RequestEntry] = {}
        self._scrubber = scrubber
        self._clock = clock
        self._files = files
        self._started_at = utc_text(clock.wall())
        self._written = float("-inf")

    async def start(self) -> None:
        """Write the file for the first time."""
        await self._write("running")

    async def note(self, result: RunResult) -> None:
        """Take in what became of a request."""
        self._ended[result.name] = RequestEntry(
            name=result.name,
            status=result.status,
            run_dir=result.paths.run_dir if result.paths else "",
            error=str(result.error) if result.error else "",
        )
        if self._clock.now() - self._written >= _PAUSE_SECONDS:
            await self._write("running")

    async def end(self) -> None:
        """Write the file for the last time; requests that have no result by now are cancelled."""
        for name in self._requests:
            if name not in self._ended:
                self._ended[name] = RequestEntry(name=name, status=RunStatus.CANCELLED)
        await self._write(worst([RunStatus(entry.status) for entry in self._ended.values()]))

    async def _write(self, status: str) -> None:
        if not self._requests:
            return
        self._written = self._clock.now()
        entry = LaunchEntry(
            name=self._name,
            status=status,
            started_at=self._started_at,
            updated_at=utc_text(self._clock.wall()),
            requests=[
                self._ended.get(name, RequestEntry(name=name, status="running")) for name in self._requests
            ],
        )
        data = self._scrubber.scrub_json(to_json(entry))
        with anyio.move_on_after(_WRITE_SECONDS, shield=True):
            await to_thread.run_sync(self._put, data, abandon_on_cancel=True)

    def _put(self, data: bytes) -> None:
        """Write the file; the runs' own files matter more, so that a failure here is told and no more."""
        try:
            self._files.make_dirs(str(self._folder))
            write_whole(self._files, str(self._path), data, partial=f"{self._path}.{os.getpid()}.partial")
        except OSError as error:
            current_log().warning("launch_file_not_written", path=str(self._path), error=str(error))
