"""
One thread for work that may block for ever: a paused terminal, a callback that never returns, a dead disk.

Unlike a worker thread of the event loop it is a daemon, so that abandoning it never delays the exit of the
process, and its jobs run in order.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

from anyio import Event, from_thread
from anyio.lowlevel import EventLoopToken, current_token

T = TypeVar("T")


class DaemonThread:
    """Run functions one after the other in a thread that starts with the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: Thread | None = None

    async def run(self, function: Callable[[], T]) -> T:
        """Run a function and wait for it; a cancelled wait leaves it running."""
        if self._thread is None:
            self._thread = Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        job = _Job(function, current_token(), copy_context())
        self._jobs.put(job.carry_out)
        await job.done.wait()
        return job.result()

    def stop(self) -> None:
        """Let the thread end after its last job, without waiting for it."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class _Job(Generic[T]):
    def __init__(self, function: Callable[[], T], token: EventLoopToken, context: Context) -> None:
        self.done = Event()
        self._function = function
        self._token = token
        self._context = context
        self._result: list[T] = []
        self._error: BaseException | None = None

    def carry_out(self) -> None:
        try:
            self._result.append(self._context.run(self._function))
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting task
            self._error = error
        with suppress(RuntimeError):  # the loop has ended; nobody waits any more
            from_thread.run_sync(self.done.set, token=self._token)

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result[0]
