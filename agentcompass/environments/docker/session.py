"""One container as a session."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio import to_thread

from ...errors import ExecError, SessionFileNotFoundError, SessionLostError, TransferError
from ...protocols import DEFAULT_OUTPUT_BYTES, ExecResult
from ..places import real_path, source_on_host
from .daemon import FAILURES
from .exec import Commands
from .transfer import Transfers

_WRITE = """
set -e
[ -d "$1" ] && { echo "is a directory" >&2; exit 1; }
mkdir -p -- "${1%/*}/"
trap 'rm -f -- "$2"' EXIT
cat >"$2"
chmod "$3" "$2"
mv -f -- "$2" "$1"
"""
"""Renamed into place, so that nobody ever sees half of a file."""


class DockerSession:
    """
    A running container.

    Args:
        workdir: Where commands start, an absolute path.
    """

    def __init__(self, commands: Commands, transfers: Transfers, *, workdir: str) -> None:
        self._commands = commands
        self._transfers = transfers
        self._workdir = workdir
        self._lost = ""
        self._writes = 0
        self._copies = 0

    @property
    def workdir(self) -> str:
        """Absolute path where commands start."""
        return self._workdir

    def close(self) -> None:
        """Let no call use the container any more."""
        self._lost = self._lost or "closed"

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_seconds: float | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run a command; see ``Session.exec``."""
        self._check_open()
        try:
            return await self._commands.run(
                ["/bin/sh", "-c", command] if isinstance(command, str) else command,
                cwd=self._absolute(cwd or "."),
                env=env or {},
                stdin=stdin,
                timeout_seconds=timeout_seconds,
                max_output_bytes=max_output_bytes,
            )
        except SessionLostError as error:
            self._lost = self._lost or error.cause
            raise

    async def read(self, path: str, *, max_bytes: int = DEFAULT_OUTPUT_BYTES) -> bytes:
        """Read a file; see ``Session.read``."""
        async with self._transfer(path, must_exist=True) as full, self._utf8_name(full) as full:
            return await self._transfers.read(full, max_bytes=max_bytes)

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a file; see ``Session.write``. A symbolic link is replaced."""
        async with self._transfer(path) as full:
            self._writes += 1
            temporary = f"{posixpath.dirname(full)}/.agentcompass-{self._writes}"
            mode = "755" if executable else "644"
            arguments = ["/bin/sh", "-c", _WRITE, "sh", full, temporary, mode]
            result = await self._commands.run(arguments, cwd="/", env={}, stdin=data)
            if result.exit_code:
                raise TransferError(path, result.stderr.strip() or f"exit code {result.exit_code}")

    async def upload(self, source: Path, target: str) -> None:
        """Copy a file or a tree to ``target``, the name of the copy."""
        resolved = await to_thread.run_sync(source_on_host, source)
        async with self._transfer(target) as full:
            await self._transfers.upload(resolved, full)

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or a tree to ``target``, the name of the copy."""
        resolved = await to_thread.run_sync(real_path, target)
        async with self._transfer(source, must_exist=True) as full, self._utf8_name(full) as full:
            await self._transfers.download(full, resolved)

    def _check_open(self) -> None:
        if self._lost:
            raise SessionLostError(self._lost)

    def _absolute(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._workdir, path))

    @asynccontextmanager
    async def _transfer(self, path: str, *, must_exist: bool = False) -> AsyncIterator[str]:
        """Resolve a path of the session, and say in our terms what goes wrong with it."""
        self._check_open()
        if "\0" in path or not _can_be_written(path, errors="surrogateescape"):
            raise TransferError(path, "no file can have this name")
        full = self._absolute(path)
        try:
            await self._check_alive()
            yield full
        except ExecError as error:
            raise TransferError(path, str(error)) from error
        except FAILURES as error:
            await self._check_alive()
            if must_exist and not await self._exists(full):
                raise SessionFileNotFoundError(path) from error
            raise TransferError(path, str(error)) from error
        except OSError as error:
            raise TransferError(path, f"{error.strerror} ({error.filename})") from error

    @asynccontextmanager
    async def _utf8_name(self, full: str) -> AsyncIterator[str]:
        """Copy what has a name that is no UTF-8: the daemon cannot find that."""
        if _can_be_written(full, errors="strict"):
            yield full
            return
        self._copies += 1
        copy = f"/tmp/.agentcompass-copy-{self._copies}"  # noqa: S108  # in the container
        script = 'mkdir -p /tmp && cp -a -- "$1" "$2"'
        copied = await self._commands.run(
            ["/bin/sh", "-c", script, "sh", full, copy], cwd="/", env={}, as_root=True
        )
        if copied.exit_code and not await self._exists(full):
            raise SessionFileNotFoundError(full)
        try:
            yield copy
        finally:
            with anyio.CancelScope(shield=True):
                await self._commands.run(["rm", "-rf", "--", copy], cwd="/", env={}, as_root=True)

    async def _exists(self, full: str) -> bool:
        test = ["/bin/sh", "-c", '[ -e "$1" ] || [ -L "$1" ]', "sh", full]
        return (await self._commands.run(test, cwd="/", env={}, as_root=True)).exit_code == 0

    async def _check_alive(self) -> None:
        """A stopped container still gives its files; the session is over all the same."""
        self._lost = self._lost or await self._commands.cause_of_death()
        self._check_open()


def _can_be_written(path: str, *, errors: str) -> bool:
    try:
        path.encode("utf-8", errors)
    except UnicodeEncodeError:
        return False
    return True
