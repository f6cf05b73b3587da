"""
Read ``key=value`` as given on the command line.

The text is split at the first ``=``; dots in the key nest; a value that is valid JSON is taken as JSON,
anything else as text. A JSON object gives several keys at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ..errors import ConfigError

RULES = (
    'KEY=VALUE is split at the first \'=\'. Dots in KEY nest: a.b=1 is {"a": {"b": 1}}. VALUE is taken as '
    'JSON if it is valid JSON, else as text: true, 5, null and ["x"] are JSON, 007 and hello are text, and '
    '"5" with its quotes is the text 5. In place of KEY=VALUE, a JSON object gives several keys at once. '
    "Options of this kind may be repeated: mappings merge, and of other values the last one holds."
)


def read_key_values(texts: Iterable[str], *, option: str) -> dict[str, Any]:
    """
    Merge assignments into one mapping, later ones over earlier ones.

    Args:
        option: Named in messages.

    Raises:
        ConfigError: A text has no key or no ``=``, or is not the JSON object that it starts as.
    """
    merged: dict[str, Any] = {}
    for text in texts:
        try:
            _merge(merged, _read(text))
        except ValueError as error:
            raise ConfigError(f"{option}: {error}, got {text!r}") from error
    return merged


def _read(text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        return _object(text)
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError("expected KEY=VALUE or a JSON object")
    parts = key.split(".")
    if not all(parts):
        raise ValueError("the key, or a part of it, is empty")
    nested = _value(value)
    for part in reversed(parts):
        nested = {part: nested}
    return nested  # type: ignore[no-any-return]  # there is at least one part


def _object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(f"not a JSON object ({error})") from error


def _value(text: str) -> Any:  # whatever JSON can express
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


def _merge(target: dict[str, Any], assigned: Mapping[str, Any]) -> None:
    for key, value in assigned.items():
        old = target.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            _merge(old, value)
        else:
            target[key] = value
