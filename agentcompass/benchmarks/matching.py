"""Compare a reply with accepted answers, as text, number or choice; in linear time, however hostile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction

_MARKER = re.compile(r"\b(?:final[ \t]+)?answer\b[*_`]{0,3}[ \t]*(?:is\b|:|=|：)[ \t]*:?", re.I)
_BOXED = "\\boxed{"
_WRAPPING = "*_`\"' \t\n"
_NUMBER_TAIL_CHARACTERS = 20_000
_NUMBER = re.compile(
    r"""
    (?<![\w.])
    (?P<sign>(?<![)\]])[-+−]?) \$?
    (?:\\d?frac\{(?P<top>\d{1,300})\}\{(?P<bottom>\d{1,300})\}
      |(?P<number>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,300})(?:\.\d{1,300})?|\.\d{1,300})
       (?:[eE](?P<exponent>[-+]?\d{1,3})(?!\d)|[ ]?/[ ]?(?P<divisor>\d{1,300})(?![\d.,]))?)
    (?P<percent>[ ]?\\?%)?
    """,
    re.X,
)
_VERDICT = re.compile(rf"{_MARKER.pattern}|\\boxed\{{", re.I)
_LETTER = re.compile(
    r"""
    [\s*_`$(\[{"']{0,8} (?:(?:option|choice|\\boxed\{|\\text\{|\\mathrm\{)[ \t]*){0,3} [(*_`]{0,4}
    (?P<letter> [A-Z](?![\w'’]) | [a-z](?=[)\].}*_`"'$]{0,6}[ \t\r]{0,6}(?:\n|\Z)) )
    """,
    re.X,
)
_LEADING = re.compile(r"[*_`$(\[\"']{0,6}(?P<letter>[A-Za-z])(?:[)\].:}*_`\"'$]|\Z)")
_PARENTHESES = re.compile(r"\((?P<letter>[A-Z])\)")


def final_answer(reply: str) -> str:
    r"""
    Return the part of a reply that states its answer.

    That is the content of the last ``\boxed{...}``; else what follows the last "Answer:" or "answer is" on
    its line, or on the next line with text; else the last line with text.
    """
    boxed = last_boxed(reply)
    if boxed is not None:
        return boxed
    stated = stated_answer(reply)
    if stated is not None:
        return stated
    lines = reply.rstrip().rsplit("\n", 1)
    return lines[-1].strip()


def last_boxed(reply: str) -> str | None:
    r"""Return the content of the last ``\boxed{...}`` with balanced braces."""
    start = reply.rfind(_BOXED)
    if start < 0:
        return None
    start += len(_BOXED)
    depth = 1
    for brace in re.finditer(r"[{}]", reply[start:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return reply[start : start + brace.start()].strip()
    return None


def stated_answer(reply: str) -> str | None:
    """Return what follows the last "Answer:" or "answer is"."""
    end = max((match.end() for match in _MARKER.finditer(reply)), default=-1)
    if end < 0:
        return None
    rest = reply[end:].strip(_WRAPPING)
    return rest.split("\n", 1)[0].strip() or None


def matches_exactly(reply: str, accepted: Iterable[str], *, ignore_case: bool = True) -> bool:
    """
    Tell whether the whole reply or its final answer is one of the accepted texts.

    White space counts as one space; surrounding emphasis and quotes and a final full stop don't count.
    """
    said = {_normal(reply, ignore_case), _normal(final_answer(reply), ignore_case)}
    return any(_normal(text, ignore_case) in said for text in accepted)


def _normal(text: str, ignore_case: bool) -> str:
    text = " ".join(text.split()).strip(_WRAPPING)
    text = text.removesuffix(".").strip(_WRAPPING)
    return text.casefold() if ignore_case else text


def last_number(text: str) -> tuple[Fraction, ...]:
    r"""
    Return the readings of the last number in a text; empty if there is none.

    Understood are ``1,234.5``, ``-3``, ``.5``, ``1e-3``, ``3/4``, ``\frac{3}{4}`` and ``50%``, which reads
    as 50 and as 1/2. Numbers that are glued to letters don't count.
    """
    readings: tuple[Fraction, ...] = ()
    for match in _NUMBER.finditer(text[-_NUMBER_TAIL_CHARACTERS:]):
        readings = _readings(match) or readings
    return readings


def _readings(match: re.Match[str]) -> tuple[Fraction, ...]:
    over = int(match["bottom"] or match["divisor"] or 1)
    if over == 0:
        return ()
    value = Fraction((match["top"] or match["number"]).replace(",", "")) / over
    value *= Fraction(10) ** int(match["exponent"] or 0)
    if match["sign"] in {"-", "−"}:
        value = -value
    return (value, value / 100) if match["percent"] else (value,)


def matches_number(reply: str, accepted: Iterable[str], *, tolerance: float) -> bool:
    r"""
    Tell whether the last number of the reply is one of the accepted numbers.

    Where the reply states its answer (``\boxed{...}``, "Answer:"), the last number there.
    """
    stated = (last_boxed(reply), stated_answer(reply), reply)
    said = next((numbers for text in stated if text and (numbers := last_number(text))), ())
    wanted = [number for text in accepted for number in last_number(text)]
    margin = Fraction(tolerance)
    return any(abs(one - other) <= margin for one in said for other in wanted)


def chosen_letter(reply: str, choices: Sequence[str] = (), *, letters: str) -> str | None:
    r"""
    Return the letter that a reply chooses, or None.

    The last explicit verdict counts ("Answer: C", "the answer is (C)", ``\boxed{C}``); without one, the last
    line if it starts with a lone letter ("C", "(C) Paris", "**C.**"); else the last "(C)" in the reply; else
    the letter of the choice whose text the reply or its last line is.
    """
    return (
        _explicit_letter(reply, letters)
        or _leading_letter(final_answer(reply), letters)
        or _last_in_parentheses(reply, letters)
        or _letter_of_text(reply, choices, letters)
    )


def _explicit_letter(reply: str, letters: str) -> str | None:
    found = (_LETTER.match(reply, verdict.end()) for verdict in _VERDICT.finditer(reply))
    said = [match["letter"].upper() for match in found if match]
    return next((letter for letter in reversed(said) if letter in letters), None)


def _leading_letter(line: str, letters: str) -> str | None:
    match = _LEADING.match(line)
    return match["letter"].upper() if match and match["letter"].upper() in letters else None


def _last_in_parentheses(reply: str, letters: str) -> str | None:
    said = [match["letter"] for match in _PARENTHESES.finditer(reply) if match["letter"] in letters]
    return said[-1] if said else None


def _letter_of_text(reply: str, choices: Sequence[str], letters: str) -> str | None:
    pairs = zip(letters, choices, strict=False)
    return next((letter for letter, choice in pairs if matches_exactly(reply, [choice])), None)
