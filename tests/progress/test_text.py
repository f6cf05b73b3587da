from __future__ import annotations

import pytest

from agentcompass.progress.text import cell_width, show

HOSTILE = [
    "\x1b[31mred\x1b[0m",
    "a\nb\r\tc\x00\x7f\x9b",
    "\u202eevil\u2066\u200b",
    "\ud800 lone",
    "任务" * 60,
    "x" * 300,
    "e" + "\u0301" * 300,
    "",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("width", [0, 1, 2, 7, 40])
def test_any_text_fits_its_width_and_is_printable(text: str, width: int) -> None:
    """Nothing that is shown can move the cursor, reverse the line or take more room than it was given."""
    shown = show(text, width)
    assert shown.isprintable()
    assert cell_width(shown) <= width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[bold]x[/bold]", "[bold]x[/bold]"),
        ("\x1b[31m", "\\x1b[31m"),
        ("x\ny", "x\\ny"),
        ("a\u202eb", "a\\u202eb"),
        ("\ud800", "\\ud800"),
        ("任务 7", "任务 7"),
    ],
)
def test_control_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    """Harmless text stays as it is; what would act on the terminal is spelt out."""
    assert show(text) == shown


def test_cut_text_says_so() -> None:
    """A cut leaves an ellipsis inside the width; wide characters are never split."""
    assert show("abcdef", 6) == "abcdef"
    assert show("abcdefg", 6) == "abcde…"
    assert show("任务任务", 6) == "任务…"
