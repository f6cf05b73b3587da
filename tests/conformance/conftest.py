"""The providers that the conformance suite runs on, and a session of each."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from anyio import fail_after, sleep, to_thread

from agentcompass.environments.local import LocalEnvironment, LocalParams
from agentcompass.protocols import Environment, Session, SessionPlan

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
        environment: Builds it; what it creates on this machine goes below the given directory.
        command_lines: Lists the command lines of all processes that sessions may have started (blocking).
    """

    name: str
    environment: Callable[[Path], Environment]
    command_lines: Callable[[], list[str]] = _host_command_lines

    async def running(self, marker: str) -> list[str]:
        """List the processes that have ``marker`` in their command line."""
        return [line for line in await to_thread.run_sync(self.command_lines) if marker in line]

    async def wait_running(self, marker: str) -> None:
        """Wait until a process has ``marker`` in its command line."""
        with fail_after(5):
            while not await self.running(marker):  # noqa: ASYNC110  # other processes set no events
                await sleep(0.002)


PROVIDERS = [Provider("local", lambda path: LocalEnvironment(LocalParams(root_dir=path)))]


@pytest.fixture(params=PROVIDERS, ids=lambda provider: provider.name)
def provider(request: pytest.FixtureRequest) -> Provider:
    found: Provider = request.param
    return found


@pytest.fixture
def environment(provider: Provider, tmp_path: Path) -> Environment:
    return provider.environment(tmp_path / "environment")


@pytest.fixture
async def session(environment: Environment) -> AsyncIterator[Session]:
    async with environment.open(PLAN) as opened:
        yield opened


@pytest.fixture
def nap() -> str:
    """A number of seconds that no other process on this machine sleeps for: it marks processes."""
    return str(random.randrange(10**8, 10**9))
