"""The loop of mini-swe-agent on our sessions and models: what it hands in, and how it is stopped."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from agentcompass.environments.fake import FakeEnvironment, FakeParams, FakeSession
from agentcompass.environments.local import LocalEnvironment, LocalParams
from agentcompass.errors import (
    ConfigError,
    HarnessError,
    ModelUnavailableError,
    SessionError,
    SessionLostError,
)
from agentcompass.harnesses.mini_swe_agent import MiniSweAgent, MiniSweAgentParams
from agentcompass.protocols import (
    Continuation,
    ExecResult,
    Message,
    Outcome,
    Reply,
    SessionPlan,
    TaskView,
    Tool,
)
from agentcompass.records import CommandStep, NoteStep, ToolCall, Usage

from .trial import PlainTrial

pytestmark = pytest.mark.anyio

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
Turn = Reply | Exception | Callable[[], Awaitable[Reply]]


def bash(*commands: object, name: str = "bash", cost: float | None = None) -> Reply:
    """A turn that calls the tool, once for each command."""
    calls = tuple(
        ToolCall(id=f"call-{number}", name=name, arguments=json.dumps({"command": command}))
        for number, command in enumerate(commands)
    )
    return Reply(
        text="thinking", tool_calls=calls, stop_reason="tool_calls", usage=Usage(calls=1, cost_usd=cost)
    )


class Turns:
    """A model with one turn after another; the last one repeats."""

    id = "turns"

    def __init__(self, *turns: Turn) -> None:
        self.asked: list[Sequence[Message]] = []
        self.asked_twice = anyio.Event()
        self.tools: Sequence[Tool] = ()
        self._turns = turns

    async def complete(self, messages: Sequence[Message], *, tools: Sequence[Tool] = ()) -> Reply:
        turn = self._turns[min(len(self.asked), len(self._turns) - 1)]
        self.asked.append(messages)
        if len(self.asked) == 2:
            self.asked_twice.set()
        self.tools = tools
        match turn:
            case Reply():
                return turn
            case Exception():
                raise turn
        return await turn()


class AskedTrial(PlainTrial):
    """A trial whose prompt is more than the problem."""

    @property
    def task(self) -> TaskView:
        return TaskView(id="t", prompt="the whole prompt", question="the bare problem")


async def build(**params: Any) -> MiniSweAgent:
    return await to_thread.run_sync(lambda: MiniSweAgent(MiniSweAgentParams(**params)))


async def run(model: Turns, *, trial: PlainTrial | None = None, **params: Any) -> Outcome:
    harness = await build(**params)
    trial = trial or PlainTrial()
    trial.given_model = model
    environment = LocalEnvironment(LocalParams(isolation="none"))
    with anyio.fail_after(15):
        async with environment.open(SessionPlan(run_id="test", label="mini")) as session:
            trial.given_session = session
            return await harness.run(trial)


def observations(model: Turns) -> list[str]:
    return [message.content for message in model.asked[-1] if message.role in {"tool", "user"}][1:]


EVERYWHERE = pytest.mark.parametrize("run_in", ["host", pytest.param("session", marks=pytest.mark.slow)])


@EVERYWHERE
async def test_submission_is_the_answer_and_the_patch(run_in: str) -> None:
    """Its text and its bytes, also where they are no text; steps, stop reason and trajectory are kept."""
    trial = PlainTrial()
    model = Turns(bash("printf 'a\\377b\\n' >p"), bash(f"{SUBMIT} && cat p"))
    outcome = await run(model, trial=trial, run_in=run_in)
    assert outcome.answer == "a\ufffdb\n"
    assert outcome.artifacts["patch.diff"] == b"a\xffb\n"
    assert outcome.stop_reason == "Submitted"
    trajectory = json.loads(outcome.artifacts["mini-swe-agent.traj.json"])
    assert trajectory["info"]["exit_status"] == "Submitted"
    steps = [step for step in trial.trajectory.steps if isinstance(step, CommandStep)]
    assert steps[0].command == "printf 'a\\377b\\n' >p"


@EVERYWHERE
async def test_what_the_endpoint_wants_back_is_sent_back(run_in: str) -> None:
    """Signed reasoning goes with its turn into every later call."""
    signed = Continuation(protocol="anthropic", items=({"type": "thinking", "signature": "c2lnbmVk"},))
    model = Turns(replace(bash("true"), continuation=signed), bash(SUBMIT))
    await run(model, run_in=run_in)
    [turn] = [message for message in model.asked[-1] if message.role == "assistant"]
    assert turn.continuation is not None
    assert (turn.continuation.protocol, *turn.continuation.items) == ("anthropic", *signed.items)


async def test_agent_gets_the_bare_problem_and_its_own_instructions() -> None:
    """The packaged template stands around the question, with the work directory of the session."""
    model = Turns(bash(SUBMIT))
    trial = AskedTrial()
    await run(model, trial=trial)
    system, user = model.asked[0]
    assert system.role == "system"
    assert "the bare problem" in user.content
    assert "the whole prompt" not in user.content
    assert trial.session.workdir in user.content
    assert "/testbed" not in user.content
    [tool] = model.tools
    assert tool.name == "bash"


async def test_observations_are_those_of_the_package() -> None:
    """Return code, both streams in order, and a cut in the middle of long output."""
    model = Turns(bash("echo out; echo err >&2; exit 3"), bash("yes | head -c 30000"), bash(SUBMIT))
    await run(model)
    first, second = observations(model)
    assert "<returncode>3</returncode>" in first
    assert "out\nerr\n" in first
    assert "20000 characters elided" in second


async def test_commands_start_anew_and_find_their_variables() -> None:
    """No state is kept between commands; pagers and progress bars are off."""
    model = Turns(bash("cd /; x=1; export y=2"), bash("pwd; echo [$x$y] $PAGER"), bash(SUBMIT))
    trial = PlainTrial()
    await run(model, trial=trial)
    assert f"{trial.session.workdir}\n[] cat" in observations(model)[1]


@EVERYWHERE
async def test_slow_command_is_cut_and_the_agent_is_told(run_in: str) -> None:
    """Its deadline kills it; what it printed is kept."""
    model = Turns(bash("echo begun; sleep 60 & sleep 60"), bash(SUBMIT))
    await run(model, command_timeout=0.5, run_in=run_in)
    [told] = observations(model)
    assert "timed out after 0.5 seconds" in told
    assert "begun" in told


@pytest.mark.parametrize(
    "turn",
    [
        Reply(text="no call"),
        Reply(text="", tool_calls=(ToolCall(id="1", name="bash", arguments='{"command": "ls"'),)),
        Reply(text="", tool_calls=(ToolCall(id="1", name="python", arguments='{"command": "ls"}'),)),
        Reply(text="", tool_calls=(ToolCall(id="1", name="bash", arguments="null"),)),
    ],
    ids=["none", "broken arguments", "unknown tool", "null"],
)
async def test_malformed_turns_are_told_and_end_the_run_at_the_third(turn: Reply) -> None:
    """Each is fed back; three in a row are enough."""
    trial, model = PlainTrial(), Turns(turn)
    outcome = await run(model, trial=trial)
    assert (outcome.answer, outcome.stop_reason) == (None, "RepeatedFormatError")
    assert len(model.asked) == 3
    assert "Tool call error" in observations(model)[-1]
    assert any(isinstance(step, NoteStep) for step in trial.trajectory.steps)


@pytest.mark.parametrize("command", [["ls", "-l"], 3, None, "a\0b"])
async def test_commands_that_cannot_be_run_are_told(command: object) -> None:
    """They end neither the trial nor the engine."""
    model = Turns(bash(command), bash(SUBMIT))
    outcome = await run(model)
    assert outcome.stop_reason == "Submitted"
    assert "An error occurred while executing the command" in observations(model)[0]


async def test_command_that_is_too_long_for_the_system_is_told() -> None:
    """It is not run."""
    model = Turns(bash("x" * 200_000), bash(SUBMIT))
    assert (await run(model)).stop_reason == "Submitted"
    assert "too long" in observations(model)[0]


async def test_step_limit_ends_the_run() -> None:
    """After so many calls, without one more."""
    model = Turns(bash("true"))
    outcome = await run(model, step_limit=2)
    assert (outcome.answer, outcome.stop_reason) == (None, "LimitsExceeded")
    assert len(model.asked) == 2


@EVERYWHERE
async def test_cost_limit_ends_the_run_also_when_replies_are_malformed(run_in: str) -> None:
    """Calls that were billed count, whether or not they parse."""
    malformed = Reply(text="no call", usage=Usage(calls=1, cost_usd=0.25))
    model = Turns(malformed, bash("true", cost=0.25), malformed, bash("true", cost=0.25))
    outcome = await run(model, cost_limit=1.0, run_in=run_in)
    assert outcome.stop_reason == "LimitsExceeded"
    assert len(model.asked) == 4


async def test_unknown_costs_stop_nothing() -> None:
    """Without a limit of a person's own, a model without a price runs."""
    model = Turns(bash("true", cost=None), bash(SUBMIT))
    assert (await run(model)).stop_reason == "Submitted"


async def test_only_ones_own_cost_limit_needs_prices(tmp_path: Path) -> None:
    """The packaged limit holds where prices are known and is no reason to refuse a run."""
    own = tmp_path / "own.yaml"
    await anyio.Path(own).write_text("agent: {cost_limit: 2}")
    assert not (await build()).needs_prices
    assert not (await build(cost_limit=0)).needs_prices
    assert (await build(cost_limit=1)).needs_prices
    assert (await build(config=own)).needs_prices
    assert not (await build(config=own, cost_limit=0)).needs_prices


async def test_own_configuration_lies_over_the_packaged_one(tmp_path: Path) -> None:
    """What it does not say stays; arguments of the harness win."""
    own = tmp_path / "own.yaml"
    await anyio.Path(own).write_text(
        "agent:\n  system_template: Be brief.\n  step_limit: 1\nenvironment: {env: {PAGER: more}}\n"
    )
    model = Turns(bash("echo $PAGER $TQDM_DISABLE"), bash(SUBMIT))
    outcome = await run(model, config=own, step_limit=5)
    assert outcome.stop_reason == "Submitted"
    assert model.asked[0][0].content == "Be brief."
    assert "more 1" in observations(model)[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read"),
        ("[", "is no YAML"),
        ("- a", "must have sections of agent, environment, model"),
        ("agent: 3", "must have sections of agent, environment, model"),
        ("agent: {system_template: 3}", r"agent\.system_template must be a text"),
    ],
)
def test_wrong_configuration_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    """Before anything runs, with the name of the file."""
    own = tmp_path / "own.yaml"
    if text is not None:
        own.write_text(text)
    with pytest.raises(ConfigError, match=message):
        MiniSweAgent(MiniSweAgentParams(config=own))


def test_package_is_imported_without_side_effects() -> None:
    """It greets nobody, keeps out of the environment, and logs to nobody's terminal."""
    before = dict(os.environ)
    MiniSweAgent(MiniSweAgentParams())
    assert dict(os.environ) == before
    assert not logging.getLogger("minisweagent").handlers


# --- being stopped --------------------------------------------------------------------------------


async def hang() -> Reply:
    await anyio.sleep_forever()
    raise AssertionError


@EVERYWHERE
@pytest.mark.parametrize("turn", [bash("sleep 1000"), hang], ids=["in a command", "in a model call"])
async def test_stopped_agent_ends_at_once(turn: Turn, run_in: str) -> None:
    """A deadline or a cancellation ends the thread in the middle of what it waits for; steps are kept."""
    trial, model = PlainTrial(), Turns(bash("echo first"), turn)
    async with anyio.create_task_group() as group:

        async def stop() -> None:
            await model.asked_twice.wait()
            await anyio.sleep(0.1)  # into the command
            group.cancel_scope.cancel()

        group.start_soon(stop)
        await run(model, trial=trial, run_in=run_in)
    assert group.cancel_scope.cancelled_caught
    assert any(isinstance(step, CommandStep) and step.stdout == "first\n" for step in trial.trajectory.steps)


async def test_many_agents_wait_side_by_side() -> None:
    """More than the forty threads that a loop has for everything."""
    arrived = 0
    everyone = anyio.Event()

    async def wait_for_everyone() -> Reply:
        nonlocal arrived
        arrived += 1
        if arrived == 60:
            everyone.set()
        await everyone.wait()
        return bash(SUBMIT)

    harness = await build()

    async def one() -> None:
        environment = FakeEnvironment(FakeParams())
        async with environment.open(SessionPlan(run_id="test", label="mini")) as session:
            with anyio.move_on_after(0.2):
                await harness.run(
                    PlainTrial(given_session=session, given_model=Turns(wait_for_everyone, hang))
                )

    with anyio.fail_after(15):
        async with anyio.create_task_group() as group:
            for _ in range(60):
                group.start_soon(one)


async def test_lost_session_ends_the_agent() -> None:
    """It is no observation: the trial is missing data, by its own type of error."""
    environment = FakeEnvironment(FakeParams(lost_at_exec=3))
    model = Turns(bash("true"))
    with pytest.raises(SessionLostError), anyio.fail_after(10):
        async with environment.open(SessionPlan(run_id="test", label="mini")) as session:
            await (await build()).run(PlainTrial(given_session=session, given_model=model))
    assert len(model.asked) == 2


@EVERYWHERE
async def test_model_that_fails_ends_the_agent(run_in: str) -> None:
    """The engine has retried by then; the error keeps its type."""
    with pytest.raises((ModelUnavailableError, ExceptionGroup)) as caught:
        await run(Turns(bash("true"), ModelUnavailableError("down")), run_in=run_in)
    error = caught.value
    while isinstance(error, ExceptionGroup):  # the engine unwraps it likewise
        [error] = error.exceptions
    assert isinstance(error, ModelUnavailableError)


@pytest.mark.slow
async def test_interpreter_of_this_machine_is_brought_where_the_session_has_none() -> None:
    """The loop runs on it, and the agent's commands do not see it."""
    model = Turns(bash("echo [$PYTHONHOME$PYTHONPATH$LD_LIBRARY_PATH]"), bash(SUBMIT))
    outcome = await run(model, run_in="session", python="no-such-python")
    assert outcome.stop_reason == "Submitted"
    assert "[]" in observations(model)[0]


@pytest.mark.slow
async def test_loop_that_breaks_in_the_session_is_the_agents_fault() -> None:
    """With the last words of its error output."""
    model = Turns(bash("kill -9 $PPID"))
    with pytest.raises((HarnessError, ExceptionGroup)):
        await run(model, run_in="session")


async def test_session_that_cannot_run_the_loop_is_no_fault_of_the_agent() -> None:
    """Neither a Python of its own nor the one of this machine: missing data, with both ways out."""

    async def answer(session: FakeSession, command: str) -> ExecResult:
        made = "mkdir" in command
        return (
            ExecResult(exit_code=0, stdout_bytes=f"{session.workdir}/room".encode())
            if made
            else ExecResult(exit_code=127)
        )

    environment = FakeEnvironment(FakeParams(on_exec=answer))
    harness = await build(run_in="session")
    async with environment.open(SessionPlan(run_id="test", label="mini")) as session:
        with pytest.raises(SessionError, match=r"no fitting Python.*put Python.*or set run_in to 'host'"):
            await harness.run(PlainTrial(given_session=session, given_model=Turns(bash(SUBMIT))))
