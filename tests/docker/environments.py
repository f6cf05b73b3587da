"""Docker environments for tests."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiodocker import Docker
from anyio import to_thread

from agentcompass.environments.docker import DockerEnvironment, DockerParams
from agentcompass.environments.docker.owners import RUN
from agentcompass.protocols import ImageBuild, SessionPlan
from agentcompass.spec.network import PUBLIC, NetworkPolicy

RUN_ID = f"test-run-{os.getpid()}"
"""Tests of several processes share a daemon."""


@asynccontextmanager
async def docker_environment(**params: Any) -> AsyncIterator[DockerEnvironment]:
    """Hold an environment and what its sessions share."""
    environment = await to_thread.run_sync(DockerEnvironment, DockerParams(**params))
    try:
        yield environment
    finally:
        await environment.aclose()


def plan(
    run_id: str = RUN_ID,
    *,
    network: NetworkPolicy = PUBLIC,
    build: ImageBuild | None = None,
    keep: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> SessionPlan:
    """Return what a session is opened for."""
    return SessionPlan(run_id=run_id, label="task 1", network=network, build=build, keep=keep, note=note)


async def containers_of(docker: Docker, run_id: str = RUN_ID) -> list[str]:
    """Return the names of a run's containers."""
    filters = f'{{"label": ["{RUN}={run_id}"]}}'
    found = await docker.containers.list(all=True, filters=filters)
    return [container["Names"][0].lstrip("/") for container in found]
