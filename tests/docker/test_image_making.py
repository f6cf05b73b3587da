"""The images that tests make are what the tests rely on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from aiodocker import Docker

from .environments import docker_environment, plan
from .images import busybox_archive, imported, is_static

pytestmark = pytest.mark.anyio


def test_static_programs_are_told_from_others() -> None:
    """Debian's plain busybox package needs libraries, so it cannot run alone in a container."""
    assert not is_static(Path(sys.executable).read_bytes())
    assert not is_static(b"#!/bin/sh\n")
    assert not is_static(b"")


async def test_image_is_imported_once(busybox_image: str, docker_client: Docker) -> None:
    """The same content keeps its name and its image."""
    before = await docker_client.images.inspect(busybox_image)
    assert await imported(docker_client, "busybox", busybox_archive()) == busybox_image
    assert (await docker_client.images.inspect(busybox_image))["Id"] == before["Id"]


async def test_image_has_no_more_than_it_should(busybox_image: str) -> None:
    """Sessions are tested without bash, ps and the like, and with a user who is not root."""
    look = "for name in bash ps pgrep pkill killall timeout setsid kill; do command -v $name; done; id -u"
    async with (
        docker_environment(image=busybox_image, user="agent") as environment,
        environment.open(plan()) as session,
    ):
        found = await session.exec(look)
    assert found.stdout.split() == ["setsid", "kill", "1000"]
