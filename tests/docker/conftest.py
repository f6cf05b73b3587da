"""Docker tests need a daemon and asyncio, and each leaves nothing behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiodocker import Docker

from .. import sandbox
from . import daemon
from .images import busybox_archive, imported, small_archive
from .registry import Registry, serving


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the daemon time on a busy machine."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(60))


@pytest.fixture
def anyio_backend() -> str:
    """aiodocker runs on asyncio only."""
    return "asyncio"


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    """Skip without a daemon; after the test no container or network of this process may be there."""
    if reason := daemon.reason_to_skip():
        sandbox.skip(reason)
    daemon.busybox_image()  # no fixture can make it once an event loop has been set up
    before = daemon.my_resources()
    yield
    assert daemon.my_resources() - before == set()


@pytest.fixture
async def docker_client() -> AsyncIterator[Docker]:
    async with daemon.connected() as client:
        yield client


@pytest.fixture
def busybox_image() -> str:
    """Return an image with busybox and the users root and agent."""
    return daemon.busybox_image()


@pytest.fixture
async def configured_image(docker_client: Docker) -> str:
    """Return an image with an entrypoint, a command, a directory, a variable and a user of its own."""
    changes = {
        "ENTRYPOINT": '["/bin/false"]',
        "CMD": '["argument"]',
        "WORKDIR": "/srv/app",
        "ENV": 'FROM_IMAGE="from the image"',
        "USER": "agent",
    }
    return await imported(docker_client, "configured", busybox_archive(), changes)


@pytest.fixture
async def empty_image(docker_client: Docker) -> str:
    """Return an image without any program."""
    return await imported(docker_client, "empty", small_archive())


@pytest.fixture
def registry() -> Iterator[Registry]:
    """Serve one image from a registry on this machine."""
    with serving(busybox_archive()) as started:
        yield started
