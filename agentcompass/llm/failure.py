"""Translate what endpoints say when they refuse a call into the errors of this package."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import msgspec

from ..errors import (
    ContextTooLongError,
    ModelAuthError,
    ModelError,
    ModelRequestError,
    ModelUnavailableError,
    RateLimitedError,
)
from . import lenient_json
from .wire import Source

MAX_RETRY_AFTER_SECONDS = 300.0
"""An endpoint that asks for a longer pause gets this one."""

_KINDS: Mapping[int, type[ModelError]] = {
    401: ModelAuthError,
    402: RateLimitedError,
    403: ModelAuthError,
    408: ModelUnavailableError,
    409: ModelUnavailableError,
    425: ModelUnavailableError,
    429: RateLimitedError,
}
"""Besides: from 500 the endpoint is unavailable, and anything else is a mistake in the request."""
_HINTS = {
    401: " (check the API key)",
    403: " (check the API key)",
    404: " (check the model id and the base URL)",
}
_CONTEXT_STATUSES = frozenset({400, 413, 422})
_CONTEXT_CODES = frozenset(
    {
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size_error",
        "prompt_too_long",
        "request_too_large",  # Anthropic, of a body above its limit
    }
)
# For servers that send no code of their own with it. Kept short: a wrong hit turns a mistake in the
# settings into failed attempts.
_CONTEXT_MARKERS = (
    "maximum context length is",  # vLLM, and most that imitate OpenAI
    "longer than the maximum model length",  # vLLM, multimodal prompts
    "longer than the model's context length",  # SGLang
    "`inputs` tokens + `max_new_tokens` must be",  # TGI
    "exceeds the available context size",  # llama.cpp
    "prompt is too long",  # Anthropic
    "input length and `max_tokens` exceed",  # Anthropic
)
_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "enforced_spend_limit_reached"})


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error body, whatever its shape."""

    message: str = ""
    codes: frozenset[str] = frozenset()
    """Its code and its type, in small letters."""
    number: int = 0
    """Its code, where that is a number."""


def refusal(
    status: int, headers: Mapping[str, str], body: bytes, *, source: Source, wall_seconds: float
) -> ModelError:
    """Build the error for a reply with a bad status."""
    pause = retry_after_seconds(headers, wall_seconds=wall_seconds)
    return complaint_error(status, read_complaint(body), source=source, retry_after=pause)


def complaint_error(
    status: int, complaint: Complaint, *, source: Source, retry_after: float | None = None
) -> ModelError:
    """Build the error for a complaint by its status and codes."""
    said = source.quote(complaint.message)
    text = f"{source.host} answered {status}" + (f": {said}" if said else "") + _hint(status)
    out_of_money = status == 402 or bool(complaint.codes & _QUOTA_CODES)
    kind = _kind(status, complaint)
    return kind(text, retryable=False if out_of_money else None, retry_after_seconds=retry_after)


def read_complaint(body: bytes) -> Complaint:
    """Read an error body: OpenAI's ``{"error": {...}}``, its flat and its bare forms, or plain text."""
    try:
        return complaint_of(msgspec.json.decode(lenient_json.repair(body)))
    except ValueError:
        return Complaint(body.decode("utf-8", "replace"))


def complaint_of(value: object) -> Complaint:
    """Read a complaint from decoded JSON."""
    if isinstance(value, dict) and isinstance(value.get("error"), dict):
        value = value["error"]
    if not isinstance(value, dict):
        return Complaint(str(value))
    said = value.get("message") or value.get("error") or value.get("detail") or ""
    code = value.get("code")
    details = value.get("details")
    inner = details.get("error_code") if isinstance(details, dict) else None
    names = (name.lower() for name in (code, value.get("type"), inner) if isinstance(name, str))
    return Complaint(str(said), frozenset(names), code if type(code) is int else 0)


def not_json(body: bytes, *, source: Source) -> ModelError:
    """Build the error for a reply with a good status that nobody can read."""
    said = source.quote(body.decode("utf-8", "replace"))
    return ModelUnavailableError(f"{source.host} answered with something that is not JSON: {said!r}")


def retry_after_seconds(headers: Mapping[str, str], *, wall_seconds: float) -> float | None:
    """Return the pause that the headers ask for, capped; None if they ask for none that makes sense."""
    seconds = _number(headers.get("retry-after-ms"), scale=0.001)
    if seconds is None:
        value = headers.get("retry-after")
        seconds = _number(value)
        if seconds is None and value:
            seconds = _seconds_until(value, wall_seconds)
    if seconds is None or seconds < 0:
        return None
    return min(seconds, MAX_RETRY_AFTER_SECONDS)


def _number(value: str | None, *, scale: float = 1.0) -> float | None:
    try:
        number = float(value or "") * scale
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _seconds_until(date: str, wall_seconds: float) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() - wall_seconds
    except (ValueError, OverflowError):
        return None


def _kind(status: int, complaint: Complaint) -> type[ModelError]:
    if status in _CONTEXT_STATUSES and _is_context_too_long(complaint):
        return ContextTooLongError
    if status >= 500:
        return ModelUnavailableError
    return _KINDS.get(status, ModelRequestError)


def _hint(status: int) -> str:
    if status < 400:
        return " (redirects are not followed; use the final base URL)"
    return _HINTS.get(status, "")


def _is_context_too_long(complaint: Complaint) -> bool:
    if complaint.codes & _CONTEXT_CODES:
        return True
    message = complaint.message.lower()
    return any(marker in message for marker in _CONTEXT_MARKERS)
