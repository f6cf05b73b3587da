"""``agentcompass env``: what is there, and removing what one names."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from anyio import run
from click.testing import CliRunner, Result

from agentcompass.cli.main import main

from .environments import RUN_ID, docker_environment, plan


def call(*arguments: str) -> Result:
    """Run a command inside this process, outside of any event loop."""
    return CliRunner().invoke(main, ["env", *arguments])


async def _keep(image: str, run_id: str) -> None:
    async with docker_environment(image=image) as environment, environment.open(plan(run_id, keep=True)):
        pass


@pytest.fixture
def kept_run(busybox_image: str) -> Iterator[str]:
    run(_keep, busybox_image, f"{RUN_ID}-kept-by-test")
    yield f"{RUN_ID}-kept-by-test"
    call("close", "--run", f"{RUN_ID}-kept-by-test", "--yes")


def _listed(run_id: str) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = json.loads(call("list", "--json").stdout)
    return [entry for entry in entries if entry["run"] == run_id]


def test_kept_container_is_listed_and_closed(kept_run: str) -> None:
    """The list tells kind, run, trial and state; closing removes that run's only."""
    [entry] = _listed(kept_run)
    assert (entry["kind"], entry["trial"], entry["kept"]) == ("container", "task 1", True)
    assert str(entry["name"]) in call("list").stdout
    closed = call("close", "--run", kept_run, "--yes")
    assert closed.exit_code == 0
    assert closed.stdout.endswith("removed 1\n")
    assert _listed(kept_run) == []


def test_nothing_is_removed_without_consent(kept_run: str) -> None:
    """Where nobody can be asked, ``--yes`` is needed."""
    result = call("close", "--run", kept_run)
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert len(_listed(kept_run)) == 1


@pytest.mark.parametrize("arguments", [[], ["--run", "x", "--all"]])
def test_what_to_close_must_be_said(arguments: list[str]) -> None:
    """One run, or all; not neither or both."""
    result = call("close", *arguments)
    assert result.exit_code == 2
    assert "--run ID or --all" in result.stderr


def test_run_without_leftovers_is_no_error() -> None:
    """It says that there is nothing."""
    result = call("close", "--run", "never-was", "--yes")
    assert (result.exit_code, result.stdout) == (0, "nothing of run 'never-was' to remove\n")


def test_daemon_that_cannot_be_reached() -> None:
    """One message with the way out."""
    result = call("list", "--docker-host", "unix:///nowhere.sock")
    assert result.exit_code == 2
    assert "docker info" in result.stderr
