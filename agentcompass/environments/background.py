"""Run a task for as long as a block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


@asynccontextmanager
async def background(work: Callable[[T], Coroutine[Any, Any, None]], argument: T) -> AsyncIterator[None]:
    """Run ``work(argument)`` until the block ends; an exception of the block is raised as it is."""
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(work, argument)
        try:
            yield
        except Exception as error:  # noqa: BLE001  # raised below: the task group would wrap it
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
