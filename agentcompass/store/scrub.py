"""
Remove the values of known secrets from everything that is written.

Works by value, never by field name: as it is, escaped (JSON at any depth, URL, HTML), and inside base64
or hexadecimal text. What was never seen whole, such as a key cut in two by an output limit, is not found.
"""

from __future__ import annotations

import base64
import html
import inspect
import re
from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from functools import cache
from typing import Any

import msgspec

from .. import records

PLACEHOLDER = "[secret]"
MIN_SECRET_CHARACTERS = 6
"""Shorter values (``EMPTY``, ``none``) are placeholders, and occur in ordinary text everywhere."""

_BREAK = rb"(?:[\r\n]|\\+[rn])*+"  # a line break, also escaped: encoders wrap long output
_BREAK_DISTANCE = 60
"""Wrapped base64 has lines of 64 or 76 characters: at most one break falls into this many."""


class Scrubber:
    """
    Replace secrets by ``[secret]``.

    A quick search for a few plain needles decides whether the slow, exact pattern has to look at all.

    Args:
        secrets: Values that must not be written; those below ``MIN_SECRET_CHARACTERS`` are ignored.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        usable = {s for s in secrets if len(s) >= MIN_SECRET_CHARACTERS and s.strip("\\")}
        known = sorted(usable, key=len, reverse=True)  # a secret may begin with another one
        patterns = [pattern for secret in known for pattern in _patterns(secret)]
        needles = [_needles(secret) for secret in known]
        self._needles = tuple(
            sorted({needle for group in needles for needle in group}, key=len, reverse=True)
        )
        self._always_search = any(not group for group in needles)
        # Backslashes in front go too: what stays must not end up escaping the placeholder.
        joined = b"|".join(patterns)
        self._pattern = re.compile(rb"(?:(?<!\\)\\++)?+(?:" + joined + rb")") if known else None

    def scrub_bytes(self, data: bytes) -> bytes:
        """Return the data without secrets; the very same object if there was none."""
        if self._pattern is None or not self._suspects(data):
            return data
        return self._pattern.sub(PLACEHOLDER.encode(), data)

    def scrub_text(self, text: str) -> str:
        """Return the text without secrets."""
        data = text.encode("utf-8", "surrogatepass")
        clean = self.scrub_bytes(data)
        return text if clean is data else clean.decode("utf-8", "surrogatepass")

    def scrub_json(self, data: bytes, *, keep: Collection[str] = ()) -> bytes:
        """
        Return the JSON document without secrets inside its strings, and still valid.

        Args:
            data: UTF-8; treated as plain bytes if it is no JSON after all.
            keep: Strings left alone where they stand for themselves: ids and paths that a record is
                found by. The words of our own format (field names, outcome classes) always are.
        """
        if self._pattern is None or not self._suspects(data) or not self._pattern.search(data):
            return data
        try:
            document = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return self.scrub_bytes(data)
        return msgspec.json.encode(self._walk(document, keep=keep))

    def _suspects(self, data: bytes) -> bool:
        for needle in self._needles:  # a loop: half the price of `any`
            if needle in data:
                return True
        return self._always_search

    def _walk(self, value: Any, *, keep: Collection[str]) -> Any:  # any JSON value
        match value:
            case str():
                return value if value in keep or value in _own_words() else self.scrub_text(value)
            case list():
                return [self._walk(item, keep=keep) for item in value]
            case dict():
                return {
                    self._walk(key, keep=keep): self._walk(item, keep=keep) for key, item in value.items()
                }
            case _:
                return value


@cache
def _own_words() -> frozenset[str]:
    """Collect field names, tags and enum values: replacing one would make a record unreadable."""
    words: set[str] = set()
    for _, kind in inspect.getmembers(records, inspect.isclass):
        if issubclass(kind, msgspec.Struct):
            config = kind.__struct_config__
            words.update((*kind.__struct_fields__, str(config.tag), str(config.tag_field)))
        elif issubclass(kind, Enum):
            words.update(str(member.value) for member in kind)
    return frozenset(words)


# --- the exact patterns ---------------------------------------------------------------------------


def _patterns(secret: str) -> Iterator[bytes]:
    yield _escaped(secret)
    raw = secret.encode("utf-8", "surrogatepass")
    for core in _base64_cores(raw):
        yield _BREAK.join(_base64_character(core[i : i + 1]) for i in range(len(core)))
    yield _BREAK.join(rb"(?i:%02x)" % byte for byte in raw)


def _escaped(secret: str) -> bytes:
    """Match a secret whose characters are escaped in whatever way; backslashes in front are taken already."""
    first, *rest = re.findall(r"\\+|[^\\]", secret.lstrip("\\"))
    lead = rb"(?:(?<=\\)|(?:%(?:25)*(?i:5c))++)" if secret.startswith("\\") else b""
    return lead + _character(first, escape=b"") + b"".join(_character(run, escape=rb"\\*+") for run in rest)


def _character(run: str, *, escape: bytes) -> bytes:
    """
    Match one character of a secret, or a run of backslashes, however it is escaped.

    Backslashes are taken possessively, all that there are: long runs then cost no backtracking.

    Args:
        escape: Matches the backslashes in front, unless something before has taken them.
    """
    raw = run.encode("utf-8", "surrogatepass")
    percent = b"".join(rb"%%(?:25)*(?i:%02x)" % byte for byte in raw)
    if run[0] == "\\":
        return rb"(?:\\{%d,}+|%b)" % (len(run), percent)  # each level of escaping doubles them
    if run.isascii() and run.isalnum():
        return raw
    forms = [escape + re.escape(raw), percent, escape + _unicode_escape(run), *_html_forms(run)]
    if run == " ":
        forms.append(rb"\+")
    if short := {"\n": b"n", "\r": b"r", "\t": b"t", "\b": b"b", "\f": b"f"}.get(run):
        forms.append(escape + rb"(?<=\\)" + short)
    return b"(?:" + b"|".join(forms) + b")"


def _unicode_escape(character: str) -> bytes:
    units = character.encode("utf-16-be", "surrogatepass")
    pairs = [rb"(?i:%b)" % units[i : i + 2].hex().encode() for i in range(0, len(units), 2)]
    return rb"(?<=\\)u" + rb"\\++u".join(pairs)


def _html_forms(character: str) -> Iterator[bytes]:
    named = html.escape(character)
    if named != character:
        yield re.escape(named.encode())
    yield rb"&#0*%d;" % ord(character)
    yield rb"&#[xX]0*(?i:%x);" % ord(character)


def _base64_cores(raw: bytes) -> Iterator[bytes]:
    """Yield, for each of the three alignments, the characters that do not depend on the neighbours."""
    for shift, spoilt in ((0, 0), (1, 2), (2, 3)):
        encoded = base64.b64encode(b"\0" * shift + raw).rstrip(b"=")
        whole = (shift + len(raw)) * 8 // 6
        yield encoded[spoilt:whole]


def _base64_character(character: bytes) -> bytes:
    match character:
        case b"+":
            return rb"(?:[+-]|%(?i:2b))"
        case b"/":
            return rb"(?:\\*+[/_]|%(?i:2f))"
        case _:
            return character


# --- the quick needles ----------------------------------------------------------------------------


def _needles(secret: str) -> list[bytes]:
    """
    Choose byte strings of which at least one is in any text that holds the secret in any form.

    Empty if the secret has no part that stays itself in every encoding.
    """
    unescaped = max(re.findall(r"[A-Za-z0-9]+", secret) or [""], key=len)
    if len(unescaped) < 4:
        return []
    raw = secret.encode("utf-8", "surrogatepass")
    chunks = [chunk for core in _base64_cores(raw) for chunk in _chunks(core)]
    if not all(chunks):
        return []
    digits = raw.hex().encode()
    half = min(len(digits) // 2, _BREAK_DISTANCE // 2)
    return [unescaped.encode(), *chunks, digits[:half], digits[half : 2 * half]]


def _chunks(core: bytes) -> list[bytes]:
    """Choose two pieces of base64 text such that a line break can hit only one of them."""
    runs = re.findall(rb"[A-Za-z0-9]+", core[:_BREAK_DISTANCE])
    halves = [half for run in runs for half in (run[: len(run) // 2], run[len(run) // 2 :])]
    chosen = sorted(halves, key=len)[-2:]
    return chosen if len(chosen) == 2 and all(len(chunk) >= 3 for chunk in chosen) else [b""]
