"""A machine that dies is a typed error with its cause at the next step, never plain output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from aiodocker import Docker
from aiodocker.containers import DockerContainer

from agentcompass.errors import SessionLostError
from agentcompass.protocols import Session

from .environments import containers_of, docker_environment, plan

pytestmark = pytest.mark.anyio

_KILL_ALL = "kill -9 -1; sleep 1"
_KILL_MAIN = "kill -9 $(cat /proc/1/task/1/children); sleep 10"


async def _the_container(docker: Docker) -> DockerContainer:
    [name] = await containers_of(docker)
    return docker.containers.container(name)


@pytest.mark.parametrize("command", [_KILL_ALL, _KILL_MAIN, "kill -TERM 1; sleep 10"])
async def test_agent_that_ends_its_own_machine(busybox_image: str, command: str) -> None:
    """Whatever it kills: within one step the session says that it is gone, and goes on saying so."""
    async with docker_environment(image=busybox_image) as environment, environment.open(plan()) as session:
        with pytest.raises(SessionLostError, match="main process ended"):
            await session.exec(command)
        with pytest.raises(SessionLostError, match="main process ended"):
            await session.exec("echo ok")


async def test_agent_that_removes_the_shell(busybox_image: str) -> None:
    """No later command "fails": there is no machine to run it any more."""
    async with docker_environment(image=busybox_image) as environment, environment.open(plan()) as session:
        await session.exec("rm -rf /bin")
        with pytest.raises(SessionLostError, match="/bin/sh"):
            await session.exec("echo ok")


async def test_out_of_memory_of_the_whole_machine(busybox_image: str) -> None:
    """When the kernel picks the main process, the cause says so."""
    async with (
        docker_environment(image=busybox_image, memory_mb=32) as environment,
        environment.open(plan()) as session,
    ):
        await session.exec(
            "for p in $(cat /proc/1/task/1/children); do echo 1000 >/proc/$p/oom_score_adj; done"
        )
        with pytest.raises(SessionLostError, match="out of memory"):
            await session.exec("tail /dev/zero")


async def test_out_of_memory_of_one_command(busybox_image: str) -> None:
    """The command is killed and marked; the session lives on."""
    async with (
        docker_environment(image=busybox_image, memory_mb=32) as environment,
        environment.open(plan()) as session,
    ):
        result = await session.exec(["tail", "/dev/zero"])
        assert (result.exit_code, result.out_of_memory) == (137, True)
        after = await session.exec("echo alive")
        assert (after.stdout, after.out_of_memory) == ("alive\n", False)


USES: dict[str, Callable[[Session, Path], Awaitable[object]]] = {
    "exec": lambda session, _: session.exec("echo ok"),
    "read": lambda session, _: session.read("file"),
    "write": lambda session, _: session.write("other", b"x"),
    "upload": lambda session, path: session.upload(path, "copy"),
    "download": lambda session, path: session.download("file", path / "down"),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("removed", [True, False])
async def test_container_ended_from_outside(
    busybox_image: str, docker_client: Docker, tmp_path: Path, use: str, removed: bool
) -> None:
    """Removed or killed by somebody else: every method says so, also those that could still read files."""
    async with docker_environment(image=busybox_image) as environment, environment.open(plan()) as session:
        await session.write("file", b"x")
        container = await _the_container(docker_client)
        await (container.delete(force=True) if removed else container.kill())
        with pytest.raises(SessionLostError, match="removed" if removed else "exit code 137"):
            await USES[use](session, tmp_path)


async def test_container_removed_while_a_command_runs(busybox_image: str, docker_client: Docker) -> None:
    """The command does not look as if it had ended."""
    async with docker_environment(image=busybox_image) as environment, environment.open(plan()) as session:
        caught: list[SessionLostError] = []

        async def run() -> None:
            try:
                await session.exec("touch started; sleep 100")
            except SessionLostError as error:
                caught.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            while not (await session.exec("ls")).stdout:  # noqa: ASYNC110  # the container sets no events
                await anyio.sleep(0.01)
            await (await _the_container(docker_client)).delete(force=True)
        [error] = caught
        assert "removed" in error.cause or "exit code 137" in error.cause


async def test_fork_bomb_ends_with_its_deadline(busybox_image: str) -> None:
    """Processes that multiply are ended; if the machine must go for that, the next step says so."""
    async with (
        docker_environment(image=busybox_image, pids=100) as environment,
        environment.open(plan()) as session,
    ):
        with anyio.fail_after(20):
            result = await session.exec("bomb() { bomb | bomb & }; bomb; sleep 100", timeout_seconds=0.5)
        assert result.timed_out
        with suppress(SessionLostError):
            listed = await session.exec("cat /proc/[0-9]*/cmdline")
            assert "bomb" not in listed.stdout
