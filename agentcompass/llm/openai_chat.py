"""The ``openai-chat`` protocol: ``POST {base_url}/chat/completions``, as most endpoints speak it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..errors import ModelError, ModelReplyError
from ..protocols import Message, Reply, StopReason, Tool
from ..records import ToolCall, Usage
from . import lenient_json
from .endpoint import Endpoint
from .failure import complaint_error, complaint_of, not_json
from .lenient_json import count, member, string
from .wire import FAILED_CALL, Answer, ApiProtocol, Source, answer

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
# With one of these a reply without content is the model's doing, to be judged; else it is malformed.
_CUT_SHORT = frozenset({"length", "content_filter"})


def _headers(api_key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


# --- request --------------------------------------------------------------------------------------


def _encode(endpoint: Endpoint, messages: Sequence[Message], tools: Sequence[Tool]) -> bytes:
    body: dict[str, Any] = {
        "model": endpoint.model_id,
        "messages": [_message(message) for message in messages],
    }
    if tools:
        body["tools"] = [_tool(tool) for tool in tools]
    body.update(endpoint.params)
    return lenient_json.encode(body)


def _message(message: Message) -> dict[str, Any]:
    body: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        body["content"] = message.content or None
        body["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    if message.tool_call_id:
        body["tool_call_id"] = message.tool_call_id
    return body


def _tool_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


# --- reply ----------------------------------------------------------------------------------------


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _Call(msgspec.Struct):
    id: str | None = None
    function: _Function | None = None


class _Part(msgspec.Struct):
    text: str | None = None


class _Message(msgspec.Struct):
    content: str | list[str | _Part] | None = None
    refusal: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    finish_reason: Any = None


_NULL = msgspec.Raw(b"null")


class _Body(msgspec.Struct):
    """The parts are decoded apart, so that a malformed one does not cost what the others say."""

    choices: msgspec.Raw = _NULL
    usage: msgspec.Raw = _NULL
    error: msgspec.Raw = _NULL


_decode_body = msgspec.json.Decoder(_Body).decode
_decode_choices = msgspec.json.Decoder(list[_Choice] | None).decode


def _decode(body: bytes, source: Source) -> Answer:
    try:
        return _decode_strictly(body, source)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return _decode_strictly(lenient_json.repair(body), source)
    except (ValueError, RecursionError):
        return Answer(usage=FAILED_CALL, result=not_json(body, source=source))


def _decode_strictly(text: bytes, source: Source) -> Answer:
    try:
        body = _decode_body(text)
    except msgspec.ValidationError:
        msgspec.json.decode(text)  # raises unless it is JSON, though not an object
        body = _Body()
    usage = _usage(msgspec.json.decode(body.usage))
    return answer(usage, _result(body, usage, source))


def _result(body: _Body, usage: Usage, source: Source) -> Reply | ModelError:
    try:
        choices = _decode_choices(body.choices)
    except msgspec.ValidationError as error:
        return ModelReplyError(f"{source.host} sent a malformed reply: {error}")
    if not choices:
        return _no_choices(msgspec.json.decode(body.error), source)
    choice = choices[0]
    message, finish_reason = choice.message, string(choice.finish_reason)
    if message is None or (_is_empty(message) and finish_reason not in _CUT_SHORT):
        return ModelReplyError(f"{source.host} sent a reply with neither content nor tool calls")
    calls = tuple(_received_call(index, call) for index, call in enumerate(message.tool_calls or ()))
    return Reply(
        text=_text(message),
        reasoning=_reasoning(message),
        tool_calls=calls,
        stop_reason=_STOP_REASONS.get(finish_reason, "other"),
        usage=usage,
    )


def _no_choices(error: object, source: Source) -> ModelError:
    if not error:
        return ModelReplyError(f"{source.host} sent a reply without choices")
    # Gateways report failures of the model's provider inside a reply with a good status.
    complaint = complaint_of(error)
    status = complaint.number if 400 <= complaint.number < 600 else 502
    return complaint_error(status, complaint, source=source)


def _is_empty(message: _Message) -> bool:
    has_content = message.content is not None or message.refusal
    return not (has_content or message.tool_calls or _reasoning(message))


def _text(message: _Message) -> str:
    match message.content:
        case str(text):
            return text or string(message.refusal)
        case list(parts):
            return "".join(part if isinstance(part, str) else part.text or "" for part in parts)
        case _:
            return string(message.refusal)


def _reasoning(message: _Message) -> str:
    return string(message.reasoning_content) or string(message.reasoning)


def _received_call(index: int, call: _Call) -> ToolCall:
    function = call.function or _Function()
    arguments = function.arguments
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else msgspec.json.encode(arguments).decode()
    # Without an id of its own the result of a call could not be sent back.
    return ToolCall(id=call.id or f"call_{index}", name=function.name or "", arguments=arguments)


def _usage(said: object) -> Usage:
    details = member(said, "prompt_tokens_details")
    return Usage(
        calls=1,
        input_tokens=count(said, "prompt_tokens"),
        cached_tokens=count(details, "cached_tokens"),
        cache_write_tokens=count(details, "cache_write_tokens"),
        output_tokens=count(said, "completion_tokens"),
        reasoning_tokens=count(member(said, "completion_tokens_details"), "reasoning_tokens"),
    )


OPENAI_CHAT = ApiProtocol(
    id="openai-chat", path="/chat/completions", headers=_headers, encode=_encode, decode=_decode
)
