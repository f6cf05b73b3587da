"""What a harness sees of its trial, and what the engine gathers while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Protocol

import msgspec

from ..clock import Clock
from ..errors import ModelError, Phase, TrialError
from ..logs import current_log
from ..protocols import Message, Model, Outcome, Reply, Session, TaskView, Tool, Trajectory
from ..records import NO_USAGE, ModelStep, NoteStep, Step, Usage
from .live import LiveAttempt

_MAX_NOTES = 200
"""Of one trial's environments."""
PHASES: Mapping[Phase, str] = {
    "plan": "starting",
    "open": "opens a session",
    "prepare": "sets up its session",
    "agent": "runs its agent",
    "verify": "verifies",
    "close": "closes its session",
}
"""What people read about each phase of a trial."""
_MODEL_CALL = "waits for the model"
_MODEL_PAUSE = "waits before it calls the model again"


class ModelClient(Protocol):
    """A model that reports the usage of every single call, failed ones included."""

    @property
    def id(self) -> str: ...

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        on_call: Callable[[Usage], None],
        on_pause: Callable[[bool], None],
    ) -> Reply: ...


@dataclass(slots=True)
class Gathered:
    """
    Everything known of a trial so far; survives a deadline, a crash and a cancellation.

    Args:
        live: Told what the attempt does or waits for.
        on_phase: Told the name of each phase as it begins.
        on_step: Told that there is one more step.
    """

    clock: Clock
    live: LiveAttempt
    on_phase: Callable[[Phase], None]
    on_step: Callable[[Gathered], None]
    phase: Phase = "plan"
    prompt: str = ""
    usage: Usage = NO_USAGE
    steps: list[Step] = field(default_factory=list)
    outcome: Outcome | None = None
    timed_out: bool = False
    agent_error: TrialError | None = None
    queued_seconds: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    _phase_started: float = 0.0
    _notes: int = 0

    def enter(self, phase: Phase) -> None:
        """Begin a phase."""
        self.leave()
        self.phase = phase
        self.live.now(PHASES[phase])
        self.on_phase(phase)

    def leave(self) -> None:
        """Add the time spent since ``enter`` to the phase's account."""
        now = self.clock.now()
        if self.phase != "plan":
            self.seconds[self.phase] = self.seconds.get(self.phase, 0.0) + now - self._phase_started
        self._phase_started = now

    def add(self, step: Step) -> None:
        """Append a step of the trajectory."""
        self.steps.append(step)
        self.on_step(self)

    def note(self, text: str) -> None:
        """Add what an environment has to say to the trajectory and the log, up to a limit."""
        self._notes += 1
        if self._notes > _MAX_NOTES:
            return
        if self._notes == _MAX_NOTES:
            text = "further notes of the environment are left out"
        self.add(NoteStep(text=text, started_seconds=self.elapsed()))
        current_log().info("environment_note", text=text)

    def elapsed(self) -> float:
        """Seconds since the current phase began."""
        return self.clock.now() - self._phase_started


class MeteredModel:
    """A model whose calls are counted and become steps of the trajectory."""

    def __init__(self, client: ModelClient, gathered: Gathered) -> None:
        self._client = client
        self._gathered = gathered

    @property
    def id(self) -> str:
        return self._client.id

    async def complete(self, messages: Sequence[Message], *, tools: Sequence[Tool] = ()) -> Reply:
        started = self._gathered.elapsed()
        spent = NO_USAGE

        def count(usage: Usage) -> None:
            nonlocal spent
            spent += usage
            self._gathered.usage += usage

        def add_step(step: ModelStep) -> None:
            duration = self._gathered.elapsed() - started
            self._gathered.add(
                msgspec.structs.replace(step, usage=spent, started_seconds=started, duration_seconds=duration)
            )

        live = self._gathered.live
        live.now(_MODEL_CALL)
        try:
            reply = await self._client.complete(
                messages,
                tools=tools,
                on_call=count,
                on_pause=lambda pausing: live.now(_MODEL_PAUSE if pausing else _MODEL_CALL),
            )
        except ModelError as error:
            add_step(ModelStep(error=f"{type(error).__name__}: {error}"))
            raise
        finally:
            live.now(PHASES["agent"])
        add_step(
            ModelStep(
                text=reply.text,
                reasoning=reply.reasoning,
                tool_calls=tuple(reply.tool_calls),
                stop_reason=reply.stop_reason,
            )
        )
        return reply


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialContext:
    """One trial as its harness sees it; what the harness did not ask for is not there."""

    task: TaskView
    attempt: int
    seed: int
    trajectory: Trajectory
    reference: str | None
    hidden: Mapping[str, Any]
    open_session: Session | None
    metered_model: Model | None

    @property
    def session(self) -> Session:
        if self.open_session is None:
            raise RuntimeError("this harness has no session: set needs_session = True")
        return self.open_session

    @property
    def model(self) -> Model:
        if self.metered_model is None:
            raise RuntimeError("this harness has no model: set needs_model = True")
        return self.metered_model


def attempt_seed(run_seed: int, task_id: str, attempt: int) -> int:
    """Derive a seed that differs between attempts and repeats with them; 32 bits."""
    digest = sha256(f"{run_seed}\0{task_id}\0{attempt}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4])
