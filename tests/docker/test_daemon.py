"""When the daemon itself goes away and comes back; on a daemon of the test's own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiodocker
import anyio
import pytest
from anyio import to_thread

from agentcompass.errors import SessionError, SessionLostError
from agentcompass.spec.network import NetworkPolicy

from .environments import containers_of, docker_environment, plan
from .images import busybox_archive, imported

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.timeout(60),
    pytest.mark.skipif(
        shutil.which("dockerd") is None or os.geteuid() != 0,
        reason="starting a daemon needs dockerd and root",
    ),
]

NO_NETWORK = NetworkPolicy(mode="no-network")


class OwnDaemon:
    """
    A second daemon with a socket, data and networks of its own.

    In a network namespace, because without a bridge it would remove that of the machine's daemon.
    """

    def __init__(self, directory: Path) -> None:
        self.url = f"unix://{directory}/docker.sock"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it does not answer at once."""
        place = self._directory
        options = [f"--data-root={place}/data", f"--exec-root={place}/exec", f"--pidfile={place}/pid"]
        off = ["--bridge=none", "--iptables=false", "--ip6tables=false"]
        with (place / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "--net", "dockerd", "--host", self.url, *options, *off], stdout=log, stderr=log
            )

    def stop(self) -> None:
        """End it, and its containers with it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)
            self._process = None

    async def answers(self) -> None:
        """Wait until it does."""
        async with aiodocker.Docker(url=self.url) as docker:
            with anyio.fail_after(30):
                while True:
                    try:
                        await docker.version()
                    except aiodocker.DockerError:
                        await anyio.sleep(0.05)
                    else:
                        return


@contextmanager
def _own_daemon(directory: Path) -> Iterator[OwnDaemon]:
    daemon = OwnDaemon(directory)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


@pytest.fixture
async def daemon(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OwnDaemon]:
    directory = tmp_path_factory.mktemp("d")
    with _own_daemon(directory) as started:
        await started.answers()
        async with aiodocker.Docker(url=started.url) as docker:
            archive = await to_thread.run_sync(busybox_archive)
            await docker.version()  # settles the version of the protocol
            await imported(docker, "busybox", archive)
        yield started


async def _image(url: str) -> str:
    async with aiodocker.Docker(url=url) as docker:
        [image] = await docker.images.list()
        return str(image["Id"])


async def test_daemon_that_stops_and_comes_back(daemon: OwnDaemon) -> None:
    """The session is lost within one step, and its container is removed when the daemon is back."""
    image = await _image(daemon.url)
    async with docker_environment(image=image, docker_host=daemon.url) as environment:
        with pytest.raises(SessionError, match="could not be removed yet"):  # noqa: PT012
            async with environment.open(plan(network=NO_NETWORK)) as session:
                assert (await session.exec("echo up")).stdout == "up\n"
                await to_thread.run_sync(daemon.stop)
                with pytest.raises(SessionLostError, match="daemon does not answer"):
                    await session.exec("echo down")
        await to_thread.run_sync(daemon.start)
        await daemon.answers()
        async with environment.open(plan(network=NO_NETWORK)) as session:
            assert (await session.exec("echo up again")).stdout == "up again\n"
    async with aiodocker.Docker(url=daemon.url) as docker:
        assert await containers_of(docker) == []


async def test_daemon_that_stops_while_a_command_runs(daemon: OwnDaemon) -> None:
    """The command does not seem to have ended."""
    image = await _image(daemon.url)
    async with docker_environment(image=image, docker_host=daemon.url) as environment:
        with pytest.raises(SessionError):  # noqa: PT012
            async with (
                environment.open(plan(network=NO_NETWORK)) as session,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(to_thread.run_sync, daemon.stop)
                with pytest.raises(SessionLostError):
                    await session.exec("sleep 100")
        await to_thread.run_sync(daemon.start)
        await daemon.answers()
