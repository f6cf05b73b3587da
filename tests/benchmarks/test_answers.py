"""What counts as the answer in a reply, and which code in it."""

from __future__ import annotations

import time

import pytest

from agentcompass.benchmarks.answers import extract_code, is_cut_off, strip_reasoning, without_prose

REASONING = {
    "plain": ("B", "B"),
    "one block": ("<think>A</think>B", "B"),
    "long tag, any case": ("<Thinking>A</THINKING>B", "B"),
    "only the closing tag": ("A</think>B", "B"),
    "two blocks": ("<think>a</think>B<think>c</think>D", "BD"),
    "nested": ("<think>a<think>b</think>c</think>D", "D"),
    "tag mentioned in the reasoning": ("<think>I saw <think> here</think>B", "B"),
    "never closed": ("<think>A", ""),
    "never closed after text": ("B <think>A", ""),
    "open fence in the reasoning": ("<think>```\nA</think>B", "B"),
    "closing tag on a fence line": ("```\nA\n```</think>B", "B"),
    "tags in a fence": ("```\n<think>x</think>\n```\n", "```\n<think>x</think>\n```\n"),
    "opening tag in a fence": ("<think>a</think>```py\ns = '<think>'\n```", "```py\ns = '<think>'\n```"),
    "tag in a code span": ("Use `<think>` here", "Use `<think>` here"),
    "white space stays": ("<think>A</think>\n\n B \n", "\n\n B \n"),
    "empty": ("", ""),
}


@pytest.mark.parametrize("name", REASONING)
def test_reasoning_is_no_part_of_the_answer(name: str) -> None:
    """Only the final content is left, byte for byte."""
    text, answer = REASONING[name]
    assert strip_reasoning(text) == answer


@pytest.mark.parametrize(
    ("text", "cut"),
    [("<think>A", True), ("<think>A</think>\n", True), ("<think>A</think>B", False), ("", False)],
)
def test_reply_without_final_content_is_cut_off(text: str, cut: bool) -> None:
    """A reply that never got to its answer is told from an empty one."""
    assert is_cut_off(text) is cut


DEFINED = "def f(x):\n    return x\n"
CODE = {
    "no fence": (DEFINED, DEFINED),
    "python": (f"a\n```python\n{DEFINED}```\nb", DEFINED),
    "py, tildes": (f"~~~py\n{DEFINED}~~~", DEFINED),
    "no language": (f"```\n{DEFINED}```", DEFINED),
    "never closed": (f"```python\n{DEFINED}", DEFINED),
    "empty and never closed": ("```python", ""),
    "last that defines it": (f"```\ndef f(): 1\n```\n```\n{DEFINED}```\n```\nprint(f(1))\n```", DEFINED),
    "last if none does": ("```\na = 1\n```\n```\nb = 2\n```", "b = 2\n"),
    "longer fence around a fence": (f"````\n{DEFINED}```\n````", f"{DEFINED}```\n"),
    "other fence inside": (f"```\n{DEFINED}~~~\n```", f"{DEFINED}~~~\n"),
    "in a list": ("- so\n  ```\n  def f(x):\n      return x\n  ```", DEFINED),
    "windows line ends": (f"```python\n{DEFINED}```".replace("\n", "\r\n"), DEFINED),
    "one-line code span": ("```f```", "```f```"),
    "unusual line separators stay": ("```\nf = '\x0c\u2028'\n```", "f = '\x0c\u2028'\n"),
}


@pytest.mark.parametrize("name", CODE)
def test_code_is_found_in_the_reply(name: str) -> None:
    """The block that defines the function is taken as it is."""
    text, code = CODE[name]
    assert extract_code(text, "f") == code


def test_prose_around_bare_code_is_dropped() -> None:
    """What can't be code goes at both ends."""
    assert without_prose(f"Here:\n\n{DEFINED}\nDone.") == DEFINED.rstrip()


HOSTILE = [
    "<",
    "<think>",
    "</think>",
    "<think></think>",
    "`",
    "```\n",
    "~~~\n```",
    " ",
    "\n",
    " \n",
    "def f",
    "\t`",
    "f =",
]


@pytest.mark.slow
@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_reply_takes_no_time(piece: str) -> None:
    """Five million characters are read in well under a second."""
    text = piece * (5_000_000 // len(piece))
    started = time.process_time()
    without_prose(extract_code(strip_reasoning(text), "f"))
    extract_code(text, "f")
    assert time.process_time() - started < 1.5
