"""A request while it runs: what all its attempts share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ..clock import Clock
from ..protocols import (
    Environment,
    Examiner,
    Grader,
    Harness,
    SalvagingHarness,
    Verifier,
    WorkspaceBenchmark,
)
from ..records import ProgressEvent
from ..spec.network import NetworkPolicy
from ..spec.options import ExecutionOptions
from ..store.writer import RunStore
from .context import ModelClient
from .limits import ProviderGates
from .live import LiveAttempts
from .network import PhaseNetworks
from .outage import OutageBreaker
from .recipes import NamedRecipe
from .retry import RetryPolicy
from .schedule import Lane, Place
from .stop import RequestStop
from .workers import WorkerPool


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
    recipes: tuple[NamedRecipe, ...]

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
    lane: Lane
    place: Place
    live: LiveAttempts
    breaker: OutageBreaker
    workers: WorkerPool
    store: RunStore
    stop: RequestStop
    clock: Clock
    emit: Callable[[ProgressEvent], None]
