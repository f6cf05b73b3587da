"""The command harness: run any program in the session as the agent."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat

from ..errors import HarnessError, SessionFileNotFoundError
from ..protocols import ExecResult, Outcome, Session, Trial
from ..records import CommandStep

PROMPT_FILE = "prompt.txt"
MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""Linux takes no longer argument."""
_STDERR_TAIL_CHARACTERS = 1000


class CommandParams(BaseModel):
    """Which program runs, how it gets the prompt and where it leaves its answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    command: str | list[str] = Field(min_length=1)
    """A line for ``/bin/sh``, or a program with its arguments."""
    prompt_via: Literal["file", "stdin", "argument"] = "file"
    """``prompt.txt`` in the working directory, standard input, or one more argument at the end."""
    answer_from: Literal["stdout", "file"] = "stdout"
    """Whether the answer is the standard output or the content of ``answer_file``; nothing is stripped."""
    answer_file: str = "answer.txt"
    """Where the answer lies; without that file there is no answer."""
    env: dict[str, str] = {}
    """Further environment variables."""
    artifacts: list[str] = []
    """Files to keep, if the program leaves them."""
    timeout_seconds: PositiveFloat | None = None
    """After this long the program is stopped and what it left is judged; None for the deadline of the run."""
    accept_exit_codes: list[int] = [0]
    """Exit codes of a program that has done its work; with any other one the agent broke."""


class CommandHarness:
    """Runs one command per attempt."""

    needs_session: ClassVar[bool] = True
    needs_model: ClassVar[bool] = False
    sees_reference: ClassVar[bool] = False

    def __init__(self, params: CommandParams) -> None:
        self._params = params

    async def run(self, trial: Trial) -> Outcome:
        """
        Run the program and collect what it left.

        Raises:
            HarnessError: It ended with an exit code that is not accepted, or cannot take the prompt.
        """
        result = await self._exec(trial)
        if not result.timed_out and result.exit_code not in self._params.accept_exit_codes:
            tail = result.stderr.strip()[-_STDERR_TAIL_CHARACTERS:] or "nothing on stderr"
            raise HarnessError(f"the agent command ended with exit code {result.exit_code}: {tail}")
        from_file = self._params.answer_from == "file"
        return Outcome(
            answer=await self._answer_in_file(trial.session) if from_file else result.stdout,
            artifacts=await _present_files(trial.session, self._params.artifacts),
            stop_reason="timeout" if result.timed_out else f"exit code {result.exit_code}",
        )

    async def salvage(self, trial: Trial) -> Outcome | None:
        """Collect the files that a program left which was cut short or broke."""
        from_file = self._params.answer_from == "file"
        answer = await self._answer_in_file(trial.session) if from_file else None
        artifacts = await _present_files(trial.session, self._params.artifacts)
        return None if answer is None and not artifacts else Outcome(answer=answer, artifacts=artifacts)

    async def _exec(self, trial: Trial) -> ExecResult:
        params, prompt = self._params, trial.task.prompt.encode("utf-8", "replace")
        began = time.monotonic()
        if params.prompt_via == "file":
            await trial.session.write(PROMPT_FILE, prompt)
        command = (
            _with_argument(params.command, prompt) if params.prompt_via == "argument" else params.command
        )
        started_seconds = time.monotonic() - began
        result = await trial.session.exec(
            command,
            env=params.env,
            stdin=prompt if params.prompt_via == "stdin" else b"",
            timeout_seconds=params.timeout_seconds,
        )
        trial.trajectory.add(command_step(params.command, result, started_seconds))
        return result

    async def _answer_in_file(self, session: Session) -> str | None:
        path = self._params.answer_file
        content = (await _present_files(session, [path])).get(path)
        return None if content is None else content.decode("utf-8", "replace")


def _with_argument(command: str | list[str], prompt: bytes) -> Sequence[str]:
    if b"\0" in prompt or len(prompt) > MAX_ARGUMENT_BYTES:
        why = "holds a NUL character" if b"\0" in prompt else f"has {len(prompt)} bytes"
        raise HarnessError(
            f"the prompt {why}, so it cannot be passed as an argument; set prompt_via to 'file' or 'stdin'"
        )
    text = prompt.decode()
    if isinstance(command, str):
        return ["/bin/sh", "-c", f'{command} "$1"', "sh", text]
    return [*command, text]


def command_step(command: str | list[str], result: ExecResult, started_seconds: float) -> CommandStep:
    """Turn a command and what became of it into a step."""
    return CommandStep(
        command=command if isinstance(command, str) else shlex.join(command),
        exit_code=result.exit_code,
        stdout=result.stdout,
        stderr=result.stderr,
        timed_out=result.timed_out,
        truncated=result.truncated,
        started_seconds=started_seconds,
        duration_seconds=result.duration_seconds,
    )


async def _present_files(session: Session, paths: Sequence[str]) -> Mapping[str, bytes]:
    files = {}
    for path in paths:
        try:
            files[path] = await session.read(path)
        except SessionFileNotFoundError:
            continue
    return files
