"""A plugin: harnesses that hang or go wrong in every way."""

from __future__ import annotations

from typing import ClassVar

import anyio

from agentcompass import CommandStep, HarnessError, Outcome, SessionOpenError, Trial, harness


@harness("hang")
class Hang:
    """Hangs on every task but the first. For tests."""

    needs_session: ClassVar[bool] = False
    needs_model: ClassVar[bool] = False
    sees_reference: ClassVar[bool] = False

    async def run(self, trial: Trial) -> Outcome:
        """Hand in the right answer to the first task."""
        if trial.task.id != "t0000":
            await anyio.sleep_forever()
        return Outcome(answer="ok")


@harness("mixed")
class Mixed:
    """Passes, fails, breaks and finds no machine, in turn."""

    needs_session: ClassVar[bool] = False
    needs_model: ClassVar[bool] = False
    sees_reference: ClassVar[bool] = False

    async def run(self, trial: Trial) -> Outcome:
        """Do what the number of the task says."""
        step = CommandStep(command="echo \x1b[31m[bold]hi", exit_code=0, stdout="tab\tbell\x07")
        trial.trajectory.add(step)
        match int(trial.task.id[1:]) % 4:
            case 0:
                return Outcome(answer="ok", artifacts={"patch": b"diff"})
            case 1:
                return Outcome(answer="[red]wrong[/red]")
            case 2:
                raise HarnessError("broke \x1b[2J[bold]")
        raise SessionOpenError("no machine")
