"""A request while it runs: what all its attempts share, and how a task of it will be run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from ..clock import Clock
from ..protocols import Environment, Grader, Harness, Plan, Recipe, SalvagingHarness, Task, TaskView, Verifier
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """
    The components of a request, constructed, and what adapts their plans.

    Args:
        salvaging: The harness again, if it can hand something in after its agent was cut short.
        grader: What judges, if it is a grader; else ``verifier`` does.
        verifier_place: Where the verifier works; graders need no session.
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
    grader: Grader | None
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

    def _prompt(self, task: Task) -> str:
        notice = self.components.network.notice if self.components.needs_session else ""
        return f"{task.prompt.rstrip()}\n\n{notice}\n" if notice else task.prompt

    def plan(self, task: Task) -> Plan:
        """Say how a task will be run, recipes applied."""
        parts = self.components
        execution = self.execution
        plan = Plan(
            benchmark=parts.benchmark_id,
            harness=parts.harness_id,
            environment=parts.environment_id,
            task=TaskView(id=task.id, prompt=self._prompt(task), files=task.files),
            image=task.image,
            build=task.build,
            task_timeout_seconds=task.timeout_seconds or DEFAULT_TASK_TIMEOUT_SECONDS,
            verifier_timeout_seconds=execution.verifier_timeout_seconds,
        )
        for recipe in parts.recipes:
            if recipe.matches(plan):
                plan = recipe.apply(plan)
        if execution.task_timeout_seconds is not None:
            plan = replace(plan, task_timeout_seconds=execution.task_timeout_seconds)
        return plan
