"""The ``openai-responses`` protocol: ``POST {base_url}/responses``, with nothing stored at the endpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from ..errors import ModelError, ModelReplyError
from ..protocols import Continuation, Message, Reply, StopReason, Tool
from ..records import ToolCall, Usage
from . import lenient_json
from .endpoint import Endpoint
from .failure import complaint_error, complaint_of, not_json
from .lenient_json import count, member, members, string
from .wire import FAILED_CALL, Answer, ApiProtocol, Source, answer

_ID = "openai-responses"
_CUT_SHORT: dict[str, StopReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}
# Of responses that failed after they had begun, whose status was good. Anything else is the endpoint's fault.
_STATUSES = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "bio_policy": 400,
    "data_residency_mismatch": 400,
    "invalid_request_error": 400,
}

_Item = dict[str, Any]


def _headers(api_key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


# --- request --------------------------------------------------------------------------------------


def _encode(endpoint: Endpoint, messages: Sequence[Message], tools: Sequence[Tool]) -> bytes:
    body: dict[str, Any] = {
        "model": endpoint.model_id,
        "input": [*chain.from_iterable(map(_items, messages))],
        "store": False,
    }
    if tools:
        body["tools"] = [_tool(tool) for tool in tools]
        # Needed to go on, but refused for models that do not reason: not asked for without need.
        body["include"] = ["reasoning.encrypted_content"]
    body.update(_own_params(endpoint.params))
    return lenient_json.encode(body)


def _own_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params under this protocol's names, where those of its siblings would be refused."""
    own = dict(params)
    for sibling in ("max_completion_tokens", "max_tokens"):
        if sibling in own:
            own.setdefault("max_output_tokens", own.pop(sibling))
    if "reasoning_effort" in own:
        effort = {"effort": own.pop("reasoning_effort")}
        own["reasoning"] = {**effort, **(own.get("reasoning") or {})}
    return own


def _items(message: Message) -> list[_Item]:
    if message.continuation is not None and message.continuation.protocol == _ID:
        return [dict(item) for item in message.continuation.items]
    if message.role == "tool":
        call_id, output = message.tool_call_id, message.content
        return [{"type": "function_call_output", "call_id": call_id, "output": output}]
    said = [{"role": message.role, "content": message.content}]
    if message.tool_calls and not message.content:
        said = []
    return [*said, *map(_function_call, message.tool_calls)]


def _function_call(call: ToolCall) -> _Item:
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,  # else the API demands schemas of a stricter kind than those of the other protocols
    }


# --- reply ----------------------------------------------------------------------------------------


def _decode(body: bytes, source: Source) -> Answer:
    try:
        said = lenient_json.decode(body)
    except ValueError:
        return Answer(usage=FAILED_CALL, result=not_json(body, source=source))
    usage = _usage(member(said, "usage"))
    return answer(usage, _result(said, usage, source))


def _result(said: object, usage: Usage, source: Source) -> Reply | ModelError:
    status = string(member(said, "status"))
    if (error := member(said, "error")) or status == "failed":
        return _error(error or "the response failed", source)
    output = member(said, "output")
    if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
        return ModelReplyError(f"{source.host} sent a reply without output")
    if not output and status != "incomplete":
        return ModelReplyError(f"{source.host} sent a reply with neither content nor tool calls")
    calls = [item for item in output if item.get("type") == "function_call"]
    return Reply(
        text="".join(_texts(output)),
        reasoning="\n\n".join(_thoughts(output)),
        tool_calls=tuple(_received_call(index, item) for index, item in enumerate(calls)),
        stop_reason=_stop_reason(said, calls=bool(calls)),
        usage=usage,
        continuation=_continuation(output),
    )


def _error(error: object, source: Source) -> ModelError:
    code = string(member(error, "code")) or string(member(error, "type"))
    status = _STATUSES.get(code, 400 if "image" in code else 502)
    return complaint_error(status, complaint_of(error), source=source)


def _stop_reason(said: object, *, calls: bool) -> StopReason:
    match member(said, "status"):
        case "completed":
            return "tool_calls" if calls else "stop"
        case "incomplete":
            return _CUT_SHORT.get(string(member(member(said, "incomplete_details"), "reason")), "other")
        case _:
            return "other"


def _texts(output: Iterable[_Item]) -> Iterable[str]:
    for item in output:
        if item.get("type") == "message":
            for part in members(item, "content"):
                yield string(member(part, "text")) or string(member(part, "refusal"))


def _thoughts(output: Iterable[_Item]) -> Iterable[str]:
    for item in output:
        if item.get("type") == "reasoning":
            parts = members(item, "content") or members(item, "summary")
            yield from (text for part in parts if (text := string(member(part, "text"))))


def _received_call(index: int, item: _Item) -> ToolCall:
    return ToolCall(
        id=string(item.get("call_id")) or f"call_{index}",
        name=string(item.get("name")),
        arguments=string(item.get("arguments")),
    )


def _continuation(output: Sequence[_Item]) -> Continuation | None:
    """Keep the items as they came, but for reasoning that the endpoint would refuse to take back."""
    items = [item for item in output if item.get("type") != "reasoning" or _can_return(item)]
    while items and items[-1].get("type") == "reasoning":  # refused without what it led to
        items.pop()
    has_reasoning = any(item.get("type") == "reasoning" for item in items)
    return Continuation(protocol=_ID, items=items) if has_reasoning else None


def _can_return(reasoning: _Item) -> bool:
    """Tell whether the item says all itself: the endpoint has stored nothing that its id could stand for."""
    return bool(reasoning.get("encrypted_content") or members(reasoning, "content"))


def _usage(said: object) -> Usage:
    details = member(said, "input_tokens_details")
    return Usage(
        calls=1,
        input_tokens=count(said, "input_tokens"),
        cached_tokens=count(details, "cached_tokens"),
        cache_write_tokens=count(details, "cache_write_tokens"),
        output_tokens=count(said, "output_tokens"),
        reasoning_tokens=count(member(said, "output_tokens_details"), "reasoning_tokens"),
    )


OPENAI_RESPONSES = ApiProtocol(
    id=_ID, path="/responses", reserved="input", headers=_headers, encode=_encode, decode=_decode
)
