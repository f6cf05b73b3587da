"""The scripted protocol: answers from a file or a function."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio.lowlevel
import pytest

from agentcompass.errors import (
    ConfigError,
    ModelAuthError,
    ModelError,
    ModelReplyError,
    ModelRequestError,
    ModelUnavailableError,
    RateLimitedError,
)
from agentcompass.llm.client import ModelClient, open_model
from agentcompass.llm.endpoint import Endpoint
from agentcompass.protocols import Message, Reply
from agentcompass.records import ToolCall, Usage

from .endpoints import Calls, FakeClock

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def scripted(
    script: object, clock: FakeClock | None = None, **fields: Any
) -> AsyncIterator[ModelClient]:
    params = {"script": script, **fields.pop("params", {})}
    endpoint = Endpoint(model_id="script", protocol="scripted", params=params, **fields)
    async with open_model(endpoint, clock=clock or FakeClock(), rng=Random(1)) as model:
        yield model


async def say(model: ModelClient, *texts: str, calls: Calls | None = None) -> Reply:
    """Hold a conversation of user texts with earlier answers between them, and return the next answer."""
    messages: list[Message] = []
    for text in texts:
        messages += [Message(role="user", content=text), Message(role="assistant", content="...")]
    return await model.complete(messages[:-1], on_call=(calls or Calls()).usages.append)


@pytest.fixture
def script(tmp_path: Path) -> anyio.Path:
    return anyio.Path(tmp_path / "script.jsonl")


async def test_turn_decides_and_last_line_repeats(script: anyio.Path) -> None:
    """The n-th turn of every conversation gets the n-th line, however many run."""
    await script.write_text('{"text": "one"}\n\n{"text": "two"}\n', encoding="utf-8")
    async with scripted(str(script)) as model:
        answers = [(await say(model, *"abc"[:turns])).text for turns in (1, 1, 2, 3, 1)]
    assert answers == ["one", "one", "two", "two", "one"]


async def test_explicit_turns(script: anyio.Path) -> None:
    """A line may name its turn; turns between two lines get the earlier one."""
    await script.write_text('{"turn": 3, "text": "late"}\n{"turn": 1, "text": "early"}\n', encoding="utf-8")
    async with scripted(Path(script)) as model:
        answers = [(await say(model, *"abcd"[:turns])).text for turns in (1, 2, 3, 4)]
    assert answers == ["early", "early", "late", "late"]


async def test_longest_match_wins_over_shorter_and_over_none(script: anyio.Path) -> None:
    """The more a line wants to see in the last user message, the better it fits."""
    lines = ['{"text": "any"}', '{"match": "task/1", "text": "1"}', '{"match": "task/12", "text": "12"}']
    await script.write_text("\n".join(lines), encoding="utf-8")
    async with scripted(str(script)) as model:
        asked = ("do task/1", "do task/12 now", "hello")
        assert [(await say(model, text)).text for text in asked] == ["1", "12", "any"]
        assert (await say(model, "do task/1", "and now?")).text == "any"


async def test_no_fitting_line_is_a_wrong_request(script: anyio.Path) -> None:
    """The error names the script and what was asked."""
    await script.write_text('{"match": "x", "text": "y"}', encoding="utf-8")
    async with scripted(str(script)) as model:
        with pytest.raises(ModelRequestError, match=r"no line of .*script.jsonl fits turn 1 of 'other'"):
            await say(model, "other")


async def test_line_gives_everything_a_reply_has(script: anyio.Path) -> None:
    """Reasoning, tool calls that need not be valid, usage and stop reason."""
    await script.write_text(
        '{"text": "t", "reasoning": "r", "usage": {"input_tokens": 3, "output_tokens": 2},'
        ' "tool_calls": [{"name": "bash", "arguments": "{not json"}]}\n'
        '{"text": "cut", "stop_reason": "length"}\n',
        encoding="utf-8",
    )
    calls = Calls()
    async with scripted(str(script)) as model:
        first, second = await say(model, "a", calls=calls), await say(model, "a", "b")
    assert (first.text, first.reasoning, first.stop_reason) == ("t", "r", "tool_calls")
    assert tuple(first.tool_calls) == (ToolCall(id="call_0", name="bash", arguments="{not json"),)
    assert calls.usages == [first.usage] == [Usage(calls=1, input_tokens=3, output_tokens=2)]
    assert second.stop_reason == "length"


@pytest.mark.parametrize("fault", ["rate_limit", "unavailable", "malformed"])
async def test_transient_faults_take_the_retry_path(script: anyio.Path, fault: str) -> None:
    """The tries of a turn get its faults one by one, and then its answer; in every conversation."""
    await script.write_text(
        f'{{"fault": "{fault}"}}\n' * 2 + '{"text": "at last"}\n{"text": "next"}', encoding="utf-8"
    )
    calls, clock = Calls(), FakeClock()
    async with scripted(str(script), clock) as model:
        reply = await say(model, "a", calls=calls)
        assert (await say(model, "b")).usage.calls == 3
        assert (await say(model, "a", "b")).text == "next"
    assert (reply.text, reply.usage.calls, reply.usage.failed_calls) == ("at last", 3, 2)
    assert calls.total == reply.usage
    assert len([pause for pause in clock.slept if pause]) == 4


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("rate_limit", RateLimitedError),
        ("unavailable", ModelUnavailableError),
        ("auth", ModelAuthError),
        ("malformed", ModelReplyError),
    ],
)
async def test_fault_without_an_answer_after_it_lasts(
    script: anyio.Path, fault: str, kind: type[ModelError]
) -> None:
    """Each fault raises its error once the retries are used up."""
    await script.write_text(f'{{"fault": "{fault}"}}', encoding="utf-8")
    async with scripted(str(script), max_retries=2) as model:
        with pytest.raises(kind):
            await say(model, "a")


async def test_hanging_fault_ends_at_the_total_limit(script: anyio.Path) -> None:
    """A hang is what a silent endpoint is."""
    await script.write_text('{"fault": "hang"}\n{"text": "back"}', encoding="utf-8")
    async with scripted(str(script), total_timeout_seconds=0.2, max_retries=1) as model:
        assert (await say(model, "a")).text == "back"


async def test_latency_of_a_line_replaces_that_of_the_params(script: anyio.Path) -> None:
    """Latency passes on the clock of the client."""
    await script.write_text('{"text": "a"}\n{"text": "b", "latency_seconds": 0.5}', encoding="utf-8")
    clock = FakeClock()
    async with scripted(str(script), clock, params={"latency_seconds": 2}) as model:
        await say(model, "a")
        await say(model, "a", "b")
    assert clock.slept == [2, 0.5]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no lines"),
        ('{"text": "a"}\n{"txt": "b"}', r"script.jsonl, line 2: .*unknown field `txt`"),
        ("text", r"script.jsonl, line 1: "),
        ('{"fault": "flood"}', "line 1: Invalid enum value 'flood'"),
        ('{"turn": 0}', "line 1: Expected `int` >= 1"),
        ('{"latency_seconds": -1}', "line 1: Expected `float` >= 0"),
    ],
)
async def test_wrong_script_is_refused_with_its_place(script: anyio.Path, content: str, message: str) -> None:
    """A mistake in a script shows before the first call."""
    await script.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        async with scripted(str(script)):
            pass


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "needs params with 'script'"),
        ({"script": 7}, "needs params with 'script'"),
        ({"script": "/nowhere/script.jsonl"}, "cannot read the script"),
        ({"script": lambda _messages: "x", "latency_seconds": -1}, "latency_seconds"),
    ],
)
async def test_wrong_params_are_refused(params: dict[str, Any], message: str) -> None:
    """Without a usable script there is no model."""
    with pytest.raises(ConfigError, match=message):
        async with open_model(Endpoint(model_id="m", protocol="scripted", params=params)):
            pass


def shout(messages: Sequence[Message]) -> str:
    time.sleep(0)  # may block: it runs in a thread
    return messages[-1].content.upper()


async def shout_async(messages: Sequence[Message]) -> Reply:
    await anyio.lowlevel.checkpoint()
    return Reply(text=messages[-1].content.upper(), usage=Usage(input_tokens=4))


def give_later(messages: Sequence[Message]) -> Awaitable[Reply]:
    return shout_async(messages)


class Shouter:
    async def __call__(self, messages: Sequence[Message]) -> str:
        return messages[-1].content.upper()


@pytest.mark.parametrize("function", [shout, shout_async, Shouter(), give_later])
async def test_any_kind_of_function_answers(function: object) -> None:
    """Plain, async and callable objects, returning text or a reply."""
    async with scripted(function) as model:
        reply = await say(model, "hey")
    assert (reply.text, reply.usage.calls) == ("HEY", 1)


async def test_function_that_raises_a_model_error_is_tried_again() -> None:
    """So that a function can play any fault."""
    faults = iter([ModelUnavailableError("down")])

    def answer(_messages: Sequence[Message]) -> str:
        for fault in faults:
            raise fault
        return "up"

    async with scripted(answer) as model:
        reply = await say(model, "hey")
    assert (reply.text, reply.usage.calls, reply.usage.failed_calls) == ("up", 2, 1)


async def test_function_with_a_bug_is_not_hidden() -> None:
    """Its own exception comes through, and the call is metered as failed."""

    def answer(_messages: Sequence[Message]) -> str:
        raise KeyError("oops")

    calls = Calls()
    async with scripted(answer) as model:
        with pytest.raises(KeyError):
            await say(model, "hey", calls=calls)
    assert calls.usages == [Usage(calls=1, failed_calls=1)]
