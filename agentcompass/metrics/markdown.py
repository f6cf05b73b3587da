"""Put texts of any origin into Markdown so that they are shown as they are."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_MARKDOWN = re.compile(r"[\\`*\[\]|~$!#]|(?<![^\W_])_|_(?![^\W_])")  # "_" inside of a word is harmless


def literal(text: str) -> str:
    """Return Markdown that shows the text as it is, on one line, with invisible characters spelt out."""
    visible = "".join(
        char.encode("unicode_escape").decode("ascii") if unicodedata.category(char) in _INVISIBLE else char
        for char in text
    )
    return _MARKDOWN.sub(r"\\\g<0>", visible).translate(_HTML)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table: the first column on the left, the others on the right."""
    for row in (head, [":--", *["--:"] * (len(head) - 1)], *rows):
        yield f"| {' | '.join(row)} |"
