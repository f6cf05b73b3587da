"""The harnesses that need no session: chat, the controls and the fakes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from anyio import to_thread

from agentcompass.errors import HarnessError
from agentcompass.harnesses.chat import ChatHarness, ChatParams
from agentcompass.harnesses.command import CommandHarness
from agentcompass.harnesses.fake import CallableHarness, InstantHarness, InstantParams
from agentcompass.harnesses.forger import ForgerHarness
from agentcompass.harnesses.null import NullHarness, NullParams
from agentcompass.harnesses.oracle import OracleHarness, OracleParams
from agentcompass.harnesses.snoop import SnoopHarness
from agentcompass.protocols import PATCH_ARTIFACT, Harness, Message, Outcome, Reply, Trial

from .trial import OneReplyModel, PlainTrial

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("system_prompt", ["", "Be brief."])
async def test_chat_asks_once_and_hands_in_the_reply(system_prompt: str) -> None:
    """The answer is the reply's text as it is, without its reasoning; the model sees only the prompt."""
    model = OneReplyModel(Reply(text=" 42\n\ud800", reasoning="hm", stop_reason="length"))
    outcome = await ChatHarness(ChatParams(system_prompt=system_prompt)).run(PlainTrial(given_model=model))
    system = [Message(role="system", content="Be brief.")] if system_prompt else []
    assert model.asked == [[*system, Message(role="user", content="the task")]]
    assert outcome == Outcome(answer=" 42\n\ud800", stop_reason="length")


async def test_chat_hands_in_an_empty_reply() -> None:
    """A reply without content is an empty answer, not an error."""
    model = OneReplyModel(Reply(text="", reasoning="42"))
    assert (await ChatHarness(ChatParams()).run(PlainTrial(given_model=model))).answer == ""


async def test_oracle_hands_in_the_reference() -> None:
    """The reference goes in byte for byte."""
    outcome = await OracleHarness(OracleParams()).run(PlainTrial(reference=" x\r\n"))
    assert outcome.answer == " x\r\n"


async def test_oracle_without_reference_says_so() -> None:
    """A task without reference is named."""
    with pytest.raises(HarnessError, match="task 't' has no reference"):
        await OracleHarness(OracleParams()).run(PlainTrial())


async def test_null_hands_in_nothing() -> None:
    """There is no answer, not an empty one."""
    assert await NullHarness(NullParams()).run(PlainTrial(reference="x")) == Outcome(stop_reason="done")


async def test_null_hands_in_an_empty_answer() -> None:
    """Also an empty patch, for benchmarks that take patches."""
    outcome = await NullHarness(NullParams(hands_in="empty")).run(PlainTrial())
    assert (outcome.answer, outcome.artifacts) == ("", {PATCH_ARTIFACT: b""})


async def test_idle_patch_applies_anywhere(tmp_path: Path) -> None:
    """It only adds a file."""
    outcome = await NullHarness(NullParams(hands_in="idle_patch")).run(PlainTrial())
    patch = outcome.artifacts[PATCH_ARTIFACT]
    await to_thread.run_sync(lambda: subprocess.run(["git", "apply"], input=patch, cwd=tmp_path, check=True))
    assert [path.name for path in tmp_path.iterdir()] == ["agentcompass-idle.txt"]  # noqa: ASYNC240


async def test_instant_harness_hands_in_its_answer() -> None:
    """The default is what the fake benchmark takes for right."""
    assert (await InstantHarness(InstantParams()).run(PlainTrial())).answer == "ok"


async def test_callable_harness_does_what_its_function_does() -> None:
    """The function gets the trial, and what it raises comes out."""

    async def run(trial: Trial) -> Outcome:
        raise HarnessError(trial.task.prompt)

    with pytest.raises(HarnessError, match="the task"):
        await CallableHarness(run).run(PlainTrial())


def test_only_controls_see_references() -> None:
    """No other harness may ask for what is hidden."""
    harnesses: list[type[Harness]] = [
        ChatHarness,
        OracleHarness,
        NullHarness,
        InstantHarness,
        CommandHarness,
        ForgerHarness,
        SnoopHarness,
    ]
    assert [one for one in harnesses if one.sees_reference] == [OracleHarness, ForgerHarness, SnoopHarness]
    assert [one for one in harnesses if one.needs_session] == [CommandHarness, ForgerHarness, SnoopHarness]
    assert [one for one in harnesses if one.needs_model] == [ChatHarness]
