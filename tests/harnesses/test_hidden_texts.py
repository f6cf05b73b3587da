"""What counts as hidden, and when a text holds it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentcompass.harnesses.hidden_texts import hidden_texts, shown_in_prompt

PROMPT = 'Complete this.\n\ndef scale(values, factor):\n    """Multiply all values by a factor."""\n'
REFERENCE = (
    'def scale(values, factor):\n    """Multiply all values by a factor."""\n'
    "    result = []\n    for value in values:\n        result.append(value * factor)\n    return result\n"
)
TESTS = (
    "METADATA = {'author': 'somebody'}\n\n\ndef check(candidate):\n"
    "    assert candidate([1, 2], 3) == [3, 6]\n    assert candidate([], 3) == []\n"
)
HIDDEN: dict[str, Any] = {"prompt": PROMPT, "entry_point": "scale", "test": TESTS}
PATCH = """\
diff --git a/widgets/core.py b/widgets/core.py
--- a/widgets/core.py
+++ b/widgets/core.py
@@ -1,3 +1,5 @@
 def resize(value, factor):
+    if factor < 0:
+        raise ValueError("factor must not be negative")
     return value * factor
"""


def names_in(text: str, *, reference: str | None = REFERENCE, prompt: str = PROMPT) -> list[str]:
    return [it.name for it in hidden_texts(reference, HIDDEN, prompt=prompt) if it.is_in(text)]


def test_what_the_prompt_may_show_is_not_hidden() -> None:
    """The prompt itself, and a starter file with the function to complete, give nothing away."""
    assert [it.name for it in hidden_texts(REFERENCE, HIDDEN, prompt=PROMPT)] == ["reference", "test"]
    assert names_in(PROMPT) == []
    assert shown_in_prompt(REFERENCE, HIDDEN, prompt=PROMPT) == []


@pytest.mark.parametrize(
    "text",
    [
        TESTS,
        TESTS.partition("\n\n")[2],
        TESTS.replace("    ", "\t"),
        json.dumps({"rows": [HIDDEN]}),
        "".join(f"+{line}\n" for line in TESTS.splitlines()),
    ],
    ids=["whole", "without its head", "with tabs", "within JSON", "as a diff"],
)
def test_tests_are_known_in_every_form(text: str) -> None:
    """Copies need not be faithful to the last blank, nor complete."""
    assert names_in(f"something else\n{text}\nmore") == ["test"]
    [_, tests] = hidden_texts(REFERENCE, HIDDEN, prompt=PROMPT)
    assert any(pattern in text for pattern in tests.patterns)


def test_body_of_the_solution_is_enough() -> None:
    """Of a reference that begins with the prompt only the rest counts."""
    assert names_in(REFERENCE.partition('factor."""\n')[2]) == ["reference"]


def test_patched_file_gives_a_patch_away_and_the_original_does_not() -> None:
    """What a diff adds counts; its context is in the repository anyway."""
    original = "def resize(value, factor):\n    return value * factor\n"
    [patch] = hidden_texts(PATCH, {}, prompt="")
    assert not patch.is_in(original)
    assert patch.is_in(PATCH)
    assert patch.is_in(PATCH.partition("@@\n")[2].replace("+", ""))


def test_prompt_that_holds_the_tests_or_the_whole_reference_is_found() -> None:
    """Half of a hidden field is enough; of the reference it has to be all."""
    half_reference = REFERENCE.partition("        result")[0]
    assert [it.name for it in shown_in_prompt(REFERENCE, HIDDEN, prompt=PROMPT + TESTS)] == ["test"]
    assert [it.name for it in shown_in_prompt(REFERENCE, HIDDEN, prompt=REFERENCE)] == ["reference"]
    assert shown_in_prompt(REFERENCE, HIDDEN, prompt=half_reference) == []


def test_short_answers_are_not_looked_for() -> None:
    """They stand anywhere by chance, and among the choices of the prompt."""
    assert hidden_texts("Paris", {"answers": ["Paris", "the city of Paris"]}, prompt="") == []


def test_patterns_survive_json() -> None:
    """Whoever searches files for the pieces finds the text also where quotes are escaped."""
    [_, tests] = hidden_texts(
        REFERENCE, {"test": 'assert say("x") == "a long greeting for everybody"\n' * 2}, prompt=""
    )
    assert any(pattern in json.dumps(tests.text) for pattern in tests.patterns)


def test_fields_inside_of_fields_are_looked_at() -> None:
    """A row with its test patch, and a list of expected lines; the same text counts once."""
    expected = ["the first expected line", "the second expected line"]
    hidden = {"row": {"patch": PATCH, "base_commit": "0123456789" * 4}, "cases": [{"expected": expected}]}
    assert [it.name for it in hidden_texts(PATCH, hidden, prompt="")] == ["reference", "cases.expected"]
