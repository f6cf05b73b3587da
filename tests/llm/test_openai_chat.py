"""The openai-chat protocol: what is sent, and what is made of the replies."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from pydantic import SecretStr

from agentcompass.errors import ModelReplyError, ModelUnavailableError
from agentcompass.llm.mock_bodies import chat_completion
from agentcompass.protocols import Message, Tool
from agentcompass.records import ToolCall, Usage

from .endpoints import always, open_setup, with_message

pytestmark = pytest.mark.anyio

BILLED = Usage(calls=1, input_tokens=10, output_tokens=5)
BILLED_FAILURE = Usage(calls=1, failed_calls=1, input_tokens=10, output_tokens=5)
LS = ToolCall(id="a1", name="bash", arguments='{"command": "ls"}')
BASH = Tool(name="bash", description="Run it.", parameters=MappingProxyType({"type": "object"}))


async def test_plain_answer_is_returned_with_its_usage() -> None:
    """Text, stop reason and token counts arrive; the call is metered once."""
    async with open_setup(always(body=chat_completion("four"))) as setup:
        reply = await setup.ask()
    assert (reply.text, reply.stop_reason, reply.usage) == ("four", "stop", BILLED)
    assert setup.calls.usages == [BILLED]


async def test_conversation_and_tools_are_sent_in_the_documented_form() -> None:
    """Every kind of message, its tool calls and the tools reach the endpoint."""
    messages = [
        Message(role="system", content="Be brief."),
        Message(role="user", content="List."),
        Message(role="assistant", content="", tool_calls=[LS]),
        Message(role="tool", content="a.txt", tool_call_id="a1"),
    ]
    async with open_setup(always()) as setup:
        await setup.ask(messages, tools=[BASH])
        body = setup.server.requests[0].body
    function = {"name": "bash", "arguments": LS.arguments}
    assert body == {
        "model": "mock-1",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "List."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a1", "type": "function", "function": function}],
            },
            {"role": "tool", "content": "a.txt", "tool_call_id": "a1"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "bash", "description": "Run it.", "parameters": {"type": "object"}},
            }
        ],
    }


async def test_params_reach_the_body_unchanged() -> None:
    """Parameters are neither renamed nor converted, and may override the model."""
    params: dict[str, Any] = {"model": "other", "temperature": 0, "top_p": 0.1, "extra": {"a": [None, True]}}
    async with open_setup(always(), params=params) as setup:
        await setup.ask()
        body = setup.server.requests[0].body
    assert body == {"messages": [{"role": "user", "content": "hello"}], **params}


@pytest.mark.parametrize(
    ("path", "expected"),
    [("", "/v1/chat/completions"), ("/", "/v1/chat/completions"), ("?v=2", "/v1/chat/completions?v=2")],
)
async def test_path_is_appended_to_the_base_url(path: str, expected: str) -> None:
    """A trailing slash does not matter, and a query stays."""
    async with open_setup(always(), path=path) as setup:
        await setup.ask()
        assert setup.server.requests[0].path == expected


@pytest.mark.parametrize(("key", "expected"), [("sk-1", "Bearer sk-1"), ("", None), (None, None)])
async def test_key_is_sent_as_bearer_token(key: str | None, expected: str | None) -> None:
    """Without a key there is no Authorization header."""
    async with open_setup(always(), api_key=key if key is None else SecretStr(key)) as setup:
        await setup.ask()
        assert setup.server.requests[0].headers.get("authorization") == expected


async def test_tool_calls_are_returned() -> None:
    """A reply that only calls tools has no text."""
    body = chat_completion(None, tool_calls=[LS], finish_reason="tool_calls")
    async with open_setup(always(body=body)) as setup:
        reply = await setup.ask()
    assert (reply.text, reply.stop_reason, tuple(reply.tool_calls)) == ("", "tool_calls", (LS,))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ({"name": "bash", "arguments": '{"command": "ls"'}, ("bash", '{"command": "ls"')),
        ({"name": "bash", "arguments": None}, ("bash", "")),
        ({"name": "bash", "arguments": {"command": "ls"}}, ("bash", '{"command":"ls"}')),
        ({"name": None}, ("", "")),
        (None, ("", "")),
    ],
)
async def test_malformed_tool_calls_are_passed_on(function: object, expected: tuple[str, str]) -> None:
    """What is wrong in a tool call is for the harness to answer; an id is made up where none came."""
    body = with_message({"content": None, "tool_calls": [{"function": function}]}, "tool_calls")
    async with open_setup(always(body=body)) as setup:
        (call,) = (await setup.ask()).tool_calls
    assert (call.name, call.arguments) == expected
    assert call.id == "call_0"


@pytest.mark.parametrize(
    ("message", "finish_reason", "text", "reasoning"),
    [
        ({"content": "B", "reasoning_content": "A?"}, "stop", "B", "A?"),
        ({"content": "B", "reasoning": "A?"}, "stop", "B", "A?"),
        ({"content": "B", "reasoning": {"odd": 1}}, "stop", "B", ""),
        ({"content": "<think>A</think>B"}, "stop", "<think>A</think>B", ""),
        ({"content": "", "reasoning_content": "A?"}, "stop", "", "A?"),
        ({"reasoning_content": "A?"}, "stop", "", "A?"),
        ({"content": ""}, "stop", "", ""),
        ({"content": None}, "length", "", ""),
        ({"content": None}, "content_filter", "", ""),
        ({"content": None, "refusal": "I won't."}, "stop", "I won't.", ""),
        ({"content": [{"type": "text", "text": "a"}, {"type": "image"}, "b"]}, "stop", "ab", ""),
    ],
)
async def test_text_and_reasoning_are_kept_apart(
    message: object, finish_reason: str, text: str, reasoning: str
) -> None:
    """Empty content that the model is to blame for is a reply, to be judged as any other."""
    async with open_setup(always(body=with_message(message, finish_reason))) as setup:
        reply = await setup.ask()
    assert (reply.text, reply.reasoning, reply.stop_reason) == (text, reasoning, finish_reason)


@pytest.mark.parametrize("finish_reason", ["eos", None, ["stop"]])
async def test_unknown_finish_reason_becomes_other(finish_reason: object) -> None:
    """What an endpoint invents does not make its reply unusable."""
    async with open_setup(always(body=with_message({"content": "x"}, finish_reason))) as setup:
        reply = await setup.ask()
    assert (reply.text, reply.stop_reason) == ("x", "other")


@pytest.mark.parametrize(
    "choices",
    [
        None,
        [],
        "none",
        [None],
        [{}],
        [{"message": None}],
        [{"message": {}}],
        [{"message": {"content": None}, "finish_reason": "stop"}],
        [{"message": {"content": 7}}],
        [{"message": {"content": "x", "tool_calls": [None]}}],
    ],
)
async def test_malformed_reply_is_billed_and_blamed_on_the_agent_s_side(choices: object) -> None:
    """What was billed is metered though nothing usable came, and one further try is made."""
    async with open_setup(always(body=chat_completion() | {"choices": choices}), max_retries=1) as setup:
        with pytest.raises(ModelReplyError):
            await setup.ask()
    assert setup.calls.usages == [BILLED_FAILURE] * 2


async def test_reply_without_choices_key_is_malformed() -> None:
    """Any JSON that is no chat completion is a malformed reply."""
    for body in (b"{}", b"[]", b'"text"', b"0", b"null"):
        async with open_setup(always(body=body), max_retries=0) as setup:
            with pytest.raises(ModelReplyError):
                await setup.ask()


@pytest.mark.parametrize("body", [b"", b"<html>busy</html>", b'{"choices": [', b"\xff\xfe", b"[" * 100_000])
async def test_body_that_is_not_json_is_a_fault_of_the_endpoint(body: bytes) -> None:
    """It is no failure of the model's, and worth another try."""
    async with open_setup(always(body=body), max_retries=1) as setup:
        with pytest.raises(ModelUnavailableError, match="not JSON"):
            await setup.ask()
    assert setup.calls.usages == [Usage(calls=1, failed_calls=1)] * 2


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'"a\\ud800b"', "a\ufffdb"),
        (b'"a\\udc00"', "a\ufffd"),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"a\xffb"', "a\ufffdb"),
    ],
)
async def test_text_that_is_no_unicode_is_replaced(content: bytes, expected: str) -> None:
    """Lone surrogates and bad UTF-8 become replacement characters; the rest of the reply is used."""
    body: bytes = (
        b'\xef\xbb\xbf{"x": NaN, "choices": [{"message": {"content": %s}}], "usage": {"prompt_tokens": 3}}'
    )
    async with open_setup(always(body=body % content)) as setup:
        reply = await setup.ask()
    assert (reply.text, reply.usage.input_tokens) == (expected, 3)


async def test_surrogates_in_a_prompt_are_replaced() -> None:
    """A prompt that UTF-8 cannot carry is sent all the same."""
    async with open_setup(always()) as setup:
        await setup.ask([Message(role="user", content="a\ud800b")], tools=[BASH])
        assert setup.server.requests[0].body["messages"][0]["content"] == "a\ufffdb"


async def test_all_token_counts_are_read() -> None:
    """Cached and reasoning tokens are parts of the input and output tokens."""
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 80, "cache_write_tokens": 5, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 40},
    }
    async with open_setup(always(body=chat_completion() | {"usage": usage})) as setup:
        reply = await setup.ask()
    assert reply.usage == Usage(
        calls=1,
        input_tokens=100,
        cached_tokens=80,
        cache_write_tokens=5,
        output_tokens=50,
        reasoning_tokens=40,
    )


@pytest.mark.parametrize(
    "usage",
    [
        None,
        [],
        "many",
        {},
        {"prompt_tokens": None, "prompt_tokens_details": None},
        {"prompt_tokens": -1, "completion_tokens": 10**12},
        {"prompt_tokens": "12", "completion_tokens": True, "completion_tokens_details": [1]},
        {"prompt_tokens": 1.5},
        {"prompt_tokens": 10**30},
    ],
)
async def test_nonsense_usage_counts_as_missing(usage: object) -> None:
    """Garbage counters cost neither the reply nor the sums."""
    async with open_setup(always(body=with_usage(usage))) as setup:
        reply = await setup.ask()
    assert (reply.text, reply.usage) == ("ok", Usage(calls=1))


def with_usage(usage: object) -> dict[str, Any]:
    return chat_completion() | {"usage": usage}
