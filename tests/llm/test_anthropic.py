"""The anthropic protocol: what is sent, and what is made of the replies."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from pydantic import SecretStr

from agentcompass.errors import (
    ContextTooLongError,
    ModelAuthError,
    ModelError,
    ModelReplyError,
    ModelRequestError,
    ModelUnavailableError,
    RateLimitedError,
)
from agentcompass.llm.anthropic import DEFAULT_MAX_TOKENS
from agentcompass.llm.mock_bodies import anthropic_message
from agentcompass.llm.mock_server import Handler
from agentcompass.protocols import Continuation, Message, Tool
from agentcompass.records import ToolCall, Usage

from .endpoints import HELLO, Setup, always, open_setup

pytestmark = pytest.mark.anyio

LS = ToolCall(id="tu_1", name="bash", arguments='{"command":"ls"}')
PWD = ToolCall(id="tu_2", name="bash", arguments='{"command":"pwd"}')
BASH = Tool(name="bash", description="Run it.", parameters=MappingProxyType({"type": "object"}))
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}
HIDDEN = {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"}
USER = {"role": "user", "content": [{"type": "text", "text": "hello"}]}


def setup(handler: Handler | None = None, **fields: Any) -> Any:  # an async context
    return open_setup(handler or always(body=anthropic_message()), protocol="anthropic", **fields)


def sent(opened: Setup, number: int = -1) -> Any:  # any JSON
    return opened.server.requests[number].body


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("", "/v1/messages"),
        ("/", "/v1/messages"),
        ("/v1", "/v1/messages"),
        ("/v1/", "/v1/messages"),
        ("/v1beta?a=1", "/v1beta/messages?a=1"),
        ("/gateway", "/gateway/v1/messages"),
        ("/v1/gateway", "/v1/gateway/v1/messages"),
    ],
)
async def test_version_is_put_into_a_url_that_has_none(base: str, expected: str) -> None:
    """The vendor's base URL works as its own clients take it, and with the version at its end."""
    async with setup(path="", root=base) as opened:
        await opened.ask()
        assert opened.server.requests[0].path == expected


@pytest.mark.parametrize(("key", "expected"), [("sk-1", "sk-1"), ("", None)])
async def test_key_and_version_are_sent_in_the_protocol_s_headers(key: str, expected: str | None) -> None:
    """The key goes into x-api-key and nowhere else."""
    async with setup(api_key=SecretStr(key)) as opened:
        await opened.ask()
        headers = opened.server.requests[0].headers
    assert headers.get("x-api-key") == expected
    assert headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in headers


async def test_conversation_and_tools_are_sent_in_the_documented_form() -> None:
    """System messages go apart, results of one turn come at once, blank texts are left out."""
    messages = [
        Message(role="system", content="Be brief."),
        Message(role="user", content="List."),
        Message(role="system", content="Be kind."),
        Message(role="assistant", content=" ", tool_calls=[LS, PWD]),
        Message(role="tool", content="a.txt", tool_call_id="tu_1"),
        Message(role="tool", content="", tool_call_id="tu_2"),
        Message(role="user", content="Go on."),
        Message(role="assistant", content=""),
    ]
    async with setup() as opened:
        await opened.ask(messages, tools=[BASH])
        body = sent(opened)
    assert body == {
        "model": "mock-1",
        "max_tokens": DEFAULT_MAX_TOKENS,
        "system": "Be brief.\n\nBe kind.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "List."}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "tu_1", "name": "bash", "input": {"command": "ls"}},
                    {"type": "tool_use", "id": "tu_2", "name": "bash", "input": {"command": "pwd"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "tu_1", "content": "a.txt"},
                    {"type": "tool_result", "tool_use_id": "tu_2", "content": ""},
                    {"type": "text", "text": "Go on."},
                ],
            },
        ],
        "tools": [{"name": "bash", "description": "Run it.", "input_schema": {"type": "object"}}],
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [("", {"arguments": ""}), ("[1]", {"arguments": [1]}), ('{"a"', {"arguments": '{"a"'}), ("{}", {})],
)
async def test_arguments_that_are_no_object_are_sent_in_one(arguments: str, expected: object) -> None:
    """A call that the model got wrong does not make the rest of the conversation impossible."""
    call = ToolCall(id="tu_1", name="bash", arguments=arguments)
    async with setup() as opened:
        await opened.ask([*HELLO, Message(role="assistant", content="", tool_calls=[call])])
        assert sent(opened)["messages"][1]["content"][0]["input"] == expected


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"max_tokens": 5, "temperature": 0}, {"max_tokens": 5, "temperature": 0}),
        ({"max_completion_tokens": 5}, {"max_tokens": 5}),
        ({"max_output_tokens": 5}, {"max_tokens": 5}),
        ({"max_tokens": 5, "max_output_tokens": 6}, {"max_tokens": 5}),
        (
            {"reasoning_effort": "low", "output_config": {"format": {}}},
            {"max_tokens": DEFAULT_MAX_TOKENS, "output_config": {"effort": "low", "format": {}}},
        ),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 1000}},
            {
                "max_tokens": DEFAULT_MAX_TOKENS + 1000,
                "thinking": {"type": "enabled", "budget_tokens": 1000},
            },
        ),
    ],
)
async def test_params_get_the_protocol_s_names(params: dict[str, Any], expected: dict[str, Any]) -> None:
    """The same limits and effort work for every protocol; anything else is passed on as it is."""
    async with setup(params=params) as opened:
        await opened.ask()
        assert sent(opened) == {"model": "mock-1", "messages": [USER], **expected}


async def test_signed_reasoning_is_sent_back_unchanged_with_the_results_of_its_tools() -> None:
    """The API refuses a conversation with tools in which a block of thinking is missing or altered."""
    first = anthropic_message("I look.", thinking=[THOUGHT, HIDDEN], tool_calls=[LS], stop_reason="tool_use")
    async with setup(always(body=first)) as opened:
        reply = await opened.ask(tools=[BASH])
        result = Message(role="tool", content="a.txt", tool_call_id="tu_1")
        await opened.ask([*HELLO, reply.message, result], tools=[BASH])
        turns = sent(opened)["messages"]
    assert (reply.text, reply.reasoning, reply.stop_reason) == ("I look.", "Hm.", "tool_calls")
    assert list(reply.tool_calls) == [LS]
    assert turns[1] == {"role": "assistant", "content": first["content"]}
    assert turns[2]["content"][0]["type"] == "tool_result"


async def test_continuation_of_another_protocol_is_ignored() -> None:
    """Its text is sent instead."""
    other = Continuation(protocol="another", items=[{"x": 1}])
    async with setup() as opened:
        await opened.ask([*HELLO, Message(role="assistant", content="said", continuation=other)])
        assert sent(opened)["messages"][1]["content"] == [{"type": "text", "text": "said"}]


@pytest.mark.parametrize(
    ("stop_reason", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("pause_turn", "other"),
        (None, "other"),
    ],
)
async def test_stop_reasons_are_those_of_every_protocol(stop_reason: Any, expected: str) -> None:
    """A harness need not know which protocol it talks through."""
    async with setup(always(body=anthropic_message(stop_reason=stop_reason))) as opened:
        assert (await opened.ask()).stop_reason == expected


async def test_reply_without_blocks_is_an_empty_answer() -> None:
    """The API ends a turn so when the model has nothing to add."""
    async with setup(always(body=anthropic_message(""))) as opened:
        assert (await opened.ask()).text == ""


async def test_input_tokens_include_those_of_the_cache() -> None:
    """The API's own sum leaves them out; ours means the same for every protocol."""
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 1000,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 3},
    }
    async with setup(always(body=anthropic_message(usage=usage))) as opened:
        reply = await opened.ask()
    assert reply.usage == Usage(
        calls=1,
        input_tokens=1110,
        cached_tokens=100,
        cache_write_tokens=1000,
        output_tokens=7,
        reasoning_tokens=3,
    )


@pytest.mark.parametrize("usage", [{"input_tokens": None}, {"input_tokens": -1, "output_tokens": "2"}])
async def test_nonsense_usage_counts_as_missing(usage: dict[str, Any]) -> None:
    """Garbage counters cost neither the reply nor the sums."""
    async with setup(always(body=anthropic_message(usage=usage))) as opened:
        assert (await opened.ask()).usage == Usage(calls=1)


@pytest.mark.parametrize(
    ("status", "kind", "message", "expected"),
    [
        (529, "overloaded_error", "Overloaded", ModelUnavailableError),
        (500, "api_error", "Internal", ModelUnavailableError),
        (429, "rate_limit_error", "Slow down", RateLimitedError),
        (401, "authentication_error", "invalid x-api-key", ModelAuthError),
        (403, "permission_error", "no", ModelAuthError),
        (400, "invalid_request_error", "max_tokens: too large", ModelRequestError),
        (400, "invalid_request_error", "prompt is too long: 2 tokens > 1 maximum", ContextTooLongError),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 2 + 2 > 3",
            ContextTooLongError,
        ),
        (413, "request_too_large", "Request exceeds the maximum size", ContextTooLongError),
        (404, "not_found_error", "model: x", ModelRequestError),
    ],
)
@pytest.mark.parametrize("in_body_only", [False, True])
async def test_errors_are_told_by_status_or_by_the_type_in_the_body(
    status: int, kind: str, message: str, expected: type[ModelError], in_body_only: bool
) -> None:
    """Gateways wrap an error in a reply with a good status; its type says what it is."""
    body = {"type": "error", "error": {"type": kind, "message": message}}
    handler = always(body=body, status=200 if in_body_only else status)
    async with setup(handler, max_retries=0) as opened:
        with pytest.raises(expected, match=f"answered {status}: {message.split(':', maxsplit=1)[0]}"):
            await opened.ask()


async def test_reached_spend_limit_is_not_tried_again() -> None:
    """It looks like a rate limit, but lasts until the next month."""
    details = {"error_code": "enforced_spend_limit_reached"}
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "limit", "details": details}}
    async with setup(always(body=body, status=429)) as opened:
        with pytest.raises(RateLimitedError):
            await opened.ask()
        assert len(opened.server.requests) == 1


@pytest.mark.parametrize("content", [None, "text", [1]])
async def test_malformed_reply_is_billed(content: object) -> None:
    """What was billed is metered though nothing usable came."""
    async with setup(always(body=anthropic_message() | {"content": content}), max_retries=0) as opened:
        with pytest.raises(ModelReplyError):
            await opened.ask()
    assert opened.calls.usages == [Usage(calls=1, failed_calls=1, input_tokens=10, output_tokens=5)]


async def test_body_that_is_not_json_is_a_fault_of_the_endpoint() -> None:
    """It is no failure of the model's."""
    async with setup(always(body=b"<html>"), max_retries=0) as opened:
        with pytest.raises(ModelUnavailableError, match="not JSON"):
            await opened.ask()
