"""Let a short step that must not be torn apart finish although it is cancelled, within a limit of time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel

_GRACE_SECONDS = 10.0


@asynccontextmanager
async def finish_if_cancelled(hurry: Callable[[], None] | None = None) -> AsyncIterator[None]:
    """
    Shield the block; once a cancellation is pending it has ten more seconds, then it is cancelled.

    An exception of the block is raised as it is. A pending cancellation takes effect after the block.

    Args:
        hurry: Called when a cancellation is pending.
    """
    failure: BaseException | None = None

    async def notice_cancellation(scope: anyio.CancelScope) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            if hurry is not None:
                hurry()
            scope.deadline = anyio.current_time() + _GRACE_SECONDS

    async with anyio.create_task_group() as watch:
        with anyio.CancelScope(shield=True) as scope:
            watch.start_soon(notice_cancellation, scope)
            try:
                yield
            except Exception as error:  # noqa: BLE001  # raised below: the task group would wrap it
                failure = error
        watch.cancel_scope.cancel()
    if failure is not None:
        raise failure
    await anyio.lowlevel.checkpoint_if_cancelled()
