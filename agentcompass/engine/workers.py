"""
Run blocking or CPU-heavy component code in killable worker processes.

A thread would not do: one catastrophic regular expression holds the interpreter lock, stalls every other
thread and cannot be stopped.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from .. import errors
from ..errors import CompassError, ConfigError
from .worker_main import ERROR, HEADER, ITEM

T = TypeVar("T")

_KILL_GRACE_SECONDS = 5.0


class WorkerCallError(CompassError):
    """
    Code in a worker process raised, or the worker died.

    Args:
        error: Class name of what was raised there.
        remote_traceback: The traceback as text.
    """

    def __init__(self, error: str, message: str, remote_traceback: str = "") -> None:
        super().__init__(f"{error}: {message}" if message else error)
        self.error = error
        self.remote_traceback = remote_traceback


class WorkerPool:
    """At most ``size`` worker processes, started on demand and used again; made by ``open_workers``."""

    def __init__(self, size: int) -> None:
        self._limiter = anyio.CapacityLimiter(size)
        self._idle: list[_Worker] = []

    async def run(self, function: Callable[..., T], *arguments: object, timeout_seconds: float) -> T:
        """
        Call a function in a worker process; cancelling kills the process.

        The deadline starts when a process is free, so that waiting for one is never held against the call.

        Raises:
            TimeoutError: The deadline hit; the process is dead.
            ConfigError: The function raised it, or cannot be sent to another process.
            WorkerCallError: The function raised anything else, or the process died.
        """
        results: list[T] = []
        await self.each(results.append, _once, function, arguments, timeout_seconds=timeout_seconds)
        return results[0]

    async def each(
        self,
        receive: Callable[[T], object],
        function: Callable[..., Iterator[T]],
        *arguments: object,
        timeout_seconds: float,
    ) -> None:
        """Call a function that yields in a worker process; ``receive`` gets every item as it comes."""
        request = _dump(function, arguments)
        async with self._limiter:
            worker = self._idle.pop() if self._idle else await _Worker.start()
            try:
                with anyio.fail_after(timeout_seconds):
                    await worker.call(request, receive)
            finally:
                if worker.in_call:
                    await worker.kill()
                else:
                    self._idle.append(worker)

    async def close(self) -> None:
        """Kill the idle workers; calls have ended by now."""
        while self._idle:
            await self._idle.pop().kill()


@asynccontextmanager
async def open_workers(size: int | None = None) -> AsyncIterator[WorkerPool]:
    """Provide a pool; leaving the block leaves no process behind."""
    pool = WorkerPool(size or os.cpu_count() or 1)
    try:
        yield pool
    finally:
        await pool.close()


class _Worker:
    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._requests = process.stdin
        self._replies = BufferedByteReceiveStream(process.stdout)
        self.in_call = False
        """Stays set when a call was cut short: the process is in an unknown state then."""

    @classmethod
    async def start(cls) -> _Worker:
        # A cancellation in the middle would lose track of a process that has started already.
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                [sys.executable, "-c", _BOOT, *(entry for entry in sys.path if entry)],
                stderr=None,
                start_new_session=True,  # keeps Ctrl-C in the terminal away from it
            )
        return cls(process)

    async def call(self, request: bytes, receive: Callable[[Any], object]) -> None:
        self.in_call = True
        try:
            await self._requests.send(HEADER.pack(b"c", len(request)) + request)
            while (frame := await self._receive_frame())[0] == ITEM:
                receive(pickle.loads(frame[1]))  # noqa: S301  # our own child
        except (anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError, OSError) as error:
            raise WorkerCallError("WorkerDied", "the worker process ended unexpectedly") from error
        self.in_call = False
        if frame[0] == ERROR:
            raise _translated(*pickle.loads(frame[1]))  # noqa: S301

    async def _receive_frame(self) -> tuple[bytes, bytes]:
        kind, size = HEADER.unpack(await self._replies.receive_exactly(HEADER.size))
        return kind, await self._replies.receive_exactly(size) if size else b""

    async def kill(self) -> None:
        with anyio.move_on_after(_KILL_GRACE_SECONDS, shield=True):
            if self._process.returncode is None:
                # Not Process.kill(): that may reap the child under asyncio's own watcher.
                with suppress(ProcessLookupError):
                    os.kill(self._process.pid, signal.SIGKILL)
            await self._process.aclose()


_BOOT = """import sys
sys.path[:0] = [entry for entry in sys.argv[1:] if entry not in sys.path]
del sys.argv[1:]
from agentcompass.engine.worker_main import main
main()"""


def _once(function: Callable[..., T], arguments: tuple[object, ...]) -> Iterator[T]:
    yield function(*arguments)


def _dump(function: Callable[..., object], arguments: tuple[object, ...]) -> bytes:
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps((function, arguments)))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        owner = getattr(function, "__self__", function)
        raise ConfigError(
            f"{type(owner).__qualname__} cannot be sent to a worker process: {error}; "
            "open files, locks and connections inside the method instead of keeping them"
        ) from error


def _translated(name: str, message: str, remote_traceback: str) -> CompassError:
    """Rebuild our own plain errors, so that a component may raise them from a worker."""
    if name in {"ConfigError", "VerifierError", "HarnessError"}:
        plain: type[CompassError] = getattr(errors, name)
        return plain(message)
    return WorkerCallError(name, message, remote_traceback)
