"""Any program as the agent: how it gets the prompt, what is taken from it, and how it can break."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import ValidationError

from agentcompass.environments.local import LocalEnvironment, LocalParams
from agentcompass.errors import HarnessError, SessionFileNotFoundError
from agentcompass.harnesses.command import MAX_ARGUMENT_BYTES, CommandHarness, CommandParams
from agentcompass.protocols import Outcome, Session, SessionPlan
from agentcompass.records import CommandStep, Step

from .trial import PlainTrial

pytestmark = pytest.mark.anyio


async def run(trial: PlainTrial, **params: Any) -> Outcome:
    environment = LocalEnvironment(LocalParams())
    harness = CommandHarness(CommandParams(**params))
    with anyio.fail_after(10):
        async with environment.open(SessionPlan(run_id="test", label="command")) as session:
            trial.given_session = session
            return await harness.run(trial)


def only_step(steps: Sequence[Step]) -> CommandStep:
    (step,) = steps
    assert isinstance(step, CommandStep)
    return step


PROMPT = "日本 $HOME `id` 'x' \"y\"\n -- \n"


@pytest.mark.parametrize(
    ("prompt_via", "command"),
    [
        ("file", "cat prompt.txt"),
        ("file", ["cat", "prompt.txt"]),
        ("stdin", "cat"),
        ("stdin", ["cat"]),
        ("argument", "printf %s"),
        ("argument", ["printf", "%s"]),
    ],
)
async def test_prompt_reaches_the_program_byte_for_byte(prompt_via: str, command: str | list[str]) -> None:
    """No way to pass the prompt interprets or strips it, and none strips the answer."""
    outcome = await run(PlainTrial(PROMPT), command=command, prompt_via=prompt_via)
    assert outcome.answer == PROMPT


@pytest.mark.parametrize(
    ("prompt", "why"), [("a\0b", "NUL"), ("x" * (MAX_ARGUMENT_BYTES + 1), "131072 bytes")]
)
async def test_prompt_that_fits_no_argument_is_refused(prompt: str, why: str) -> None:
    """The message says why and what to set."""
    with pytest.raises(HarnessError, match=f"{why}.*prompt_via to 'file'"):
        await run(PlainTrial(prompt), command="true", prompt_via="argument")


async def test_longest_argument_is_passed() -> None:
    """The limit is where the system has it."""
    outcome = await run(PlainTrial("x" * MAX_ARGUMENT_BYTES), command=["printf", "%s"], prompt_via="argument")
    assert len(outcome.answer or "") == MAX_ARGUMENT_BYTES


async def test_undecodable_output_is_replaced() -> None:
    """Stray bytes cost no more than themselves."""
    outcome = await run(PlainTrial(), command=r"printf 'ok\377\376\000end'; printf '\377' >&2")
    assert outcome.answer == "ok\ufffd\ufffd\0end"


@pytest.mark.parametrize(
    ("command", "answer"),
    [("printf 'a\\r\\n \\n' > out/a.txt", "a\r\n \n"), ("echo no", None), (": > out/a.txt", "")],
)
async def test_answer_comes_from_its_file(command: str, answer: str | None) -> None:
    """The file's content is kept as it is; without the file there is no answer."""
    outcome = await run(
        PlainTrial(), command=f"mkdir out; {command}", answer_from="file", answer_file="out/a.txt"
    )
    assert outcome.answer == answer


async def test_artifacts_that_exist_are_kept() -> None:
    """Bytes stay bytes, and a missing file is no error."""
    outcome = await run(
        PlainTrial(), command=r"printf '\377\n\n' > fix.patch", artifacts=["fix.patch", "absent"]
    )
    assert outcome.artifacts == {"fix.patch": b"\xff\n\n"}


async def test_environment_variables_are_passed() -> None:
    """The program finds its settings."""
    assert (await run(PlainTrial(), command="echo $MODE", env={"MODE": "fast"})).answer == "fast\n"


async def test_command_is_recorded() -> None:
    """The trajectory holds what ran and what came back."""
    trial = PlainTrial()
    await run(trial, command=["sh", "-c", "echo out; echo err >&2; exit 3"], accept_exit_codes=[0, 3])
    step = only_step(trial.trajectory.steps)
    assert step.command == "sh -c 'echo out; echo err >&2; exit 3'"
    assert (step.exit_code, step.stdout, step.stderr) == (3, "out\n", "err\n")
    assert 0 <= step.started_seconds < 10


@pytest.mark.parametrize(
    ("command", "code"), [("echo part; echo why >&2; exit 3", 3), ("no-such-agent", 127)]
)
async def test_broken_program_keeps_its_output(command: str, code: int) -> None:
    """An exit code that is not accepted is the agent's fault, with its last words; its step is kept."""
    trial = PlainTrial()
    with pytest.raises(HarnessError, match=rf"exit code {code}: .*(why|not found)"):
        await run(trial, command=command)
    assert only_step(trial.trajectory.steps).exit_code == code


@pytest.mark.slow
async def test_program_that_takes_too_long_is_judged_by_what_it_left() -> None:
    """At the harness's own deadline output, files and the step are kept."""
    trial = PlainTrial()
    outcome = await run(
        trial,
        command="for i in 1 2 3 4 5; do echo $i; done; echo log > log.txt; sleep 977",
        timeout_seconds=1.0,
        artifacts=["log.txt"],
    )
    assert outcome == Outcome(
        answer="1\n2\n3\n4\n5\n", artifacts={"log.txt": b"log\n"}, stop_reason="timeout"
    )
    assert only_step(trial.trajectory.steps).timed_out


async def salvage(command: str, *, cut_at_file: str = "", **params: Any) -> Outcome | None:
    """Run a command, cancel it once it has written a file, and collect what is left."""
    harness = CommandHarness(CommandParams(command=command, **params))
    async with LocalEnvironment(LocalParams()).open(SessionPlan(run_id="test", label="salvage")) as session:
        trial = PlainTrial(given_session=session)
        async with anyio.create_task_group() as group:
            if cut_at_file:
                group.start_soon(_cancel_at_file, session, cut_at_file, group.cancel_scope)
            with suppress(HarnessError):
                await harness.run(trial)
        return await harness.salvage(trial)


async def _cancel_at_file(session: Session, path: str, scope: anyio.CancelScope) -> None:
    with anyio.fail_after(10):
        while True:
            with suppress(SessionFileNotFoundError):
                await session.read(path)
                return scope.cancel()
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("ending", ["exit 1", "touch done; sleep 977"])
async def test_files_of_a_broken_or_cut_program_can_be_salvaged(ending: str) -> None:
    """What the program had written is still there afterwards."""
    outcome = await salvage(
        f"echo 5 > answer.txt; echo log > log.txt; {ending}",
        cut_at_file="done" if "done" in ending else "",
        answer_from="file",
        artifacts=["log.txt", "absent"],
    )
    assert outcome == Outcome(answer="5\n", artifacts={"log.txt": b"log\n"})


async def test_nothing_is_salvaged_where_nothing_was_left() -> None:
    """Output of a broken program is no answer."""
    assert await salvage("echo 5; exit 1", artifacts=["absent"]) is None


@pytest.mark.parametrize("command", ["", []])
def test_empty_command_is_refused(command: str | list[str]) -> None:
    """There must be something to run."""
    with pytest.raises(ValidationError, match="command"):
        CommandParams(command=command)
