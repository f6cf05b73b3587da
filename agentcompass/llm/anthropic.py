"""The ``anthropic`` protocol: ``POST {base_url}/v1/messages``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ..errors import ModelError, ModelReplyError
from ..protocols import Continuation, Message, Reply, StopReason, Tool
from ..records import ToolCall, Usage
from . import lenient_json
from .endpoint import Endpoint
from .failure import complaint_error, complaint_of, not_json
from .lenient_json import count, member, string
from .wire import FAILED_CALL, Answer, ApiProtocol, Source, answer

_ID = "anthropic"
_VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 16_384
"""The API demands a limit. This one is for the answer: a budget for thinking is added to it."""
_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}

_Block = dict[str, Any]


def _headers(api_key: str) -> Mapping[str, str]:
    version = {"anthropic-version": _VERSION}
    return {**version, "x-api-key": api_key} if api_key else version


# --- request --------------------------------------------------------------------------------------


def _encode(endpoint: Endpoint, messages: Sequence[Message], tools: Sequence[Tool]) -> bytes:
    body: dict[str, Any] = {"model": endpoint.model_id, "messages": _turns(messages)}
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    if system:
        body["system"] = system
    if tools:
        body["tools"] = [_tool(tool) for tool in tools]
    body.update(_own_params(endpoint.params))
    body.setdefault("max_tokens", DEFAULT_MAX_TOKENS + _thinking_budget(body))
    return lenient_json.encode(body)


def _own_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params under this protocol's names, where those of its siblings would be refused."""
    own = dict(params)
    for sibling in ("max_completion_tokens", "max_output_tokens"):
        if sibling in own:
            own.setdefault("max_tokens", own.pop(sibling))
    if "reasoning_effort" in own:
        effort = {"effort": own.pop("reasoning_effort")}
        own["output_config"] = {**effort, **(own.get("output_config") or {})}
    return own


def _thinking_budget(body: Mapping[str, Any]) -> int:
    return count(body.get("thinking"), "budget_tokens")


def _turns(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Join what follows one another from the same side: all results of one turn's tools must come at once."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = [] if message.role == "system" else _blocks(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: Message) -> list[_Block]:
    if message.continuation is not None and message.continuation.protocol == _ID:
        return [dict(item) for item in message.continuation.items]
    if message.role == "tool":
        content = message.content
        return [{"type": "tool_result", "tool_use_id": message.tool_call_id, "content": content}]
    return [*_text_blocks(message.content), *map(_tool_use, message.tool_calls)]


def _text_blocks(text: str) -> list[_Block]:
    return [{"type": "text", "text": text}] if text.strip() else []  # blank ones are refused


def _tool_use(call: ToolCall) -> _Block:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)}


def _input(arguments: str) -> dict[str, Any]:
    """Return the arguments as the object that the API demands, also if the model made none of them."""
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        value = arguments
    return value if isinstance(value, dict) else {"arguments": value}


def _tool(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}


# --- reply ----------------------------------------------------------------------------------------


def _decode(body: bytes, source: Source) -> Answer:
    try:
        said = lenient_json.decode(body)
    except ValueError:
        return Answer(usage=FAILED_CALL, result=not_json(body, source=source))
    usage = _usage(member(said, "usage"))
    return answer(usage, _result(said, usage, source))


def _result(said: object, usage: Usage, source: Source) -> Reply | ModelError:
    if error := member(said, "error"):
        return _error(error, source)
    blocks = member(said, "content")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        return ModelReplyError(f"{source.host} sent a reply without content")
    tool_uses = [block for block in blocks if block.get("type") == "tool_use"]
    return Reply(
        text=_joined(blocks, kind="text"),
        reasoning=_joined(blocks, kind="thinking"),
        tool_calls=tuple(_received_call(index, block) for index, block in enumerate(tool_uses)),
        stop_reason=_STOP_REASONS.get(string(member(said, "stop_reason")), "other"),
        usage=usage,
        continuation=_continuation(blocks),
    )


def _error(error: object, source: Source) -> ModelError:
    status = _STATUSES.get(string(member(error, "type")), 502)
    return complaint_error(status, complaint_of(error), source=source)


def _joined(blocks: Iterable[_Block], *, kind: str) -> str:
    return "".join(string(block.get(kind)) for block in blocks if block.get("type") == kind)


def _received_call(index: int, block: _Block) -> ToolCall:
    given = block.get("input")
    arguments = given if isinstance(given, str) else msgspec.json.encode(given or {}).decode()
    return ToolCall(
        id=string(block.get("id")) or f"call_{index}", name=string(block.get("name")), arguments=arguments
    )


def _continuation(blocks: Iterable[_Block]) -> Continuation | None:
    """Keep the blocks as they came: the API checks signatures, and that nothing was left out."""
    items = [block for block in blocks if block.get("type") != "text" or string(block.get("text")).strip()]
    plain = all(block.get("type") in {"text", "tool_use"} for block in items)
    return None if plain else Continuation(protocol=_ID, items=items)


def _usage(said: object) -> Usage:
    read, written = count(said, "cache_read_input_tokens"), count(said, "cache_creation_input_tokens")
    return Usage(
        calls=1,
        input_tokens=count(said, "input_tokens") + read + written,  # the API's own sum leaves both out
        cached_tokens=read,
        cache_write_tokens=written,
        output_tokens=count(said, "output_tokens"),
        reasoning_tokens=count(member(said, "output_tokens_details"), "thinking_tokens"),
    )


ANTHROPIC = ApiProtocol(
    id=_ID, path="/messages", version="/v1", headers=_headers, encode=_encode, decode=_decode
)
