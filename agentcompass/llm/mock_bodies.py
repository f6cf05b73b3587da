"""Well-formed replies of each API protocol, for the mock endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..records import ToolCall


def body_for(path: str, text: str) -> dict[str, Any]:
    """Build a reply that says a text, in the protocol whose path was asked for."""
    match path.rpartition("/")[2]:
        case "messages":
            return anthropic_message(text)
        case "responses":
            return response_object(text)
        case _:
            return chat_completion(text)


def chat_completion(
    text: str | None = "ok",
    *,
    tool_calls: Sequence[ToolCall] = (),
    finish_reason: str = "stop",
    input_tokens: int = 10,
    output_tokens: int = 5,
) -> dict[str, Any]:
    """Build a reply of ``openai-chat``."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in tool_calls
        ]
    return {
        "id": "mock",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {
            "prompt_tokens": input_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": input_tokens + output_tokens,
        },
    }


def anthropic_message(
    text: str = "ok",
    *,
    thinking: Sequence[Mapping[str, Any]] = (),
    tool_calls: Sequence[ToolCall] = (),
    stop_reason: str = "end_turn",
    usage: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Build a reply of ``anthropic``; blocks of thinking come first."""
    content = [*thinking, *([{"type": "text", "text": text}] if text else [])]
    for call in tool_calls:
        arguments = msgspec.json.decode(call.arguments)
        content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
    return {
        "id": "msg_mock",
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": stop_reason,
        "usage": usage or {"input_tokens": 10, "output_tokens": 5},
    }


def response_object(
    text: str = "ok",
    *,
    reasoning: Sequence[Mapping[str, Any]] = (),
    tool_calls: Sequence[ToolCall] = (),
    status: str = "completed",
    usage: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Build a reply of ``openai-responses``; items of reasoning come first."""
    parts = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "id": "msg_mock", "role": "assistant", "content": parts}
    calls = [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
        for call in tool_calls
    ]
    return {
        "id": "resp_mock",
        "object": "response",
        "status": status,
        "error": None,
        "incomplete_details": None,
        "output": [*reasoning, *([message] if text else []), *calls],
        "usage": usage or {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
    }
