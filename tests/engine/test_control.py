"""A running launch tells what it does, and can be steered from Python and from other processes."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread

from agentcompass.clock import ManualClock
from agentcompass.engine.control import Controls, LaunchStatus
from agentcompass.engine.control_socket import SOCKET_FILE, Command, call_controls
from agentcompass.engine.orchestration import resolve_all, run_orchestration
from agentcompass.engine.result import OrchestrationResult
from agentcompass.engine.stop import StopControl
from agentcompass.environments.fake import FakeParams
from agentcompass.errors import ConfigError
from agentcompass.protocols import Outcome, Trial
from agentcompass.records import RunStatus
from agentcompass.spec.orchestration import OrchestrationSpec

from .lab import RIGHT, Lab
from .test_orchestration import spec

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class Desk:
    """A launch whose agents wait until they are let go."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.controls = Controls()
        self.go = anyio.Event()
        self.results: list[OrchestrationResult] = []

    async def agent(self, trial: Trial) -> Outcome:
        await self.go.wait()
        return RIGHT

    async def run(self, orchestration: OrchestrationSpec) -> None:
        requests = await to_thread.run_sync(resolve_all, orchestration)
        result = await run_orchestration(
            orchestration,
            requests,
            stop=StopControl(),
            controls=self.controls,
            clock=ManualClock(jumping=True),
        )
        self.results.append(result)

    async def wait_for(self, live: int) -> LaunchStatus:
        """Wait until so many attempts are in flight and each has got as far as it can."""
        with anyio.fail_after(10):
            while True:
                status = self.controls.status()
                attempts = [one for request in status.requests for one in request.live]
                if len(attempts) == live and not any(one.doing == "starting" for one in attempts):
                    return status
                await anyio.sleep(0.01)


@asynccontextmanager
async def launched(lab: Lab, *requests: dict[str, Any], **options: Any) -> AsyncIterator[Desk]:
    """Run requests while the block runs; leaving it lets the agents go."""
    desk = Desk(lab)
    with lab.registered(desk.agent, FakeParams(), needs_session=options.pop("needs_session", False)):
        async with anyio.create_task_group() as group:
            group.start_soon(desk.run, spec(lab, *requests, **options))
            with anyio.fail_after(15):
                await desk.controls.wait_attached()
                yield desk
            desk.go.set()


async def test_status_says_who_does_what_and_who_waits_for_what(lab: Lab) -> None:
    """Attempts by what they do; requests by what keeps them from starting more."""
    async with launched(lab, {"name": "a"}, {"name": "b"}, {"name": "c"}, task_concurrency=2) as desk:
        status = await desk.wait_for(2)
        a, b, c = status.requests
        assert (a.state, a.attempts, a.done) == ("feeding", 4, 0)
        assert {one.doing for one in a.live} == {"runs its agent"}
        assert "a task slot (2 of 2 taken)" in a.waits_for
        assert b.waits_for.startswith("a task slot") or b.state == "loading"
        assert (c.state, c.waits_for) == ("declared", "its turn to load its tasks")
        assert (status.working, status.task_concurrency, status.paused) == (2, 2, False)


async def test_status_names_the_session_limit(lab: Lab) -> None:
    """One attempt has the only session, one waits for it, and no further one is started for that."""
    runtime = {"progress": "none", "provider_limits": {"fake-environment": 1}}
    async with launched(lab, {"name": "a"}, runtime=runtime, needs_session=True) as desk:
        status = await desk.wait_for(2)
        assert sorted(one.doing for one in status.requests[0].live) == [
            "runs its agent",
            "waits for a session of fake-environment",
        ]
        assert "sessions of fake-environment" in status.requests[0].waits_for
        provider = status.providers["fake-environment"]
        assert (provider.limit, provider.open, provider.waiting) == (1, 1, 1)
        desk.controls.set_provider_limit("fake-environment", 3)
        assert len((await desk.wait_for(4)).requests[0].live) == 4


async def test_pause_and_concurrency(lab: Lab) -> None:
    """A paused launch starts nothing; a raised limit starts more."""
    async with launched(lab, {"name": "a"}, task_concurrency=1) as desk:
        await desk.wait_for(1)
        desk.controls.pause()
        desk.controls.set_task_concurrency(3)
        status = await desk.wait_for(1)
        assert "resume (paused)" in status.requests[0].waits_for
        desk.controls.resume()
        await desk.wait_for(3)
    [result] = desk.results
    assert result.status is RunStatus.COMPLETED


async def test_cancelled_task_is_recorded_and_the_rest_goes_on(lab: Lab) -> None:
    """Its live attempt is cancelled, its further ones never start, and a resumed run does it."""
    async with launched(lab, {"name": "a", "execution": {"k": 2}}, task_concurrency=1) as desk:
        await desk.wait_for(1)
        assert desk.controls.cancel_task("a", "t0000") == 1
        assert desk.controls.cancel_task("a", "t0002") == 0
    [request] = desk.results[0].requests
    assert request.metrics is not None
    counts = request.metrics.counts
    assert (counts.planned, counts.finished, counts.cancelled, counts.missing) == (8, 4, 1, 3)
    assert request.status is RunStatus.PARTIAL


async def test_cancelled_request_ends_and_the_others_go_on(lab: Lab) -> None:
    """One that runs and one that has not begun."""
    async with launched(lab, *({"name": name} for name in "abcd"), task_concurrency=2) as desk:
        await desk.wait_for(2)
        desk.controls.cancel_request("a")
        desk.controls.cancel_request("d")
    statuses = {request.name: request.status for request in desk.results[0].requests}
    assert statuses == {"a": "cancelled", "b": "completed", "c": "completed", "d": "cancelled"}
    with pytest.raises(ConfigError, match="not running"):
        desk.controls.status()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda controls: controls.cancel_request("aa"), "no request 'aa'; did you mean 'a'"),
        (lambda controls: controls.set_task_concurrency(0), "task_concurrency: must be at least 1"),
        (
            lambda controls: controls.set_provider_limit("dockr", 1),
            "provider_limits.dockr: no request uses it",
        ),
    ],
)
async def test_wrong_command_is_named(lab: Lab, call: Any, message: str) -> None:
    """It says what there is, and changes nothing."""
    async with launched(lab, {"name": "a"}) as desk:
        with pytest.raises(ConfigError, match=message):
            call(desk.controls)


async def test_socket_answers_its_owner_alone(lab: Lab) -> None:
    """Every command works through it; it is gone when the run has ended."""
    async with launched(lab, {"name": "a"}, {"name": "b"}, task_concurrency=1) as desk:
        run_dir = Path((await desk.wait_for(1)).requests[0].run_dir)

        def ask(command: str, **arguments: Any) -> Any:
            return call_controls(run_dir, Command(command=command, **arguments))

        mode = (await to_thread.run_sync(os.stat, run_dir / SOCKET_FILE)).st_mode
        assert stat.S_IMODE(mode) == 0o600
        await to_thread.run_sync(lambda: ask("set", name="task_concurrency", value=3))
        await desk.wait_for(3)
        status = await to_thread.run_sync(ask, "status")
        assert status["requests"][0]["live"][0]["doing"] == "runs its agent"
        task_id = status["requests"][0]["live"][-1]["task_id"]
        assert await to_thread.run_sync(lambda: ask("cancel", task_id=task_id)) == 1
        await to_thread.run_sync(ask, "pause")
        assert (await to_thread.run_sync(ask, "status"))["paused"] is True
        await to_thread.run_sync(ask, "resume")
        with pytest.raises(ConfigError, match="no command 'stauts'"):
            await to_thread.run_sync(ask, "stauts")
        with pytest.raises(ConfigError, match="cannot be set; task_concurrency and"):
            await to_thread.run_sync(lambda: ask("set", name="k", value=3))
        await to_thread.run_sync(lambda: ask("cancel-request", name="b"))
    assert desk.results[0].request("b").status is RunStatus.CANCELLED
    with pytest.raises(ConfigError, match=f"nothing runs in .*: it has no {SOCKET_FILE}"):
        await to_thread.run_sync(ask, "status")


async def test_socket_works_in_a_deep_folder(tmp_path: Path) -> None:
    """The address of a socket is short; the path of a run directory need not be."""
    deep = Lab(tmp_path.joinpath(*["a-rather-long-folder-name"] * 6))
    async with launched(deep, {"name": "a"}) as desk:
        run_dir = Path((await desk.wait_for(4)).requests[0].run_dir)
        status = await to_thread.run_sync(call_controls, run_dir, Command(command="status"))
        assert status["working"] == 4


async def test_nonsense_on_the_socket_harms_nobody(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither bytes that are no JSON, nor far too many, nor silence."""
    async with launched(lab, {"name": "a"}) as desk:
        run_dir = Path((await desk.wait_for(4)).requests[0].run_dir)
        monkeypatch.chdir(run_dir)
        for nonsense in (b"\xff\n", b"[]\n", b"x" * 200_000, b""):
            async with await anyio.connect_unix(SOCKET_FILE) as stream:
                try:
                    await stream.send(nonsense)
                except anyio.BrokenResourceError:
                    continue
        status = await to_thread.run_sync(call_controls, run_dir, Command(command="status"))
        assert status["working"] == 4
