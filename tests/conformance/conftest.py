"""The providers that the conformance suite runs on, and a session of each."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from anyio import fail_after, sleep, to_thread

from agentcompass.environments.docker import DockerEnvironment, DockerParams
from agentcompass.environments.local import LocalEnvironment, LocalParams
from agentcompass.protocols import ClosableEnvironment, Environment, Session, SessionPlan

from .. import sandbox
from ..docker import daemon
from ..docker.images import busybox_root

PLAN = SessionPlan(run_id="conformance", label="conformance", env={"FROM_PLAN": "plan"})


def _host_command_lines() -> list[str]:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:  # it ended meanwhile
            continue
    return lines


@dataclass(frozen=True)
class Provider:
    """
    An environment under test.

    Args:
        environment: Builds it (blocking); what it creates on this machine goes below the given directory.
        backends: The event loops that it runs on.
        command_lines: Lists the command lines of all processes that sessions may have started (blocking).
    """

    name: str
    environment: Callable[[Path], Environment]
    backends: Sequence[str] = ("asyncio", "trio")
    command_lines: Callable[[], list[str]] = _host_command_lines

    async def running(self, marker: str) -> list[str]:
        """List the processes that have ``marker`` in their command line."""
        return [line for line in await to_thread.run_sync(self.command_lines) if marker in line]

    async def wait_running(self, marker: str) -> None:
        """Wait until a process has ``marker`` in its command line."""
        with fail_after(5):
            while not await self.running(marker):  # noqa: ASYNC110  # other processes set no events
                await sleep(0.002)


def _docker(path: Path) -> Environment:
    del path  # containers leave nothing on this machine
    if reason := daemon.reason_to_skip():
        sandbox.skip(reason)
    return DockerEnvironment(DockerParams(image=daemon.busybox_image()))


def _unconfined(path: Path) -> Environment:
    return LocalEnvironment(LocalParams(root_dir=path, isolation="none"))


def _confined(path: Path) -> Environment:
    sandbox.need_bubblewrap()
    return LocalEnvironment(LocalParams(root_dir=path, isolation="bubblewrap"))


def _in_root(path: Path) -> Environment:
    sandbox.need_bubblewrap(overlays=True)
    return LocalEnvironment(LocalParams(root_dir=path, root=busybox_root(path.parent)))


PROVIDERS = [
    Provider("local", _unconfined),
    Provider("bubblewrap", _confined),
    Provider("root", _in_root),
    Provider("docker", _docker, backends=("asyncio",)),
]
_CASES = [(provider, backend) for provider in PROVIDERS for backend in provider.backends]


@pytest.fixture(params=_CASES, ids=lambda case: f"{case[0].name}-{case[1]}")
def case(request: pytest.FixtureRequest) -> tuple[Provider, str]:
    """Each provider on each event loop that it runs on."""
    found: tuple[Provider, str] = request.param
    return found


@pytest.fixture
def provider(case: tuple[Provider, str]) -> Provider:
    return case[0]


@pytest.fixture
def anyio_backend(case: tuple[Provider, str]) -> str:
    return case[1]


@pytest.fixture
def made(provider: Provider, tmp_path: Path) -> Environment:
    return provider.environment(tmp_path / "environment")


@pytest.fixture
async def environment(made: Environment) -> AsyncIterator[Environment]:
    yield made
    if isinstance(made, ClosableEnvironment):
        await made.aclose()


@pytest.fixture
async def session(environment: Environment) -> AsyncIterator[Session]:
    async with environment.open(PLAN) as opened:
        yield opened


@pytest.fixture
def nap() -> str:
    """A number of seconds that no other process on this machine sleeps for: it marks processes."""
    return str(random.randrange(10**8, 10**9))
