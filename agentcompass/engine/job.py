"""A request while it runs: what all its attempts share, and how a task of it will be run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from ..clock import Clock
from ..protocols import (
    Environment,
    Examiner,
    Grader,
    Harness,
    Plan,
    Recipe,
    SalvagingHarness,
    Task,
    TaskView,
    Verifier,
    WorkspaceBenchmark,
)
from ..records import ProgressEvent
from ..spec.network import NetworkPolicy
from ..spec.options import ExecutionOptions
from ..store.writer import RunStore
from .context import ModelClient
from .limits import ProviderGates
from .network import PhaseNetworks
from .outage import OutageBreaker
from .retry import RetryPolicy
from .stop import StopControl
from .workers import WorkerPool

DEFAULT_TASK_TIMEOUT_SECONDS = 3600.0
DEFAULT_VERIFIER_TIMEOUT_SECONDS = 1800.0
DEFAULT_OPEN_TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """
    The components of a request, constructed, and what adapts their plans.

    Args:
        salvaging: The harness again, if it can hand something in after its agent was cut short.
        workspace: The benchmark, if it sets up the agent's session.
        grader: What judges, if it is a grader; else ``verifier`` does.
        examiner: The grader again, if it needs evidence from a session.
        verifier_place: Where the verifier or examiner works; other graders need no session.
    """

    benchmark_id: str
    harness_id: str
    environment_id: str
    harness: Harness
    needs_session: bool
    needs_model: bool
    sees_reference: bool
    environment: Environment
    salvaging: SalvagingHarness | None
    workspace: WorkspaceBenchmark | None
    grader: Grader | None
    examiner: Examiner | None
    verifier: Verifier | None
    verifier_place: Literal["none", "reuse", "fresh"]
    network: PhaseNetworks
    recipes: tuple[Recipe, ...]

    @property
    def networks(self) -> list[NetworkPolicy]:
        """The policies of the sessions that will be opened."""
        agent = [self.network.agent] if self.needs_session or self.verifier_place == "reuse" else []
        verifier = [self.network.verifier] if self.verifier_place == "fresh" else []
        return [*agent, *verifier]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request while it runs."""

    name: str
    run_id: str
    components: Components
    model: ModelClient | None
    execution: ExecutionOptions
    retry: RetryPolicy
    gates: ProviderGates
    breaker: OutageBreaker
    workers: WorkerPool
    store: RunStore
    stop: StopControl
    clock: Clock
    emit: Callable[[ProgressEvent], None]

    def _view(self, task: Task) -> TaskView:
        notice = self.components.network.notice if self.components.needs_session else ""

        def with_notice(text: str) -> str:
            return f"{text.rstrip()}\n\n{notice}\n" if notice and text else text

        return TaskView(
            id=task.id,
            prompt=with_notice(task.prompt),
            question=with_notice(task.question),
            files=task.files,
        )

    def plan(self, task: Task) -> Plan:
        """Say how a task will be run, recipes applied."""
        parts = self.components
        execution = self.execution
        plan = Plan(
            benchmark=parts.benchmark_id,
            harness=parts.harness_id,
            environment=parts.environment_id,
            task=self._view(task),
            image=task.image,
            build=task.build,
            open_timeout_seconds=DEFAULT_OPEN_TIMEOUT_SECONDS,
            task_timeout_seconds=task.timeout_seconds or DEFAULT_TASK_TIMEOUT_SECONDS,
            verifier_timeout_seconds=task.verifier_timeout_seconds or DEFAULT_VERIFIER_TIMEOUT_SECONDS,
        )
        for recipe in parts.recipes:
            if recipe.matches(plan):
                plan = recipe.apply(plan)
        return replace(
            plan,
            open_timeout_seconds=execution.open_timeout_seconds or plan.open_timeout_seconds,
            task_timeout_seconds=execution.task_timeout_seconds or plan.task_timeout_seconds,
            verifier_timeout_seconds=execution.verifier_timeout_seconds or plan.verifier_timeout_seconds,
        )
