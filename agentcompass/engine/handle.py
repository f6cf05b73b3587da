"""A launch with a handle on it: look into it, steer it, and have its result in the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio import to_thread

from ..spec.orchestration import OrchestrationSpec
from .configuration import configured
from .control import Controls
from .orchestration import resolve_all, run_orchestration
from .result import OrchestrationResult
from .stop import StopControl


class LaunchHandle(Controls):
    """A running launch; made by ``start_launch``."""

    def __init__(self) -> None:
        super().__init__()
        self._result: OrchestrationResult | None = None
        self._ended = anyio.Event()

    @property
    def result(self) -> OrchestrationResult | None:
        """What became of the launch; None while it runs."""
        return self._result

    async def wait(self) -> OrchestrationResult:
        """Wait for the end of the launch and return its result."""
        await self._ended.wait()
        assert self._result is not None  # else the block of `start_launch` has been cancelled
        return self._result

    def _end(self, result: OrchestrationResult) -> None:
        self._result = result
        self._ended.set()


@asynccontextmanager
async def start_launch(spec: OrchestrationSpec) -> AsyncIterator[LaunchHandle]:
    """
    Run an ordered set of named requests while the block runs, with a handle to look into it and steer it.

    Leaving the block waits for the end. An error in the block or its cancellation stops the launch in order.

    Raises:
        ConfigError: The specification is wrong; nothing was run.
    """
    spec = await to_thread.run_sync(configured, spec)
    requests = await to_thread.run_sync(resolve_all, spec)
    handle = LaunchHandle()
    failure: Exception | None = None

    async def run() -> None:
        handle._end(await run_orchestration(spec, requests, stop=StopControl(), controls=handle))  # noqa: SLF001

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await handle.wait_attached()
        try:
            yield handle
        except Exception as error:  # noqa: BLE001  # raised below: the task group would wrap it
            failure = error
            group.cancel_scope.cancel()
    if failure is not None:
        raise failure
