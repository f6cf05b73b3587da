"""Turn any text, hostile or not, into something that one line of a terminal can show."""

from __future__ import annotations

import unicodedata


def show(text: str, width: int | None = None) -> str:
    """
    Return a text as it may be shown: control and invisible characters escaped, cut to a width.

    Args:
        width: Terminal cells that may be used; None for no limit. What is cut off leaves a ``…``.
    """
    head = text if width is None else text[: width + 1]
    if not head.isprintable():
        head = "".join(char if char.isprintable() else _escape(char) for char in head)
    if width is None or (len(head) <= width and head.isascii()):
        return head
    return _cut(head, width)


def cell_width(text: str) -> int:
    """Return how many terminal cells a text takes; combining marks count, so it errs to the wide side."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _cells(char: str) -> int:
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _cut(text: str, width: int) -> str:
    if cell_width(text) <= width:
        return text
    kept, room = [], width - 1
    for char in text:
        room -= _cells(char)
        if room < 0:
            break
        kept.append(char)
    return "".join(kept) + "…" if width > 0 else ""
