"""Read our Markdown pages: their fenced blocks, headings and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "recipes/README.md")),
        *(ROOT / "docs").glob("*.md"),
    ]
)

_FILE = re.compile(r"`(?P<file>[^`\s]+\.\w+)`:$")
_HEADING = re.compile(r"^(#+) (.+)$", re.M)
_LINK = re.compile(r"\[[^\]]+\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Block:
    """
    A fenced block.

    Args:
        file: The file that it shows, if the line above ends with that name and a colon.
    """

    page: Path
    line: int
    language: str
    text: str
    file: str

    @property
    def name(self) -> str:
        """Tell blocks apart in the names of tests."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    content = page.read_text("utf-8")
    for match in re.finditer(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", content, re.M | re.S):
        above = content[: match.start()].rstrip().rsplit("\n", 1)[-1]
        file = _FILE.search(above)
        line = content.count("\n", 0, match.start()) + 1
        yield Block(page, line, match["language"], match["text"], file["file"] if file else "")


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)


def headings(page: Path) -> list[str]:
    """Return the headings of a page."""
    return [match[2] for match in _HEADING.finditer(prose(page))]


def anchors(page: Path) -> set[str]:
    """Return what links may point to inside a page, as GitHub makes it from the headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(page)}


def links(page: Path) -> list[str]:
    """Return the targets of a page's links."""
    return [match["target"] for match in _LINK.finditer(prose(page))]
