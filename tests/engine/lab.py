"""Runs small evaluations of scripted agents, and checks after each one what must always hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import anyio.lowlevel
import msgspec
import psutil
from anyio import to_thread

from agentcompass.clock import Clock, ManualClock
from agentcompass.engine import registry
from agentcompass.engine.orchestration import resolve_all, run_orchestration
from agentcompass.engine.request import fold_journal
from agentcompass.engine.result import OrchestrationResult, RunResult
from agentcompass.engine.stop import StopControl
from agentcompass.environments.fake import FakeEnvironment, FakeParams
from agentcompass.harnesses.fake import CallableHarness
from agentcompass.protocols import Outcome, Trial
from agentcompass.records import Metrics, PlanRecord, TrialRecord
from agentcompass.spec.options import RunArguments
from agentcompass.spec.orchestration import OrchestrationSpec, as_orchestration
from agentcompass.spec.validation import validate
from agentcompass.store.files import SYSTEM_FILES, Files
from agentcompass.store.journal import read_journal

CANARY = "sk-canary-0123456789"
RIGHT, WRONG = Outcome(answer="ok"), Outcome(answer="no")
Agent = Callable[[Trial], Awaitable[Outcome]]


async def answer_right(trial: Trial) -> Outcome:
    """The agent that always succeeds."""
    return RIGHT


class Lab:
    """
    A place to run things in.

    Args:
        folder: Temporary; gets the results.
        environments: Every fake environment that a run has made.
    """

    def __init__(self, folder: Path) -> None:
        self.results_dir = folder / "results"
        self.environments: list[FakeEnvironment] = []
        self.stop: StopControl | None = None
        self._children_before = {child.pid for child in live_children()}

    async def run(
        self,
        agent: Agent = answer_right,
        *,
        environment: FakeParams | None = None,
        clock: Clock | None = None,
        needs_session: bool = False,
        needs_model: bool = False,
        model_in_session: bool = False,
        resumable: bool = True,
        **options: Any,
    ) -> RunResult:
        """Run one request and check it; options are those of ``run_evaluation``."""
        spec = self._spec(options)
        with self.registered(
            agent,
            environment or FakeParams(),
            needs_session=needs_session,
            needs_model=needs_model,
            model_in_session=model_in_session,
        ):
            [request] = (await self.orchestrate(spec, clock=clock)).requests
            if request.paths is not None and request.metrics is not None:
                await self._check(spec, request, resumable=resumable)
        return request

    async def run_unchecked(
        self,
        agent: Agent,
        *,
        environment: FakeParams | None = None,
        needs_session: bool = False,
        files: Files = SYSTEM_FILES,
        **options: Any,
    ) -> RunResult:
        """Run one request that is meant to leave things in disorder."""
        with self.registered(agent, environment or FakeParams(), needs_session=needs_session):
            [request] = (await self.orchestrate(self._spec(options), files=files)).requests
        return request

    def _spec(self, options: dict[str, Any]) -> OrchestrationSpec:
        arguments = {
            "benchmark": "fake",
            "harness": "scripted-agent",
            "environment": "fake-environment",
            "results_dir": self.results_dir,
            "progress": "none",
            "log_level": "CRITICAL",
            **options,
        }
        return as_orchestration(validate(RunArguments, arguments))

    async def orchestrate(
        self, spec: OrchestrationSpec, *, clock: Clock | None = None, files: Files = SYSTEM_FILES
    ) -> OrchestrationResult:
        """Run any specification; ``stop`` is set while it runs."""
        requests = await to_thread.run_sync(resolve_all, spec)
        self.stop = StopControl()
        return await run_orchestration(
            spec, requests, stop=self.stop, clock=clock or ManualClock(jumping=True), files=files
        )

    @contextmanager
    def registered(
        self,
        agent: Agent,
        environment: FakeParams,
        *,
        needs_session: bool = False,
        needs_model: bool = False,
        model_in_session: bool = False,
    ) -> Iterator[None]:
        """Offer the agent and the environment as components while the block runs."""
        lab = self

        class ScriptedAgent(CallableHarness):
            model_in_session: ClassVar[bool] = False

            def __init__(self) -> None:
                super().__init__(agent)

        class Environment(FakeEnvironment):
            def __init__(self) -> None:
                super().__init__(environment)
                lab.environments.append(self)

        ScriptedAgent.needs_session = needs_session
        ScriptedAgent.needs_model = needs_model
        ScriptedAgent.model_in_session = model_in_session
        before = {key: dict(value) for key, value in registry._registered.items()}
        registry.harness("scripted-agent")(ScriptedAgent)
        registry.environment("fake-environment")(Environment)
        try:
            yield
        finally:
            registry._registered.clear()
            registry._registered.update(before)

    # --- what must hold after every run ---------------------------------------------------------------

    async def _check(self, spec: OrchestrationSpec, result: RunResult, *, resumable: bool) -> None:
        assert result.metrics is not None
        assert result.paths is not None
        counts = result.metrics.counts
        assert counts.planned == counts.finished + counts.failed + counts.cancelled + counts.missing
        stored = Path(result.paths.metrics).read_bytes()  # noqa: ASYNC240
        assert msgspec.json.decode(stored, type=Metrics) == result.metrics
        assert fold_journal(result.paths.journal) == result.metrics
        assert sum(environment.statistics().live for environment in self.environments) == 0
        assert {child.pid for child in live_children()} <= self._children_before
        assert not files_with(CANARY, Path(result.paths.run_dir))
        if resumable and result.status == "completed":
            await self._check_resume_does_nothing(spec, result)

    async def _check_resume_does_nothing(self, spec: OrchestrationSpec, result: RunResult) -> None:
        [request] = spec.requests
        execution = request.execution.model_copy(
            update={"run_id": result.run_id, "reuse": False, "reuse_run_id": None}
        )
        again_spec = spec.model_copy(
            update={"requests": [request.model_copy(update={"execution": execution})]}
        )
        [again] = (await self.orchestrate(again_spec)).requests
        assert again.execution.executed_trials == 0
        assert again.metrics == result.metrics


def trials(result: RunResult) -> list[TrialRecord]:
    """Return every trial on disk."""
    assert result.paths is not None
    return [record for record in read_journal(result.paths.journal) if isinstance(record, TrialRecord)]


def plans(result: RunResult) -> list[PlanRecord]:
    """Return every plan on disk."""
    assert result.paths is not None
    return [record for record in read_journal(result.paths.journal) if isinstance(record, PlanRecord)]


def live_children() -> list[psutil.Process]:
    """Return the processes that this one has started and that still live."""
    return [
        child for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE
    ]


def files_with(text: str, folder: Path) -> list[Path]:
    """Return the files below a folder that hold a text."""
    needle = text.encode()
    return [path for path in folder.rglob("*") if path.is_file() and needle in path.read_bytes()]


class Gauge:
    """Counts who is inside at once."""

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0

    async def stay(self) -> None:
        """Be inside while others get the chance to come."""
        self.now += 1
        self.peak = max(self.peak, self.now)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        self.now -= 1
