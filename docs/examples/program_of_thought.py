"""A harness whose agent answers by a program: it writes one, runs it, and mends it if it fails."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, PositiveInt

from agentcompass import CommandStep, ExecResult, HarnessError, Message, Outcome, Trial, harness

_COMMAND = "python3 program.py"


class ProgramOfThoughtParams(BaseModel):
    """How the agent works."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    rounds: PositiveInt = 3
    """How many programs it may write."""


@harness("program_of_thought")
class ProgramOfThought:
    """Hands in what the first program that succeeds has printed."""

    needs_session: ClassVar[bool] = True
    needs_model: ClassVar[bool] = True
    sees_reference: ClassVar[bool] = False

    def __init__(self, params: ProgramOfThoughtParams) -> None:
        self._rounds = params.rounds

    async def run(self, trial: Trial) -> Outcome:
        """Write and run programs until one succeeds."""
        await trial.session.write("question.txt", trial.task.prompt.encode("utf-8", "replace"))
        ask = f"{trial.task.prompt}\n\nWrite a Python program that prints the answer; reply with its code."
        messages = [Message(role="user", content=ask)]
        for _ in range(self._rounds):
            reply = await trial.model.complete(messages)
            result = await self._run_program(trial, _code(reply.text))
            if result.exit_code == 0:
                return Outcome(answer=result.stdout, stop_reason="program succeeded")
            complaint = f"It ended with exit code {result.exit_code}: {result.stderr[-1000:]}"
            messages += [
                Message(role="assistant", content=reply.text),
                Message(role="user", content=complaint),
            ]
        raise HarnessError(f"none of {self._rounds} programs succeeded")

    async def _run_program(self, trial: Trial, code: str) -> ExecResult:
        await trial.session.write("program.py", code.encode("utf-8", "replace"))
        result = await trial.session.exec(_COMMAND, timeout_seconds=60)
        trial.trajectory.add(
            CommandStep(
                command=_COMMAND,
                exit_code=result.exit_code,
                stdout=result.stdout,
                stderr=result.stderr,
                timed_out=result.timed_out,
            )
        )
        return result


def _code(text: str) -> str:
    block = re.search(r"```\w*\n(.*?)```", text, re.S)
    return block[1] if block else text
