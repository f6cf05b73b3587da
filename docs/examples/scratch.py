"""
An environment: sessions are temporary directories, their commands processes of this machine.

It shows the session contract in a small form. The built-in ``local`` environment also finds processes that
leave their process group, limits resources, and cleans up after an engine that was killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import anyio
from anyio import to_thread
from anyio.abc import Process

from agentcompass import (
    DEFAULT_OUTPUT_BYTES,
    TIMEOUT_EXIT_CODE,
    ConfigError,
    ExecError,
    ExecResult,
    NetworkPolicy,
    SessionFileNotFoundError,
    SessionLostError,
    SessionOpenError,
    SessionPlan,
    TransferError,
    environment,
)

T = TypeVar("T")


@environment("scratch")
class ScratchEnvironment:
    """Opens temporary directories."""

    async def check(self, networks: Sequence[NetworkPolicy]) -> None:
        """Insist on what every session will need, and on no network policy: it cannot enforce any."""
        if any(policy.mode != "public" for policy in networks):
            raise ConfigError("environment 'scratch' cannot enforce network policies")
        if not os.access(tempfile.gettempdir(), os.W_OK):
            raise ConfigError(f"{tempfile.gettempdir()!r} is not writable; set TMPDIR")

    @asynccontextmanager
    async def open(self, plan: SessionPlan) -> AsyncIterator[ScratchSession]:
        """Make a directory; remove it at the end, whatever happened."""
        try:
            root = await to_thread.run_sync(lambda: Path(tempfile.mkdtemp(prefix="scratch-")).resolve())
        except OSError as error:
            raise SessionOpenError(f"no directory could be made: {error.strerror}") from error
        session = ScratchSession(root, plan)
        try:
            await to_thread.run_sync(lambda: Path(session.workdir).mkdir(parents=True))
            yield session
        finally:
            session.kill_all()
            with anyio.move_on_after(30, shield=True):  # clean-up survives a cancellation, but not for ever
                if not plan.keep:
                    await to_thread.run_sync(lambda: shutil.rmtree(root, ignore_errors=True))


class ScratchSession:
    """A temporary directory, and the processes that were started in it."""

    def __init__(self, root: Path, plan: SessionPlan) -> None:
        self._root = root
        self._plan = plan
        self._groups: list[int] = []

    @property
    def workdir(self) -> str:
        """Where commands start."""
        return str(self._root / "work" / self._plan.workdir)

    def kill_all(self) -> None:
        """Kill what is left of the commands."""
        for group in self._groups:
            _kill_group(group)

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
        """Run a command. Its streams are files, so a child that keeps them open keeps nobody waiting."""
        self._check_alive()
        streams = Path(await to_thread.run_sync(lambda: tempfile.mkdtemp(dir=self._root, prefix="exec-")))
        await to_thread.run_sync((streams / "in").write_bytes, stdin)
        arguments = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        directory = self._inside(cwd or ".")
        if not await to_thread.run_sync(directory.is_dir):
            raise ExecError(f"cannot start {arguments[0]!r}: there is no directory {cwd!r}")
        variables = {"PATH": os.environ.get("PATH", os.defpath), **self._plan.env, **(env or {})}
        began = time.monotonic()
        try:
            process = await _start(arguments, directory, variables, streams)
        except FileNotFoundError:
            return ExecResult(exit_code=127, stderr_bytes=f"{arguments[0]}: not found\n".encode())
        except PermissionError:
            return ExecResult(exit_code=126, stderr_bytes=f"{arguments[0]}: not executable\n".encode())
        self._groups.append(process.pid)
        timed_out = await _wait(process, timeout_seconds)
        out, out_dropped = await to_thread.run_sync(_head_and_tail, streams / "out", max_output_bytes)
        err, err_dropped = await to_thread.run_sync(_head_and_tail, streams / "err", max_output_bytes)
        return ExecResult(
            exit_code=TIMEOUT_EXIT_CODE if timed_out else _exit_code(process),
            stdout_bytes=out,
            stderr_bytes=err,
            stdout_dropped=out_dropped,
            stderr_dropped=err_dropped,
            timed_out=timed_out,
            duration_seconds=time.monotonic() - began,
        )

    async def read(self, path: str, *, max_bytes: int = DEFAULT_OUTPUT_BYTES) -> bytes:
        """Read a file."""

        def read() -> bytes:
            file = self._existing(path)
            if file.stat().st_size > max_bytes:
                raise TransferError(path, f"it is larger than {max_bytes} bytes")
            return file.read_bytes()

        return await self._transfer(path, read)

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a file."""

        def write() -> None:
            file = self._inside(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            file.chmod(0o755 if executable else 0o644)

        await self._transfer(path, write)

    async def upload(self, source: Path, target: str) -> None:
        """Copy a file or a tree into the session."""
        await self._transfer(target, lambda: _copy(source, self._inside(target)))

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or a tree out of the session."""
        await self._transfer(source, lambda: _copy(self._existing(source), target))

    async def _transfer(self, path: str, work: Callable[[], T]) -> T:
        self._check_alive()
        try:
            return await to_thread.run_sync(work)
        except OSError as error:
            raise TransferError(path, error.strerror or str(error)) from error

    def _check_alive(self) -> None:
        if not self._root.is_dir():
            raise SessionLostError("its directory was removed")

    def _inside(self, path: str) -> Path:
        resolved = (Path(self.workdir) / path).resolve()
        if not resolved.is_relative_to(self._root):
            raise TransferError(path, "it lies outside the session")
        return resolved

    def _existing(self, path: str) -> Path:
        resolved = self._inside(path)
        if not resolved.exists():
            raise SessionFileNotFoundError(path)
        return resolved


async def _start(
    arguments: list[str], directory: Path, variables: Mapping[str, str], streams: Path
) -> Process:
    with (
        (streams / "in").open("rb") as given,
        (streams / "out").open("wb") as out,
        (streams / "err").open("wb") as err,
    ):
        return await anyio.open_process(
            arguments,
            cwd=directory,
            env=variables,
            stdin=given,
            stdout=out,
            stderr=err,
            start_new_session=True,  # a process group of its own: it can be killed as a whole
        )


async def _wait(process: Process, timeout_seconds: float | None) -> bool:
    """Wait for the exit; kill the whole group at the deadline or on a cancellation."""
    try:
        with anyio.move_on_after(timeout_seconds) as scope:
            await process.wait()
    finally:
        if process.returncode is None:
            _kill_group(process.pid)
            with anyio.CancelScope(shield=True):
                await process.wait()
    return scope.cancelled_caught


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _exit_code(process: Process) -> int:
    code = process.returncode or 0
    return code if code >= 0 else 128 - code


def _head_and_tail(path: Path, limit: int) -> tuple[bytes, int]:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= limit:
            return file.read(limit), 0
        half = limit // 2
        head = file.read(half)
        file.seek(size - half)
        return head + file.read(half), size - 2 * half


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)
