"""JSON to and from endpoints that are not always clean: lone surrogates, bad UTF-8, NaN, odd types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

_MAX_TOKENS = 10**9  # nobody bills more in one call: a counter above is garbage


def encode(value: object) -> bytes:
    """
    Encode a value; lone surrogates, which UTF-8 cannot carry, become U+FFFD.

    Raises:
        TypeError: A part of the value is nothing that JSON knows.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except UnicodeEncodeError:
        return _without_surrogates(json.dumps(value, ensure_ascii=False, default=_plain)).encode()


def decode(body: bytes) -> Any:  # any JSON value
    """
    Decode a body, repaired if need be.

    Raises:
        ValueError: It is no JSON at all.
    """
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return json.loads(repair(body))


def repair(body: bytes) -> bytes:
    """
    Rewrite JSON that a strict decoder refuses only for its text or for NaN.

    Raises:
        ValueError: It is no JSON at all.
    """
    try:
        value = json.loads(body.decode("utf-8-sig", "replace"), parse_constant=_null)
        return _without_surrogates(json.dumps(value, ensure_ascii=False)).encode()
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def member(value: object, key: str) -> Any:  # any JSON value
    """Return what an object holds under a key; None if there is nothing or it is no object."""
    return value.get(key) if isinstance(value, dict) else None


def members(value: object, key: str) -> list[Any]:
    """Return the list that an object holds under a key; an empty one if there is none."""
    found = member(value, key)
    return found if isinstance(found, list) else []


def string(value: object) -> str:
    """Return a text; anything else counts as none."""
    return value if isinstance(value, str) else ""


def count(said: object, key: str) -> int:
    """Return a counter of tokens; 0 if it is missing or nonsense."""
    value = member(said, key)
    return value if type(value) is int and 0 <= value <= _MAX_TOKENS else 0


def _plain(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is nothing that JSON knows")


def _null(_name: str) -> None:
    return None


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
