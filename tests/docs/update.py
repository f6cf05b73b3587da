"""Rewrite what the docs contain of the code: ``python -m tests.docs.update``."""

from __future__ import annotations

from pathlib import Path

from . import options
from .markdown import PAGES, Block, blocks


def shown_file(block: Block) -> Path | None:
    """Return the file of the repository that a block must repeat, None for other blocks."""
    path = block.page.parent / block.file
    return path if block.language == "python" and block.file and path.is_file() else None


def updated(page: Path) -> str:
    """Return a page with current copies of the files that it shows."""
    text = page.read_text("utf-8")
    for block in blocks(page):
        source = shown_file(block)
        if source is not None:
            lead = f"`{block.file}`:\n\n```python\n"
            text = text.replace(f"{lead}{block.text}```", f"{lead}{source.read_text('utf-8')}```")
    return text


def main() -> None:
    """Rewrite all pages."""
    options.PAGE.write_text(options.render(), "utf-8")
    for page in PAGES:
        page.write_text(updated(page), "utf-8")


if __name__ == "__main__":
    main()
