"""The public functions: what they refuse, what they show, and several at once."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentcompass import (
    ConfigError,
    Outcome,
    RunResult,
    RunStatus,
    Trial,
    async_run_evaluation,
    run_evaluation,
)
from agentcompass.engine import registry
from agentcompass.environments.fake import FakeEnvironment, FakeParams
from agentcompass.protocols import SessionPlan
from agentcompass.records import RunStarted, TrialFinished
from agentcompass.spec.options import RunArguments

from .lab import Gauge

GAUGE = Gauge()


class Quick:
    """Answers at once."""

    async def run(self, trial: Trial) -> Outcome:
        return Outcome(answer="ok")


class InGauge:
    """Shows how many sessions are open at once."""

    needs_session = True

    async def run(self, trial: Trial) -> Outcome:
        await GAUGE.stay()
        return Outcome(answer="ok")


class Plain(FakeEnvironment):
    def __init__(self) -> None:
        super().__init__(FakeParams())


@pytest.fixture(autouse=True)
def components() -> Iterator[None]:
    before = {key: dict(value) for key, value in registry._registered.items()}
    registry.harness("quick")(Quick)
    registry.harness("in-gauge")(InGauge)
    registry.environment("plain")(Plain)
    yield
    registry._registered.clear()
    registry._registered.update(before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"benchmark": "humanevel"}, "did you mean 'humaneval'"),
        ({"harness": "orakle"}, "did you mean 'oracle'"),
        ({"environment": "locall"}, "did you mean 'local'"),
        ({"environment": "docker", "environment_params": {"imge": "x"}}, "did you mean 'image'"),
        ({"benchmark_params": {"task": 3}}, "benchmark_params.task: no such option; did you mean 'tasks'"),
        ({"harness": "chat"}, "harness 'chat' needs a model"),
        ({"harness": "chat", "model": "m"}, "base"),
        ({"harness": "chat", "model": "m", "model_api_protocol": "openai"}, "openai-chat"),
        ({"environment_params": {"network_policy": "none"}}, "network_policy.mode: "),
        ({"environment_params": {"run_network_policy": {"mode": "allowlist"}}}, "the allowlist has no hosts"),
        ({"recipe_dirs": ["r"]}, "recipe_dirs: 'r' is not a folder"),
        ({"enabled_recipes": ["swebnch"]}, "unknown recipe 'swebnch'; did you mean 'swebench'"),
        ({"wrap_api_key": True}, "wrap_api_key: not available"),
        ({"plugins": ["no_such_plugin"]}, "no_such_plugin"),
        ({"config": "/nonexistent.yaml"}, "cannot read '/nonexistent.yaml'"),
        ({"benchmark_params": {"sample_ids": ["t9"]}}, "sample_ids: unknown: 't9'"),
        ({"results_dir": "/proc/nowhere"}, "results_dir"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_input_raises_before_anything_starts(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    """Each mistake is a ConfigError that names it and the way out, and leaves no run behind."""
    arguments = {"benchmark": "fake", "harness": "quick", "results_dir": tmp_path, "progress": "none"}
    with pytest.raises(ConfigError) as caught:
        run_evaluation(**{**arguments, **change})
    assert message in str(caught.value)
    assert list(tmp_path.rglob("run.json")) == []


def test_positional_arguments_are_refused() -> None:
    """The order of forty options is nobody's interface."""
    with pytest.raises((ConfigError, TypeError)):
        run_evaluation("fake", "quick")  # type: ignore[call-arg]


def test_signature_shows_every_argument() -> None:
    """Editors and ``help`` show the options with their defaults."""
    shown = inspect.signature(run_evaluation).parameters
    assert set(shown) == set(RunArguments.model_fields)
    assert shown["task_concurrency"].default == 16


@pytest.mark.slow
def test_type_checkers_know_the_arguments(tmp_path: Path) -> None:
    """A mistyped argument is found before the program runs."""
    script = tmp_path / "typed.py"
    script.write_text(
        "from agentcompass import run_evaluation\n"
        "run_evaluation(benchmark='a', harness='b', model_api_key='k', results_dir='r')\n"
        "run_evaluation(benchmark='a', harness='b', task_concurency=3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", str(script)], capture_output=True, text=True, check=False
    )
    assert 'did you mean "task_concurrency"' in done.stdout
    assert "Found 1 error" in done.stdout


def test_configuration_file_lies_underneath(tmp_path: Path) -> None:
    """What is given explicitly wins; mappings merge."""
    config = tmp_path / "c.yaml"
    config.write_text("benchmark: fake\nk: 2\nbenchmark_params: {tasks: 4, verify_seconds: 0}\n")
    result = run_evaluation(
        harness="quick",  # type: ignore[call-arg]  # the benchmark comes from the file
        config=config,
        benchmark_params={"tasks": 1},
        results_dir=tmp_path,
        progress="none",
    )
    assert result.metrics is not None
    assert (result.metrics.tasks, result.metrics.k) == (1, 2)


@pytest.mark.anyio
@pytest.mark.slow
async def test_several_at_once_share_the_provider_limit(tmp_path: Path) -> None:
    """Two evaluations in one process together keep to the stricter limit."""
    GAUGE.peak = 0
    results: list[RunResult] = []

    async def evaluate(limit: int) -> None:
        results.append(
            await async_run_evaluation(
                benchmark="fake",
                benchmark_params={"tasks": 6},
                harness="in-gauge",
                environment="plain",
                provider_limits={"plain": limit},
                env_open_qps={"plain": 0},
                results_dir=tmp_path,
                progress="none",
            )
        )

    async with anyio.create_task_group() as group:
        group.start_soon(evaluate, 2)
        group.start_soon(evaluate, 2)
    assert [result.status for result in results] == [RunStatus.COMPLETED] * 2
    assert GAUGE.peak == 2
    assert results[0].run_id != results[1].run_id


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync", "async", "raising", "slow"])
def test_callbacks_get_the_events_and_never_harm(tmp_path: Path, kind: str) -> None:
    """Every event arrives in order, whatever the callback does."""
    events: list[object] = []

    def sync(event: object) -> None:
        events.append(event)
        if kind == "raising":
            raise ValueError("callback is broken")

    async def asynchronous(event: object) -> None:
        events.append(event)
        await anyio.sleep(0.02 if kind == "slow" else 0)

    result = run_evaluation(
        benchmark="fake",
        harness="quick",
        benchmark_params={"tasks": 3},
        results_dir=tmp_path,
        progress="none",
        log_level="CRITICAL",
        on_progress=asynchronous if kind in {"async", "slow"} else sync,
    )
    assert result.status is RunStatus.COMPLETED
    assert isinstance(events[0], RunStarted)
    assert sum(isinstance(event, TrialFinished) for event in events) == 3


def test_environment_that_cannot_open_is_refused_by_its_check(tmp_path: Path) -> None:
    """A provider that is down is one clear error before the run."""

    class Down:
        async def check(self, networks: object) -> None:
            raise ConfigError("the daemon is not running; start it")

        def open(self, plan: SessionPlan) -> Any:
            raise AssertionError

    registry.environment("down")(Down)
    with pytest.raises(ConfigError, match="start it"):
        run_evaluation(
            benchmark="fake", harness="in-gauge", environment="down", results_dir=tmp_path, progress="none"
        )
