"""Images are pulled or built once, patiently, and never again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from aiodocker import Docker, DockerError

from agentcompass.environments.docker import images as module
from agentcompass.errors import SessionOpenError
from agentcompass.protocols import ImageBuild

from .environments import docker_environment, plan
from .images import busybox_archive
from .registry import Registry, serving

pytestmark = [pytest.mark.anyio, pytest.mark.once]

_CONTEXT = "agentcompass-test.context"
"""The label of images that tests build."""


@pytest.fixture
async def pulled(registry: Registry, docker_client: Docker) -> AsyncIterator[Registry]:
    """Remove the registry's image afterwards."""
    yield registry
    with suppress(DockerError):
        await docker_client.images.delete(registry.image, force=True)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_SECONDS", 0.001)


async def test_one_pull_however_many_wait(pulled: Registry) -> None:
    """Ten sessions at once, then one more of another environment: the registry is asked once."""
    async with docker_environment(image=pulled.image) as environment:

        async def use() -> None:
            async with environment.open(plan()) as session:
                assert (await session.exec("echo ran")).stdout == "ran\n"

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(use)
    async with docker_environment(image=pulled.image) as environment, environment.open(plan()):
        pass
    assert pulled.requests["manifest"] <= 2  # the daemon itself asks for the head first
    assert pulled.requests["blob"] == 2


async def test_cancelled_pull_is_taken_over_by_the_next(pulled: Registry) -> None:
    """The one who pulls gives up; the one who waits gets the image all the same."""
    pulled.may_answer.clear()
    async with docker_environment(image=pulled.image) as environment:
        finished = anyio.Event()

        async def patient() -> None:
            async with environment.open(plan()):
                finished.set()

        async def impatient(scope: anyio.CancelScope) -> None:
            with scope:
                async with environment.open(plan()):
                    pass

        scope = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(impatient, scope)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(patient)
            while not pulled.requests["blob"]:  # noqa: ASYNC110  # the server is in another thread
                await anyio.sleep(0.01)
            scope.cancel()
            pulled.may_answer.set()
    assert finished.is_set()


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_registry_that_fails_at_first(pulled: Registry, status: int) -> None:
    """The pull is tried again."""
    pulled.failures[:] = [status] * 3
    async with docker_environment(image=pulled.image) as environment, environment.open(plan()) as session:
        assert (await session.exec("true")).exit_code == 0


async def test_registry_that_goes_on_failing(pulled: Registry) -> None:
    """After some attempts the error names the image, and another trial may succeed."""
    pulled.failures[:] = [500] * 100
    async with docker_environment(image=pulled.image) as environment:
        with pytest.raises(SessionOpenError, match=f"{pulled.image}.*could not be pulled") as caught:
            async with environment.open(plan()):
                pass
    assert caught.value.retryable


async def test_image_that_does_not_exist(registry: Registry) -> None:
    """The error names image and platform, and says what the registry said."""
    registry.failures[:] = [404] * 100
    async with docker_environment(image=registry.image, platform="linux/amd64") as environment:
        with pytest.raises(SessionOpenError, match=f"{registry.image}' for linux/amd64.*manifest unknown"):
            async with environment.open(plan()):
                pass


async def test_registry_that_wants_a_login(registry: Registry) -> None:
    """The error says what the registry said, and that a login may be missing."""
    registry.failures[:] = [401] * 100
    async with docker_environment(image=registry.image) as environment:
        with pytest.raises(SessionOpenError, match=r"unauthorized.*does it need a login"):
            async with environment.open(plan()):
                pass


async def test_pull_never(registry: Registry) -> None:
    """Nothing is asked of a registry."""
    async with docker_environment(image=registry.image, pull="never") as environment:
        with pytest.raises(SessionOpenError, match="pull is 'never'"):
            async with environment.open(plan()):
                pass
    assert not registry.requests


async def test_image_removed_between_two_sessions(pulled: Registry, docker_client: Docker) -> None:
    """The trial fails once and says so; the next one pulls it again."""
    async with docker_environment(image=pulled.image) as environment:
        async with environment.open(plan()):
            pass
        await docker_client.images.delete(pulled.image, force=True)
        with pytest.raises(SessionOpenError, match="No such image"):
            async with environment.open(plan()):
                pass
        async with environment.open(plan()):
            pass


async def test_full_disk_evicts_only_what_the_run_has_brought(
    pulled: Registry, docker_client: Docker, busybox_image: str
) -> None:
    """Not what is in use, and nothing of anybody else's; when that is not enough, it says so."""
    enough, too_much = 0, 10**9
    with serving(busybox_archive()) as other:
        async with docker_environment(min_free_mb=enough) as environment:
            guard = (await environment._connected()).images._disk

            async def use(image: str) -> None:
                async with environment.open(replace(plan(), image=image)) as session:
                    assert (await session.exec("true")).exit_code == 0

            await use(busybox_image)
            async with environment.open(replace(plan(), image=pulled.image)):
                guard._min_free_mb = too_much
                with pytest.raises(SessionOpenError, match="min_free_mb") as caught:
                    await use(other.image)
                assert caught.value.retryable
                await docker_client.images.inspect(pulled.image)
            with pytest.raises(SessionOpenError, match="min_free_mb"):
                await use(other.image)
            with pytest.raises(DockerError):
                await docker_client.images.inspect(pulled.image)
            await docker_client.images.inspect(busybox_image)
            assert other.requests["manifest"] == 0


# --- building ---------------------------------------------------------------------------------------


@pytest.fixture
async def context(tmp_path: Path, busybox_image: str, docker_client: Docker) -> AsyncIterator[Path]:
    """Return a context; what is built of it goes afterwards."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "tool").write_text("#!/bin/sh\necho built\n")
    (tmp_path / "files" / "tool").chmod(0o755)
    (tmp_path / "Dockerfile").write_text(
        f"FROM {busybox_image}\nLABEL {_CONTEXT}={tmp_path}\nARG WORD=none\n"
        "COPY files /opt\nRUN echo $WORD >/word\nWORKDIR /built\n"
    )
    yield tmp_path
    for name in await _built_of(tmp_path, docker_client):
        await docker_client.images.delete(name)


async def _built_of(context: Path, docker: Docker) -> list[str]:
    """Return the names of images built of a context; other processes build at the same time."""
    found = await docker.images.list(filters={"label": [f"{_CONTEXT}={context}"]})
    return [name for image in found for name in image["RepoTags"] or []]


async def test_build_once_and_again_only_after_a_change(context: Path, docker_client: Docker) -> None:
    """Five at once make one image, a second environment none, a changed file another one."""
    build = ImageBuild(context=context, args={"WORD": str(context)})
    outputs: list[str] = []

    async def use() -> None:
        async with docker_environment() as environment, environment.open(plan(build=build)) as session:
            outputs.append((await session.exec("/opt/tool; cat /word; pwd")).stdout)

    async with docker_environment() as environment:

        async def share() -> None:
            async with environment.open(plan(build=build)) as session:
                outputs.append((await session.exec("/opt/tool; cat /word; pwd")).stdout)

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(share)
    await use()
    assert outputs == [f"built\n{context}\n/built\n"] * 6
    assert len(await _built_of(context, docker_client)) == 1
    (context / "files" / "tool").write_text("#!/bin/sh\necho changed\n")
    await use()
    assert outputs[-1].startswith("changed\n")
    assert len(await _built_of(context, docker_client)) == 2


async def test_build_that_fails_shows_the_end_of_its_log(context: Path, busybox_image: str) -> None:
    """It names the Dockerfile, and no other trial builds it again."""
    dockerfile = f"FROM {busybox_image}\nRUN echo before; echo reason >&2; exit 3\n"
    (context / "Dockerfile").write_text(dockerfile)
    async with docker_environment(build=context) as environment:
        with pytest.raises(SessionOpenError, match=r"(?s)Dockerfile.*code: 3.*reason") as caught:
            async with environment.open(plan()):
                pass
    assert not caught.value.retryable


async def test_cancelled_build_leaves_no_container(
    context: Path, busybox_image: str, docker_client: Docker
) -> None:
    """The daemon stops the step that is under way."""
    (context / "Dockerfile").write_text(f"FROM {busybox_image}\nRUN sleep 4545\n")
    async with docker_environment(build=context) as environment:
        with anyio.move_on_after(1) as scope:
            async with environment.open(plan()):
                pass
    assert scope.cancelled_caught
    with anyio.fail_after(10):
        while await _running(docker_client, "4545"):  # noqa: ASYNC110  # the daemon sets no events
            await anyio.sleep(0.05)


async def _running(docker: Docker, marker: str) -> bool:
    found = await docker.containers.list(all=True)
    return any(marker in container["Command"] for container in found)
