"""One trial, from opening the session to the verdict; what happens is gathered as it happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import anyio

from ..errors import PhaseTimeoutError, TrialError, VerifierError
from ..logs import current_log
from ..protocols import Grader, Outcome, Plan, SalvagingHarness, Session, Task, Verdict
from .context import Gathered, MeteredModel, TrialContext, attempt_seed
from .job import Job
from .plans import DEFAULT_VERIFIER_TIMEOUT_SECONDS, plan_of
from .returned import as_outcome, as_verdict
from .session import open_session, set_up
from .workers import WorkerCallError

_SALVAGE_SECONDS = 60.0


async def run_trial(job: Job, task: Task, attempt: int, gathered: Gathered) -> Verdict | None:
    """
    Carry out one trial.

    Returns:
        The verdict, or None when the agent was cut short or broke and left nothing to verify.

    Raises:
        TrialError: Environment, endpoint or verifier failed.
    """
    plan = plan_of(task, job.components, job.execution)
    gathered.prompt = plan.task.prompt
    where = job.components.verifier_place
    async with AsyncExitStack() as stack:
        session = None
        if job.components.needs_session or where == "reuse":
            session = await stack.enter_async_context(
                open_session(job, plan, purpose="agent", gathered=gathered)
            )
            gathered.enter("prepare")
            await set_up(session, task, job.components.workspace, plan)
        context = _context(job, plan, task, attempt, session=session, gathered=gathered)
        await _run_agent(job, plan, context, gathered)
        if session is not None:
            await _fetch(job, task, gathered, session)
        if session is not None and where == "reuse":
            await _examine(job, plan, task, gathered, session)
            return await _verify(job, plan, task, gathered, session)
    # The agent's session is closed by now: it may have held the provider's last slot.
    if gathered.outcome is None:
        return None
    examiner = job.components.examiner
    if where == "fresh" and (examiner is None or examiner.needs_session(task, gathered.outcome)):
        async with open_session(job, plan, purpose="verifier", gathered=gathered) as session:
            if examiner is None:
                return await _verify(job, plan, task, gathered, session)
            await _examine(job, plan, task, gathered, session)
    return await _verify(job, plan, task, gathered, None)


def _context(
    job: Job, plan: Plan, task: Task, attempt: int, *, session: Session | None, gathered: Gathered
) -> TrialContext:
    parts = job.components
    return TrialContext(
        task=plan.task,
        attempt=attempt,
        seed=attempt_seed(job.execution.seed, task.id, attempt),
        trajectory=gathered,
        reference=task.reference if parts.sees_reference else None,
        hidden=task.hidden if parts.sees_reference else {},
        open_session=session if parts.needs_session else None,
        metered_model=MeteredModel(job.model, gathered) if job.model and parts.needs_model else None,
    )


async def _run_agent(job: Job, plan: Plan, context: TrialContext, gathered: Gathered) -> None:
    """Let the agent work within its deadline; a deadline or a broken agent is an outcome, not an error."""
    gathered.enter("agent")
    harness = job.components.harness
    try:
        with anyio.move_on_after(plan.task_timeout_seconds) as scope, _single_errors():
            gathered.outcome = as_outcome(await harness.run(context))
        gathered.timed_out = scope.cancelled_caught
    except TrialError as error:
        if not error.agent_fault:
            raise
        gathered.agent_error = error
    salvaging = job.components.salvaging
    if gathered.outcome is None and salvaging is not None:
        await _salvage(salvaging, context, gathered)


async def _salvage(harness: SalvagingHarness, context: TrialContext, gathered: Gathered) -> None:
    try:
        with anyio.move_on_after(_SALVAGE_SECONDS):
            salvaged = await harness.salvage(context)
            gathered.outcome = None if salvaged is None else as_outcome(salvaged)
    except TrialError as error:
        current_log().warning("salvage_failed", error=str(error))


async def _fetch(job: Job, task: Task, gathered: Gathered, session: Session) -> None:
    workspace = job.components.workspace
    if workspace is None:
        return
    with anyio.move_on_after(_SALVAGE_SECONDS) as scope, _single_errors():
        fetched = await workspace.fetch(task, gathered.outcome, session)
        gathered.outcome = None if fetched is None else as_outcome(fetched)
    if scope.cancelled_caught:
        raise PhaseTimeoutError("agent", _SALVAGE_SECONDS)


async def _examine(job: Job, plan: Plan, task: Task, gathered: Gathered, session: Session) -> None:
    """Let the evidence be collected; it is kept with the outcome, whatever becomes of the grading."""
    examiner, outcome = job.components.examiner, gathered.outcome or Outcome()
    if examiner is None or not examiner.needs_session(task, outcome):
        return
    gathered.enter("verify")
    seconds = plan.verifier_timeout_seconds
    with anyio.move_on_after(seconds) as scope, _single_errors():
        gathered.outcome = as_outcome(await examiner.examine(task, outcome, session))
    if seconds is not None and scope.cancelled_caught:
        raise PhaseTimeoutError("verify", seconds)


async def _verify(job: Job, plan: Plan, task: Task, gathered: Gathered, session: Session | None) -> Verdict:
    gathered.enter("verify")
    grader, verifier = job.components.grader, job.components.verifier
    outcome = gathered.outcome or Outcome()
    seconds = plan.verifier_timeout_seconds or DEFAULT_VERIFIER_TIMEOUT_SECONDS
    if grader is not None:
        return await _grade(job, grader, task, outcome, seconds)
    assert verifier is not None
    with anyio.move_on_after(seconds) as scope, _single_errors():
        return as_verdict(await verifier.verify(task, outcome, session))
    assert scope.cancelled_caught
    raise PhaseTimeoutError("verify", seconds)


async def _grade(job: Job, grader: Grader, task: Task, outcome: Outcome, seconds: float) -> Verdict:
    try:
        value = await job.workers.run(grader.grade, task, outcome, timeout_seconds=seconds)
    except TimeoutError:
        raise PhaseTimeoutError("verify", seconds) from None
    except WorkerCallError as error:
        raise VerifierError(f"the grader failed: {error}") from error
    return as_verdict(value)


@contextmanager
def _single_errors() -> Iterator[None]:
    """Unwrap what a component's own task group wrapped, so that a single failure keeps its class."""
    try:
        yield
    except ExceptionGroup as group:
        leaf: Exception = group
        while isinstance(leaf, ExceptionGroup) and len(leaf.exceptions) == 1:
            leaf = leaf.exceptions[0]
        raise leaf from group.__cause__
