"""Figures in the pages are computed by the code that stands above them."""

from __future__ import annotations

import subprocess
import sys

from .markdown import ROOT, blocks


def test_figures_of_the_swebench_page_are_what_its_code_prints() -> None:
    """The block of text after the computation is its output."""
    page = list(blocks(ROOT / "docs" / "swebench.md"))
    [number] = [number for number, block in enumerate(page) if block.text.startswith("images, ")]
    done = subprocess.run(
        [sys.executable, "-c", page[number].text], capture_output=True, text=True, check=True
    )
    assert page[number + 1].text == done.stdout
