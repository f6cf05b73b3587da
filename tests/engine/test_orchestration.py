"""Several requests in one orchestration: one limit, one deadline, each with its own outcome."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest
from anyio import to_thread

from agentcompass.benchmarks.fake import FakeParams as FakeBenchmarkParams
from agentcompass.benchmarks.fake import FakeVerifier
from agentcompass.engine import registry
from agentcompass.engine.handle import start_launch
from agentcompass.engine.result import RunResult
from agentcompass.environments.fake import FakeParams
from agentcompass.errors import ConfigError
from agentcompass.protocols import Outcome, Task, Trial
from agentcompass.records import RunStatus
from agentcompass.spec.orchestration import OrchestrationSpec
from agentcompass.spec.validation import validate

from .lab import RIGHT, Gauge, Lab, answer_right

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def spec(lab: Lab, *requests: dict[str, Any], **options: Any) -> OrchestrationSpec:
    """Build an orchestration of fake requests."""
    common = {
        "benchmark": {"id": "fake", "tasks": 4},
        "harness": "scripted-agent",
        "environment": "fake-environment",
        "output": {"results_dir": lab.results_dir},
    }
    values = {
        "requests": [{**common, **request} for request in requests],
        "runtime": {"progress": "none", "log_level": "CRITICAL"},
        **options,
    }
    return validate(OrchestrationSpec, values)


async def test_requests_have_their_own_folders_and_results(lab: Lab) -> None:
    """Results come in declaration order, each in a folder of its name."""

    async def agent(trial: Trial) -> Outcome:
        return RIGHT

    with lab.registered(agent, FakeParams()):
        result = await lab.orchestrate(spec(lab, {"name": "first"}, {"name": "second"}))
    assert [request.name for request in result.requests] == ["first", "second"]
    assert result.status is RunStatus.COMPLETED
    assert sorted(path.name for path in lab.results_dir.iterdir()) == ["_launches", "first", "second"]
    assert result.request("second").metrics is not None


@pytest.mark.parametrize("cap", [1, 3])
async def test_task_limit_is_shared(lab: Lab, cap: int) -> None:
    """All requests together never exceed the limit, and no slot idles between them."""
    gauge = Gauge()

    async def agent(trial: Trial) -> Outcome:
        await gauge.stay()
        return RIGHT

    names = [{"name": f"r{number}"} for number in range(4)]
    with lab.registered(agent, FakeParams()):
        await lab.orchestrate(spec(lab, *names, task_concurrency=cap))
    assert gauge.peak == cap


async def test_next_request_starts_while_the_first_still_runs(lab: Lab) -> None:
    """A straggler of the first request does not hold up the second one."""
    second_started = anyio.Event()

    async def agent(trial: Trial) -> Outcome:
        if trial.task.id == "t0000" and not second_started.is_set() and not held:
            held.append(trial)
            await second_started.wait()
        if len(seen) >= 4:
            second_started.set()
        seen.append(trial.task.id)
        return RIGHT

    held: list[Trial] = []
    seen: list[str] = []
    with lab.registered(agent, FakeParams()), anyio.fail_after(10):
        result = await lab.orchestrate(spec(lab, {"name": "a"}, {"name": "b"}, task_concurrency=2))
    assert result.status is RunStatus.COMPLETED


async def test_failing_request_is_its_own_outcome(lab: Lab) -> None:
    """A request whose data cannot be loaded leaves its siblings alone."""

    async def agent(trial: Trial) -> Outcome:
        return RIGHT

    broken = {"name": "broken", "benchmark": {"id": "jsonl", "path": "/nonexistent.jsonl"}}
    with lab.registered(agent, FakeParams()):
        result = await lab.orchestrate(spec(lab, broken, {"name": "fine"}))
    assert result.status is RunStatus.FAILED
    assert isinstance(result.request("broken").error, ConfigError)
    assert result.request("fine").status is RunStatus.COMPLETED


async def test_deadline_is_shared(lab: Lab) -> None:
    """Every unfinished request ends with the deadline; finished ones stay finished."""

    async def agent(trial: Trial) -> Outcome:
        if trial.task.id == "t0004":
            await anyio.sleep_forever()
        return RIGHT

    with lab.registered(agent, FakeParams()):
        result = await lab.orchestrate(
            spec(
                lab,
                {"name": "a"},
                {"name": "b", "benchmark": {"id": "fake", "tasks": 5}},
                runtime={"progress": "none", "timeout_seconds": 4},
                task_concurrency=1,
            )
        )
    assert result.request("a").status is RunStatus.COMPLETED
    assert result.request("b").status is RunStatus.TIMED_OUT
    assert result.status is RunStatus.TIMED_OUT


async def test_each_result_is_told_as_it_ends(lab: Lab) -> None:
    """The callback may be async, and its own mistake costs nobody anything."""
    told: list[str] = []

    async def tell(result: RunResult) -> None:
        told.append(f"{result.name} {result.status}")
        if result.name == "a":
            raise RuntimeError("my mistake")

    runtime = {"progress": "none", "log_level": "CRITICAL", "on_request_finished": tell}
    with lab.registered(answer_right, FakeParams()):
        result = await lab.orchestrate(spec(lab, {"name": "a"}, {"name": "b"}, runtime=runtime))
    assert sorted(told) == ["a completed", "b completed"]
    assert result.status is RunStatus.COMPLETED


async def test_plain_callback_may_block(lab: Lab) -> None:
    """A plain function is called in a thread."""
    told: list[str] = []

    def tell(result: RunResult) -> None:
        time.sleep(0.01)
        told.append(result.name)

    runtime = {"progress": "none", "log_level": "CRITICAL", "on_request_finished": tell}
    with lab.registered(answer_right, FakeParams()):
        await lab.orchestrate(spec(lab, {"name": "a"}, runtime=runtime))
    assert told == ["a"]


async def test_constructor_that_raises_costs_its_request(lab: Lab) -> None:
    """The others run."""

    class Broken:
        def __init__(self) -> None:
            raise OSError("no such device")

    with lab.registered(answer_right, FakeParams()):
        registry.harness("broken-harness")(Broken)
        result = await lab.orchestrate(spec(lab, {"name": "a", "harness": "broken-harness"}, {"name": "b"}))
    assert result.request("a").status is RunStatus.FAILED
    assert "harness 'broken-harness' cannot be made: OSError: no such device" in str(
        result.request("a").error
    )
    assert result.request("b").status is RunStatus.COMPLETED


async def test_request_has_a_deadline_of_its_own(lab: Lab) -> None:
    """It counts from its first attempt; the other requests do not feel it."""

    async def agent(trial: Trial) -> Outcome:
        if trial.task.id == "t0004":
            await anyio.sleep_forever()
        return RIGHT

    with lab.registered(agent, FakeParams()):
        result = await lab.orchestrate(
            spec(
                lab,
                {"name": "a", "benchmark": {"id": "fake", "tasks": 5}, "runtime": {"timeout_seconds": 1}},
                {"name": "b"},
            )
        )
    assert result.request("a").status is RunStatus.TIMED_OUT
    assert result.request("b").status is RunStatus.COMPLETED
    assert result.status is RunStatus.TIMED_OUT


async def test_request_has_a_limit_of_its_own(lab: Lab) -> None:
    """Never more attempts of it in flight, whatever the orchestration permits."""
    gauge = Gauge()

    async def agent(trial: Trial) -> Outcome:
        await gauge.stay()
        return RIGHT

    with lab.registered(agent, FakeParams()):
        await lab.orchestrate(
            spec(lab, {"name": "a", "runtime": {"task_concurrency": 2}}, task_concurrency=8)
        )
    assert gauge.peak == 2


async def test_full_provider_holds_up_no_other_request(lab: Lab) -> None:
    """While all sessions of one provider are taken, a request of another provider runs to its end."""
    others_done = anyio.Event()
    ended: list[str] = []

    async def agent(trial: Trial) -> Outcome:
        with anyio.fail_after(10):
            await others_done.wait()
        return RIGHT

    def tell(result: RunResult) -> None:
        ended.append(result.name)
        if result.name == "free":
            anyio.from_thread.run_sync(others_done.set)

    runtime = {
        "progress": "none",
        "log_level": "CRITICAL",
        "provider_limits": {"fake-environment": 1},
        "on_request_finished": tell,
    }
    with lab.registered(agent, FakeParams(), needs_session=True):
        result = await lab.orchestrate(
            spec(
                lab,
                {"name": "full", "benchmark": {"id": "fake", "tasks": 30}},
                {"name": "free", "harness": "null", "environment": "local"},
                runtime=runtime,
                task_concurrency=4,
            )
        )
    assert result.status is RunStatus.COMPLETED
    assert ended == ["free", "full"]


async def test_latest_run_is_resumed(lab: Lab) -> None:
    """``resume`` continues in place whatever run id it had, and starts a run where there is none."""

    async def agent(trial: Trial) -> Outcome:
        seen.append(trial.task.id)
        return RIGHT

    seen: list[str] = []
    names = [{"name": "a", "execution": {"resume": True}}, {"name": "b", "execution": {"resume": True}}]
    with lab.registered(agent, FakeParams()):
        first = await lab.orchestrate(spec(lab, {"name": "a", "execution": {"limit": 2}}))
        second = await lab.orchestrate(spec(lab, *names))
    assert second.request("a").run_id == first.request("a").run_id
    assert (second.request("a").execution.executed_trials, len(seen)) == (2, 8)


async def test_shared_data_set_is_loaded_once(lab: Lab, tmp_path: Path) -> None:
    """Requests of the same benchmark do not each read it."""
    loads = tmp_path / "loads"

    class Counted:
        def load(self, data_dir: Path) -> Iterator[Task]:
            with loads.open("a") as file:
                file.write("x")
            yield Task(id="one", prompt="?")

        def verifier(self) -> FakeVerifier:
            return FakeVerifier(FakeBenchmarkParams())

    with lab.registered(answer_right, FakeParams()):
        registry.benchmark("counted")(Counted)
        result = await lab.orchestrate(
            spec(lab, *({"name": f"r{number}", "benchmark": "counted"} for number in range(6)))
        )
    assert result.status is RunStatus.COMPLETED, [str(request.error) for request in result.requests]
    assert await to_thread.run_sync(loads.read_text) == "x"


async def test_launch_has_a_handle(lab: Lab) -> None:
    """Inside the block it is looked into and steered; leaving it waits for the end."""
    with lab.registered(answer_right, FakeParams()):
        async with start_launch(spec(lab, {"name": "a"}, {"name": "b"})) as handle:
            assert [request.name for request in handle.status().requests] == ["a", "b"]
            handle.cancel_request("b")
            result = await handle.wait()
        assert handle.result is result
    assert result.request("a").status is RunStatus.COMPLETED
    assert result.request("b").status is RunStatus.CANCELLED


async def test_error_in_the_block_stops_the_launch(lab: Lab) -> None:
    """It arrives as itself, and what was finished is kept."""
    started = anyio.Event()

    async def agent(trial: Trial) -> Outcome:
        started.set()
        await anyio.sleep_forever()
        return RIGHT

    async def fail() -> None:
        async with start_launch(spec(lab, {"name": "a"})):
            await started.wait()
            raise KeyError("mine")

    with lab.registered(agent, FakeParams()), pytest.raises(KeyError, match="mine"):
        await fail()
    assert len(list(lab.results_dir.glob("a/*/metrics.json"))) == 1
