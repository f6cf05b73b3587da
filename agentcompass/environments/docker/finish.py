"""Let a short step that must not be torn apart finish although it is cancelled, within a limit of time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

_GRACE_SECONDS = 10.0

T = TypeVar("T")


async def finish(work: Callable[[], Awaitable[T]], *, hurry: Callable[[], None] | None = None) -> T:
    """
    Await ``work()`` to its end even if this task is cancelled, by asyncio's own means too.

    Once that has happened the work has ten more seconds; then the cancellation takes effect.

    Args:
        hurry: Called when a cancellation is pending.
    """
    results: list[T] = []
    failures: list[Exception] = []
    scope = anyio.CancelScope(shield=True)
    ended = anyio.Event()

    async def run() -> None:
        with scope:
            try:
                results.append(await work())
            except Exception as error:  # noqa: BLE001  # raised below: the task group would wrap it
                failures.append(error)
        ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        try:
            await ended.wait()
        except anyio.get_cancelled_exc_class():
            scope.deadline = anyio.current_time() + _GRACE_SECONDS
            if hurry is not None:
                hurry()
            raise
    if failures:
        raise failures[0]
    return results[0]
