"""Open a session for a trial, through the provider's gates and with a deadline."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import anyio

from ..errors import PhaseTimeoutError, SessionError
from ..logs import current_log
from ..protocols import Plan, Session, SessionPlan, Task, WorkspaceBenchmark
from .context import Gathered
from .job import Job

Purpose = Literal["agent", "verifier"]


@asynccontextmanager
async def open_session(
    job: Job, plan: Plan, *, purpose: Purpose, gathered: Gathered
) -> AsyncIterator[Session]:
    """
    Hold a provider slot and an open session while the block runs.

    An error on closing is logged, not raised: the block's result already exists.

    Raises:
        PhaseTimeoutError: Opening took too long.
        SessionOpenError: The provider could not open it.
    """
    waiting_since = job.clock.now()
    provider, borrower = job.components.environment_id, gathered.live.borrower
    gathered.live.now(f"waits for a session of {provider}")
    job.lane.join(borrower)
    async with job.gates.sessions.slot():
        gathered.live.now(f"waits for its turn to open a session of {provider}")
        await job.gates.opens.wait(job.clock)
        job.lane.leave(borrower)
        gathered.queued_seconds += job.clock.now() - waiting_since
        gathered.enter("open")
        finished = False
        seconds = plan.open_timeout_seconds
        try:
            with anyio.move_on_after(seconds) as opening:
                session_plan = _session_plan(job, plan, purpose, gathered)
                async with job.components.environment.open(session_plan) as session:
                    opening.deadline = math.inf
                    yield session
                    finished = True
        except SessionError as error:
            if not finished:
                raise
            current_log().warning("session_close_failed", purpose=purpose, error=str(error))
        if seconds is not None and opening.cancelled_caught:
            raise PhaseTimeoutError("open", seconds)


def _session_plan(job: Job, plan: Plan, purpose: Purpose, gathered: Gathered) -> SessionPlan:
    network = job.components.network
    return SessionPlan(
        run_id=job.run_id,
        label=f"{plan.task.id} {purpose}",
        image=plan.image,
        build=plan.build,
        workdir=plan.workdir,
        env=plan.env,
        network=network.agent if purpose == "agent" else network.verifier,
        note=gathered.note,
        keep=job.execution.keep_environment,
    )


async def set_up(session: Session, task: Task, workspace: WorkspaceBenchmark | None, plan: Plan) -> None:
    """
    Write a task's files into the working directory, and let its benchmark do the rest.

    Raises:
        PhaseTimeoutError: It took longer than opening may.
    """
    seconds = plan.open_timeout_seconds
    with anyio.move_on_after(seconds) as scope:
        for path, content in task.files.items():
            await session.write(path, content)
        if workspace is not None:
            await workspace.prepare(task, session)
    if seconds is not None and scope.cancelled_caught:
        raise PhaseTimeoutError("prepare", seconds)
