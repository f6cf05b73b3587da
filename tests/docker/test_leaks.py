"""Nothing stays behind: after cancellation at any moment, after SIGKILL, and nobody else's is touched."""

from __future__ import annotations

import asyncio
import gc
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import anyio
import pytest
from aiodocker import Docker
from anyio import to_thread

from agentcompass.environments.docker import DockerEnvironment
from agentcompass.environments.docker.leftovers import list_resources
from agentcompass.environments.docker.owners import OWNER, RUN, TRIAL, this_process
from agentcompass.errors import SessionLostError

from .environments import RUN_ID, containers_of, docker_environment, plan

pytestmark = pytest.mark.anyio


@pytest.fixture
async def environment(busybox_image: str) -> AsyncIterator[DockerEnvironment]:
    async with docker_environment(image=busybox_image) as opened:
        yield opened


async def test_cancelled_first_opening_leaves_no_connection(busybox_image: str) -> None:
    """Whenever it is cut off while it connects to the daemon, the client is closed."""
    for microseconds in range(0, 15_000, 150):
        async with docker_environment(image=busybox_image) as environment:
            with anyio.move_on_after(microseconds / 1e6):
                async with environment.open(plan()):
                    pass
    gc.collect()  # an open client would complain now


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("part", range(2))
async def test_cancelled_at_any_moment_leaves_nothing(
    environment: DockerEnvironment, docker_client: Docker, part: int
) -> None:
    """During image lookup, creation, start, a command and removal."""
    run_id = f"{RUN_ID}-cancelled-{part}"
    for milliseconds in range(part * 10, 480, 20):
        with anyio.move_on_after(milliseconds / 1000):
            async with environment.open(plan(run_id)) as session:
                await session.exec("sleep 1")
        assert await containers_of(docker_client, run_id) == []


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_asyncios_own_cancellation_leaves_nothing(
    environment: DockerEnvironment, docker_client: Docker
) -> None:
    """An asyncio application that cancels the task by its own means leaves as little."""

    async def hold() -> None:
        async with environment.open(plan(f"{RUN_ID}-asyncio")) as session:
            await session.exec("sleep 1")

    for milliseconds in range(5, 480, 40):
        task = asyncio.create_task(hold())
        await anyio.sleep(milliseconds / 1000)
        task.cancel()
        await asyncio.wait([task])
        assert await containers_of(docker_client, f"{RUN_ID}-asyncio") == []


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.timeout(120)
async def test_many_at_once_with_random_cancellations(
    environment: DockerEnvironment, docker_client: Docker
) -> None:
    """200 sessions, 24 at once: none is left, and those that were let be gave their answer."""
    random_numbers = random.Random(7)
    limiter = anyio.CapacityLimiter(24)
    answers: list[str] = []
    planned = [random_numbers.choice([None, random_numbers.uniform(0, 1.5)]) for _ in range(200)]

    async def trial(number: int, seconds: float | None) -> None:
        async with limiter:
            with anyio.move_on_after(seconds):
                async with environment.open(plan(f"{RUN_ID}-stress")) as session:
                    answers.append((await session.exec(f"echo {number}")).stdout)

    async with anyio.create_task_group() as trials:
        for number, seconds in enumerate(planned):
            trials.start_soon(trial, number, seconds)
    undisturbed = {f"{number}\n" for number, seconds in enumerate(planned) if seconds is None}
    assert undisturbed <= set(answers)
    assert len(answers) == len(set(answers))
    assert await containers_of(docker_client, f"{RUN_ID}-stress") == []


async def test_cancelled_command_does_not_run_on(environment: DockerEnvironment) -> None:
    """A command is never started for an engine that no longer waits for it."""
    async with environment.open(plan()) as session:
        for milliseconds in range(0, 80, 4):
            with anyio.move_on_after(milliseconds / 1000):
                await session.exec(f"touch ran-{milliseconds}; setsid sleep 4242 & sleep 4242")
        assert "4242" not in (await session.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout


_RUNNER = """
import sys, anyio
from agentcompass.environments.docker import DockerEnvironment, DockerParams
from agentcompass.protocols import SessionPlan
from agentcompass.spec.network import NetworkPolicy

async def main():
    environment = DockerEnvironment(DockerParams(image=sys.argv[1]))
    network = NetworkPolicy(mode="allowlist", hosts=("example.org",))
    async with environment.open(SessionPlan(run_id=sys.argv[2], label="t", network=network)) as session:
        await session.exec("sleep 4343 &")
        print("open", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


def _start_runner(image: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", _RUNNER, image, f"{RUN_ID}-killed"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    if process.stdout.readline() != b"open\n":
        _end(process, signal.SIGKILL)
        pytest.fail("the engine could not open its session")
    return process


def _end(process: subprocess.Popen[bytes], number: int) -> None:
    with process:
        process.send_signal(number)
        process.wait(20)


async def test_next_start_removes_what_a_killed_engine_left(
    environment: DockerEnvironment, busybox_image: str, docker_client: Docker
) -> None:
    """While it lives its container is left alone; after SIGKILL container and network go."""
    process = await to_thread.run_sync(_start_runner, busybox_image)
    try:
        await environment.check([])
        assert len(await containers_of(docker_client, f"{RUN_ID}-killed")) == 1
    finally:
        await to_thread.run_sync(_end, process, signal.SIGKILL)
    assert len(await containers_of(docker_client, f"{RUN_ID}-killed")) == 1
    await environment.check([])
    left = [item for item in await list_resources(docker_client) if item.owner.pid == process.pid]
    assert left == []


async def test_what_is_not_certainly_dead_is_left_alone(
    environment: DockerEnvironment, busybox_image: str, docker_client: Docker
) -> None:
    """Containers without our labels, of other machines and with unreadable labels survive a start."""
    mine = await to_thread.run_sync(this_process)
    elsewhere = f"other-host/{mine.pid}/1/{mine.space}"
    labels: list[dict[str, str]] = [
        {},
        {RUN: "foreign", TRIAL: "t"},
        {RUN: "foreign", TRIAL: "t", OWNER: elsewhere},
        {RUN: "foreign", TRIAL: "t", OWNER: "nonsense"},
    ]
    created = [
        await docker_client.containers.create({"Image": busybox_image, "Cmd": ["true"], "Labels": some})
        for some in labels
    ]
    try:
        await environment.check([])
        for container in created:
            assert (await container.show())["State"]["Status"] == "created"
    finally:
        for container in created:
            await container.delete(force=True)


async def test_container_removed_by_somebody_else_is_no_error_at_the_end(
    environment: DockerEnvironment, docker_client: Docker
) -> None:
    """Closing what is gone already is fine, and so is a removal that is under way."""
    async with environment.open(plan()) as session:
        [name] = await containers_of(docker_client)
        await docker_client.containers.container(name).delete(force=True)
        with pytest.raises(SessionLostError):
            await session.exec("true")
