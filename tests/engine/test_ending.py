"""Runs that end early: by the deadline, by a stop, by the host, by an outage, by a full disk."""

from __future__ import annotations

import anyio
import anyio.to_thread
import pytest
import trio.testing

from agentcompass.clock import ManualClock
from agentcompass.engine.result import RunResult
from agentcompass.environments.fake import FakeParams
from agentcompass.errors import ModelUnavailableError, OutageError, StoreError
from agentcompass.protocols import Outcome, Trial
from agentcompass.records import OutcomeClass, ProgressEvent, RunStatus, TrialFinished
from agentcompass.selftest.disk import Fault, FaultyDisk

from .lab import RIGHT, Lab, trials

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def hang_from_third(trial: Trial) -> Outcome:
    """Answer the first two tasks and never the others."""
    if int(trial.task.id[1:]) >= 2:
        await anyio.sleep_forever()
    return RIGHT


async def test_deadline_ends_the_run_with_what_is_finished(lab: Lab) -> None:
    """The run returns, says ``timed_out``, and keeps, counts and summarises the finished attempts."""
    result = await lab.run(
        hang_from_third, benchmark_params={"tasks": 50}, task_concurrency=4, timeout_seconds=3
    )
    assert result.status is RunStatus.TIMED_OUT
    assert result.metrics is not None
    counts = result.metrics.counts
    assert (counts.finished, counts.cancelled, counts.missing) == (2, 4, 44)
    assert result.metrics.score.evaluated == 2


async def test_deadline_while_loading_ends_the_run(lab: Lab) -> None:
    """A deadline before the first attempt ends the run all the same."""
    result = await lab.run(timeout_seconds=0.001)
    assert result.status is RunStatus.TIMED_OUT
    assert result.metrics is None


async def test_stop_starts_nothing_new_and_records_what_was_live(lab: Lab) -> None:
    """After a stop no trial starts; live ones are recorded as cancelled, their sessions closed."""
    started: list[str] = []

    async def agent(trial: Trial) -> Outcome:
        started.append(trial.task.id)
        if len(started) == 4:
            assert lab.stop is not None
            lab.stop.request()
        await anyio.sleep_forever()
        return RIGHT

    result = await lab.run(
        agent,
        needs_session=True,
        env_open_qps={"fake-environment": 0},
        benchmark_params={"tasks": 20},
        task_concurrency=4,
    )
    assert result.status is RunStatus.CANCELLED
    assert len(started) == 4
    assert [record.outcome for record in trials(result)] == [OutcomeClass.CANCELLED] * 4


async def test_stopped_run_is_resumed_where_it_was(lab: Lab) -> None:
    """Nothing finished runs again; what was cancelled or missing does."""

    async def agent(trial: Trial) -> Outcome:
        if trial.task.id == "t0005":
            assert lab.stop is not None
            lab.stop.request()
            await anyio.sleep_forever()
        return RIGHT

    stopped = await lab.run(agent, benchmark_params={"tasks": 10}, task_concurrency=1)
    again: list[str] = []

    async def count(trial: Trial) -> Outcome:
        again.append(trial.task.id)
        return RIGHT

    resumed = await lab.run(count, benchmark_params={"tasks": 10}, run_id=stopped.run_id)
    assert resumed.status is RunStatus.COMPLETED
    assert sorted(again) == [f"t{number:04d}" for number in range(5, 10)]
    assert resumed.execution.kept_attempts == 5


async def test_cancellation_by_the_host_propagates_after_recording(lab: Lab) -> None:
    """The host's own scope ends the run; records, summary and closed sessions are there nevertheless."""
    results: list[RunResult] = []
    live = anyio.Event()

    async def agent(trial: Trial) -> Outcome:
        live.set()
        await anyio.sleep_forever()
        return RIGHT

    async def host() -> None:
        results.append(await lab.run(agent, needs_session=True, benchmark_params={"tasks": 1}))

    async with anyio.create_task_group() as group:
        group.start_soon(host)
        await live.wait()
        group.cancel_scope.cancel()
    assert results == []
    [metrics] = lab.results_dir.rglob("metrics.json")
    assert '"cancelled": 1' in metrics.read_text()
    assert lab.environments[-1].statistics().live == 0


async def test_outage_pauses_feeding_and_goes_on(lab: Lab) -> None:
    """While the endpoint is down single probes go out; when it is back everything gets done."""
    calls = 0

    async def agent(trial: Trial) -> Outcome:
        nonlocal calls
        calls += 1
        if calls <= 14:
            raise ModelUnavailableError("endpoint is down")
        return RIGHT

    result = await lab.run(
        agent, benchmark_params={"tasks": 40}, task_concurrency=2, max_retries=20, resumable=False
    )
    assert result.status is RunStatus.COMPLETED
    assert calls == 40 + 14


async def test_outage_that_lasts_ends_the_request_and_keeps_the_rest(lab: Lab) -> None:
    """A request gives up after ``outage_timeout_seconds``; untouched tasks stay missing, ready for resume."""

    async def agent(trial: Trial) -> Outcome:
        raise ModelUnavailableError("endpoint is down")

    result = await lab.run(
        agent,
        benchmark_params={"tasks": 1000},
        task_concurrency=2,
        max_retries=0,
        outage_timeout_seconds=600,
    )
    assert result.status is RunStatus.FAILED
    assert isinstance(result.error, OutageError)
    assert result.metrics is not None
    assert result.metrics.counts.missing > 900
    resumed = await lab.run(
        benchmark_params={"tasks": 1000},
        run_id=result.run_id,
        clock=ManualClock(jumping=True),
        resumable=False,
    )
    assert resumed.status is RunStatus.COMPLETED


async def test_store_failure_stops_the_run_and_says_how_to_go_on(lab: Lab) -> None:
    """When nothing can be written any more the run ends, names the folder, and does not crash."""

    def lose_the_journal() -> None:
        next(lab.results_dir.rglob("attempts.jsonl")).unlink()

    async def agent(trial: Trial) -> Outcome:
        if trial.task.id == "t0003":
            await anyio.to_thread.run_sync(lose_the_journal)
        return RIGHT

    result = await lab.run_unchecked(agent, benchmark_params={"tasks": 50}, task_concurrency=1)
    assert result.status is RunStatus.FAILED
    assert isinstance(result.error, StoreError)
    assert "run_id=" in str(result.error)


async def test_close_that_hangs_does_not_hang_the_stop(lab: Lab) -> None:
    """A session whose closing never returns is given up when the run is cancelled."""

    async def agent(trial: Trial) -> Outcome:
        assert lab.stop is not None
        lab.stop.request()
        await anyio.sleep_forever()
        return RIGHT

    with anyio.fail_after(10):
        result = await lab.run_unchecked(
            agent,
            needs_session=True,
            environment=FakeParams(on_close=anyio.sleep_forever),
            benchmark_params={"tasks": 1},
        )
    assert result.status is RunStatus.CANCELLED


NO_WAITING = pytest.mark.parametrize(
    "anyio_backend", [("trio", {"clock": trio.testing.MockClock(autojump_threshold=0.05)})], ids=["trio"]
)


@NO_WAITING
async def test_record_that_is_not_on_disk_in_time_is_not_told_as_finished(
    lab: Lab, anyio_backend: object
) -> None:
    """When a record still hangs after the grace period of a stop, nobody hears of it; the error says why."""
    disk = FaultyDisk(Fault(manner="hang", operation="sync", at=3))  # run.json, the plan, the first trial
    told: list[str] = []
    stopped_at: list[float] = []

    def note(event: ProgressEvent) -> None:
        if isinstance(event, TrialFinished):
            told.append(event.task_id)

    async def agent(trial: Trial) -> Outcome:
        if trial.task.id == "t0001":
            await anyio.sleep(1)
            assert lab.stop is not None
            lab.stop.request()
            lab.stop.request()
            stopped_at.append(anyio.current_time())
        return RIGHT

    result = await lab.run_unchecked(agent, benchmark_params={"tasks": 2}, files=disk, on_progress=note)
    disk.release()
    assert anyio.current_time() - stopped_at[0] < 60  # one short grace period and no minute of draining
    assert told == []
    assert isinstance(result.error, StoreError)
    assert result.status is RunStatus.FAILED
    assert f"run_id={result.run_id!r}" in str(result.error)
