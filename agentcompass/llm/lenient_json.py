"""JSON to and from endpoints whose text is not always clean: lone surrogates, bad UTF-8, NaN."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec


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


def _plain(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is nothing that JSON knows")


def _null(_name: str) -> None:
    return None


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
