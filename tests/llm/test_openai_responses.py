"""The openai-responses protocol: what is sent, and what is made of the replies."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from pydantic import SecretStr

from agentcompass.errors import (
    ContextTooLongError,
    ModelError,
    ModelReplyError,
    ModelRequestError,
    ModelUnavailableError,
    RateLimitedError,
)
from agentcompass.llm.mock_bodies import response_object
from agentcompass.llm.mock_server import Handler
from agentcompass.protocols import Continuation, Message, Tool
from agentcompass.records import ToolCall, Usage

from .endpoints import HELLO, Setup, always, open_setup

pytestmark = pytest.mark.anyio

LS = ToolCall(id="call_a", name="bash", arguments='{"command":"ls"}')
BASH = Tool(name="bash", description="Run it.", parameters=MappingProxyType({"type": "object"}))
SUMMARY = [{"type": "summary_text", "text": "Hm."}]
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": SUMMARY, "encrypted_content": "ZW5j"}
OPEN_THOUGHT = {
    "type": "reasoning",
    "id": "rs_2",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Aha."}],
}
STORED_THOUGHT = {"type": "reasoning", "id": "rs_3", "summary": []}
BILLED_FAILURE = Usage(calls=1, failed_calls=1, input_tokens=10, output_tokens=5)


def setup(handler: Handler | None = None, **fields: Any) -> Any:  # an async context
    return open_setup(handler or always(body=response_object()), protocol="openai-responses", **fields)


def sent(opened: Setup) -> Any:  # any JSON
    return opened.server.requests[-1].body


async def test_plain_answer_is_returned_with_its_usage() -> None:
    """The path is appended, the key is a bearer token, nothing is stored, the call is metered once."""
    async with setup(api_key=SecretStr("sk-1")) as opened:
        reply = await opened.ask()
        request = opened.server.requests[0]
    assert (reply.text, reply.stop_reason) == ("ok", "stop")
    assert (request.path, request.headers["authorization"]) == ("/v1/responses", "Bearer sk-1")
    assert request.body == {
        "model": "mock-1",
        "store": False,
        "input": [{"role": "user", "content": "hello"}],
    }
    assert opened.calls.usages == [Usage(calls=1, input_tokens=10, output_tokens=5)]


async def test_conversation_and_tools_are_sent_in_the_documented_form() -> None:
    """Every kind of message is an item; encrypted reasoning is asked for where tools are."""
    messages = [
        Message(role="system", content="Be brief."),
        Message(role="user", content="List."),
        Message(role="assistant", content="I look.", tool_calls=[LS]),
        Message(role="tool", content="a.txt", tool_call_id="call_a"),
        Message(role="assistant", content="", tool_calls=[LS]),
        Message(role="tool", content="", tool_call_id="call_a"),
    ]
    call = {"type": "function_call", "call_id": "call_a", "name": "bash", "arguments": '{"command":"ls"}'}
    async with setup() as opened:
        await opened.ask(messages, tools=[BASH])
        body = sent(opened)
    assert body == {
        "model": "mock-1",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "List."},
            {"role": "assistant", "content": "I look."},
            call,
            {"type": "function_call_output", "call_id": "call_a", "output": "a.txt"},
            call,
            {"type": "function_call_output", "call_id": "call_a", "output": ""},
        ],
        "tools": [
            {
                "type": "function",
                "name": "bash",
                "description": "Run it.",
                "parameters": {"type": "object"},
                "strict": False,
            }
        ],
    }


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"max_output_tokens": 5, "store": True}, {"max_output_tokens": 5, "store": True}),
        ({"max_completion_tokens": 5}, {"max_output_tokens": 5, "store": False}),
        ({"max_tokens": 5}, {"max_output_tokens": 5, "store": False}),
        (
            {"reasoning_effort": "low", "reasoning": {"summary": "auto"}},
            {"reasoning": {"effort": "low", "summary": "auto"}, "store": False},
        ),
    ],
)
async def test_params_get_the_protocol_s_names(params: dict[str, Any], expected: dict[str, Any]) -> None:
    """The same limits and effort work for every protocol; anything else is passed on as it is."""
    async with setup(params=params) as opened:
        await opened.ask()
        body = sent(opened)
    assert body == {"model": "mock-1", "input": [{"role": "user", "content": "hello"}], **expected}


async def test_encrypted_reasoning_is_sent_back_unchanged_with_the_results_of_its_tools() -> None:
    """The endpoint has stored nothing: what it cannot find again in the item is left out."""
    output: list[dict[str, Any]] = [THOUGHT, OPEN_THOUGHT, STORED_THOUGHT]
    async with setup(always(body=response_object("I look.", reasoning=output, tool_calls=[LS]))) as opened:
        reply = await opened.ask(tools=[BASH])
        result = Message(role="tool", content="a.txt", tool_call_id="call_a")
        await opened.ask([*HELLO, reply.message, result], tools=[BASH])
        items = sent(opened)["input"]
    assert (reply.text, reply.reasoning, reply.stop_reason) == ("I look.", "Hm.\n\nAha.", "tool_calls")
    assert list(reply.tool_calls) == [LS]
    assert items[1:3] == [THOUGHT, OPEN_THOUGHT]
    kinds = [item.get("type") for item in items[3:]]
    assert kinds == ["message", "function_call", "function_call_output"]


async def test_reasoning_that_led_to_nothing_is_not_sent_back() -> None:
    """The endpoint refuses an item of reasoning without what follows it."""
    cut = response_object("", reasoning=[THOUGHT], status="incomplete")
    async with setup(always(body=cut)) as opened:
        reply = await opened.ask()
        await opened.ask([*HELLO, reply.message])
        assert sent(opened)["input"][1:] == [{"role": "assistant", "content": ""}]


async def test_continuation_of_another_protocol_is_ignored() -> None:
    """Its text is sent instead."""
    other = Continuation(protocol="another", items=[{"x": 1}])
    async with setup() as opened:
        await opened.ask([*HELLO, Message(role="assistant", content="said", continuation=other)])
        assert sent(opened)["input"][1] == {"role": "assistant", "content": "said"}


@pytest.mark.parametrize(
    ("status", "details", "expected"),
    [
        ("completed", None, "stop"),
        ("incomplete", {"reason": "max_output_tokens"}, "length"),
        ("incomplete", {"reason": "content_filter"}, "content_filter"),
        ("incomplete", None, "other"),
        ("cancelled", None, "other"),
    ],
)
async def test_stop_reasons_are_those_of_every_protocol(status: str, details: object, expected: str) -> None:
    """Why a response is incomplete stands in its details."""
    body = response_object(status=status) | {"incomplete_details": details}
    async with setup(always(body=body)) as opened:
        assert (await opened.ask()).stop_reason == expected


async def test_refusal_is_the_answer() -> None:
    """The model says no in its own words."""
    message = {"type": "message", "content": [{"type": "refusal", "refusal": "I won't."}]}
    async with setup(always(body=response_object() | {"output": [message]})) as opened:
        reply = await opened.ask()
    assert (reply.text, reply.stop_reason) == ("I won't.", "stop")


async def test_all_token_counts_are_read() -> None:
    """Cached and reasoning tokens are parts of the input and output tokens."""
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 80, "cache_write_tokens": 5},
        "output_tokens": 50,
        "output_tokens_details": {"reasoning_tokens": 40},
    }
    async with setup(always(body=response_object(usage=usage))) as opened:
        reply = await opened.ask()
    assert reply.usage == Usage(
        calls=1,
        input_tokens=100,
        cached_tokens=80,
        cache_write_tokens=5,
        output_tokens=50,
        reasoning_tokens=40,
    )


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("server_error", ModelUnavailableError),
        ("rate_limit_exceeded", RateLimitedError),
        ("context_length_exceeded", ContextTooLongError),
        ("invalid_prompt", ModelRequestError),
        ("invalid_base64_image", ModelRequestError),
        (None, ModelUnavailableError),
    ],
)
async def test_response_that_failed_is_the_error_of_its_code(
    code: str | None, expected: type[ModelError]
) -> None:
    """The endpoint says so in a reply with a good status, tokens included."""
    body = response_object(status="failed") | {"error": {"code": code, "message": "why"}}
    async with setup(always(body=body), max_retries=0) as opened:
        with pytest.raises(expected, match="why"):
            await opened.ask()
    assert opened.calls.usages == [BILLED_FAILURE]


@pytest.mark.parametrize("output", [None, "text", [1], []])
async def test_malformed_reply_is_billed(output: object) -> None:
    """What was billed is metered though nothing usable came."""
    async with setup(always(body=response_object() | {"output": output}), max_retries=0) as opened:
        with pytest.raises(ModelReplyError):
            await opened.ask()
    assert opened.calls.usages == [BILLED_FAILURE]


async def test_body_that_is_not_json_is_a_fault_of_the_endpoint() -> None:
    """It is no failure of the model's."""
    async with setup(always(body=b"<html>"), max_retries=0) as opened:
        with pytest.raises(ModelUnavailableError, match="not JSON"):
            await opened.ask()
