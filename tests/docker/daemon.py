"""Whether there is a daemon to test with, and what this process has on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache

import anyio
from aiodocker import Docker

from agentcompass.environments.docker.daemon import Daemon
from agentcompass.environments.docker.leftovers import list_resources
from agentcompass.environments.docker.owners import Owner, this_process
from agentcompass.errors import ConfigError

from .images import busybox_archive, imported


@asynccontextmanager
async def connected() -> AsyncIterator[Docker]:
    """Hold a client of the machine's daemon."""
    daemon = await Daemon.connect("")
    try:
        yield daemon.docker
    finally:
        await daemon.aclose()


@cache
def reason_to_skip() -> str:
    """Say why Docker tests cannot run here; empty if they can."""
    try:
        anyio.run(_touch)
    except ConfigError as error:
        return str(error)
    return ""


async def _touch() -> None:
    async with connected():
        pass


@cache
def busybox_image() -> str:
    """Return the name of an image with busybox only; blocks."""
    archive = busybox_archive()

    async def make() -> str:
        async with connected() as docker:
            return await imported(docker, "busybox", archive)

    return anyio.run(make)


def my_resources() -> set[str]:
    """Return the names of containers and networks that this process has on the daemon; blocks."""
    me = this_process()
    return _resources(lambda owner: owner == me)


def resources_of(pid: int) -> set[str]:
    """Return those of a process of that number, also one that has ended; blocks."""
    return _resources(lambda owner: owner.pid == pid)


def _resources(is_wanted: Callable[[Owner], bool]) -> set[str]:
    async def find() -> set[str]:
        async with connected() as docker:
            return {item.name for item in await list_resources(docker) if is_wanted(item.owner)}

    return anyio.run(find)
