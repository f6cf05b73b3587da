"""Which texts of a task an agent must not come upon, and whether a text that it can read holds one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

REFERENCE = "reference"
_TELLING = re.compile(
    r"answer|solution|reference|target|expect|truth|gold|label|rubric|hint|patch|test|check", re.IGNORECASE
)
"""Names of hidden fields that give a task away; others, such as an entry point, the prompt may well show."""
_MIN_CHARACTERS = 40
"""What is shorter can stand anywhere by chance, or be one of the choices in the prompt."""
_MIN_LINES_IN_PROMPT = 2
_HUNK = re.compile(r"^@@ -\d", re.MULTILINE)
_MIN_PATTERN_CHARACTERS = 8
_MAX_PATTERN_CHARACTERS = 200
_PLAIN_RUN = re.compile(r"[ !#-\[\]-~]+")
"""Characters that JSON, too, writes as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenText:
    """
    One hidden text, taken apart for comparison.

    Args:
        name: The field.
        text: Its whole content.
        blocks: Paragraphs, or what a diff adds, with indentation and blank lines removed.
        needed: So many characters of blocks give the text away.
        lines: How many lines the blocks have.
    """

    name: str
    text: str
    blocks: tuple[str, ...]
    needed: int
    lines: int

    def is_in(self, text: str) -> bool:
        """Tell whether a text holds this one, plainly or within JSON."""
        return any(self._is_in(_normal(form)) for form in (text, _unescaped(text)))

    def _is_in(self, normal: str) -> bool:
        return sum(len(block) for block in self.blocks if block in normal) >= self.needed

    @property
    def patterns(self) -> list[str]:
        """Pieces of single lines; what holds the text holds one of them: the rest is too short to count."""
        pieces = []
        unmarked = sum(map(len, self.blocks))
        for block in sorted(self.blocks, key=len, reverse=True):
            if unmarked < self.needed:
                break
            piece = max((run.strip() for run in _PLAIN_RUN.findall(block)), key=len, default="")
            if len(piece) >= _MIN_PATTERN_CHARACTERS:
                pieces.append(piece[:_MAX_PATTERN_CHARACTERS])
                unmarked -= len(block)
        return pieces


def hidden_texts(reference: str | None, hidden: Mapping[str, Any], *, prompt: str) -> list[HiddenText]:
    """
    Return what must not be found in an agent's session, the reference first.

    What the prompt shows is left out of each text; half of the rest gives it away.
    """
    shown = set(_lines(prompt))
    return [taken for name, text in _fields(reference, hidden) if (taken := _take_apart(name, text, shown))]


def shown_in_prompt(reference: str | None, hidden: Mapping[str, Any], *, prompt: str) -> list[HiddenText]:
    """Return what the prompt itself gives away: half of a hidden field, or the whole reference."""
    taken = [_take_apart(name, text, set()) for name, text in _fields(reference, hidden)]
    return [it for it in taken if it and it.lines >= _MIN_LINES_IN_PROMPT and _gives_away(it, prompt)]


def _gives_away(text: HiddenText, prompt: str) -> bool:
    if text.name != REFERENCE:
        return text.is_in(prompt)
    # A reference often begins with what it completes, so a part of it says nothing.
    normal = _normal(prompt)
    return all(block in normal for block in text.blocks)


def _fields(reference: str | None, hidden: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    seen = set()
    named = [(REFERENCE, reference)] if reference else []
    for name, text in (*named, *_texts("", hidden, telling=False)):
        if text not in seen:
            seen.add(text)
            yield name, text


def _texts(path: str, value: Any, *, telling: bool) -> Iterator[tuple[str, str]]:
    match value:
        case str() if telling:
            yield path, value
        case Mapping():
            for key, item in value.items():
                inner = f"{path}.{key}".lstrip(".")
                yield from _texts(inner, item, telling=telling or bool(_TELLING.search(str(key))))
        case list() | tuple():
            if texts := [item for item in value if isinstance(item, str)]:
                yield from _texts(path, "\n".join(texts), telling=telling)
            for item in value:
                if not isinstance(item, str):
                    yield from _texts(path, item, telling=telling)


def _take_apart(name: str, text: str, shown: set[str]) -> HiddenText | None:
    blocks = _blocks(text, shown)
    characters = sum(map(len, blocks))
    needed = (characters + 1) // 2
    if characters < _MIN_CHARACTERS:  # most of it is in the prompt: only the whole of it counts
        blocks = _blocks(text, set())
        characters = needed = sum(map(len, blocks))
    if characters < _MIN_CHARACTERS:
        return None
    lines = sum(block.count("\n") + 1 for block in blocks)
    return HiddenText(name=name, text=text, blocks=tuple(blocks), needed=needed, lines=lines)


def _blocks(text: str, shown: set[str]) -> list[str]:
    """Return the runs of lines that count."""
    is_diff = bool(_HUNK.search(text))
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        counts = not is_diff or (line.startswith("+") and not line.startswith("+++"))
        normal = _normal_line(line)
        if counts and normal and normal not in shown:
            blocks[-1].append(normal)
        elif blocks[-1]:
            blocks.append([])
    return ["\n".join(block) for block in blocks if block]


def _lines(text: str) -> Iterator[str]:
    return (normal for line in text.splitlines() if (normal := _normal_line(line)))


def _normal_line(line: str) -> str:
    """Remove the indentation, and the mark of a line that a diff adds."""
    return line.strip().lstrip("+").strip()


def _normal(text: str) -> str:
    return "\n".join(_lines(text))


def _unescaped(text: str) -> str:
    """Undo what JSON does to a text, well enough to compare."""
    for escaped, plain in (("\\n", "\n"), ("\\t", "\t"), ('\\"', '"'), ("\\/", "/"), ("\\\\", "\\")):
        text = text.replace(escaped, plain)
    return text
