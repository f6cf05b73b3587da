"""Questions and answers from a person's own JSON Lines file: a benchmark without writing Python."""

from __future__ import annotations

import json
import math
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeFloat

from ..errors import ConfigError, nearest
from ..protocols import Grader, Outcome, Session, Task, Verdict, Verifier
from .answers import is_cut_off, strip_reasoning
from .matching import chosen_letter, last_number, matches_exactly, matches_number

Match = Literal["exact", "numeric", "regex", "choice"]
_LETTERS = string.ascii_uppercase
_LETTERS_WITHOUT_CHOICES = "ABCDEFGHIJ"


class JsonlParams(BaseModel):
    """Which fields of the file mean what, and how answers are compared."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    path: Path
    """The file: UTF-8, one JSON object a line; blank lines don't count."""
    question_field: str = "question"
    """Field with the question."""
    answer_field: str = "answer"
    """Field with the accepted answer: a text, a number, or a list of them."""
    id_field: str | None = "id"
    """Field with the task's id, a text or a whole number; if no line has it, line numbers are the ids."""
    category_field: str | None = None
    """Field with the category, for scores by category."""
    choices_field: str | None = None
    """Field with the list of choices; lettered, and put below the question unless the template does."""
    template: str = "{question}"
    """The prompt: ``{question}``, ``{choices}`` and ``{other_fields}`` are filled in, ``{{`` is a brace."""
    match: Match = "exact"
    """
    ``exact``: the whole reply or its final answer is the same text. ``numeric``: its last number is the same.
    ``choice``: it chooses the letter; the answer field holds the letter, the 0-based index or the text of the
    choice. ``regex``: the pattern in the answer field is found in the reply.
    """
    ignore_case: bool = True
    """Whether upper and lower case are the same, for ``exact`` and ``regex``."""
    tolerance: NonNegativeFloat = 1e-6
    """How far a number may be off, for ``numeric``."""
    keep_reasoning: bool = False
    """Whether ``<think>`` blocks are judged as part of the reply."""


class Jsonl:
    """The questions of one file."""

    answer_form: ClassVar[str] = "text"

    def __init__(self, params: JsonlParams) -> None:
        self._params = params

    def load(self, data_dir: Path) -> Iterable[Task]:
        """Read and check the whole file."""
        rows = list(_rows(self._params.path))
        if not rows:
            raise ConfigError(f"{self._params.path}: there is no question in the file")
        ids = _ids(rows, self._params.id_field)
        return [_task(row, task_id, self._params) for row, task_id in zip(rows, ids, strict=True)]

    def verifier(self) -> Grader | Verifier:
        """Return what compares replies; patterns of a person may be slow, so they get a killable grader."""
        return RegexGrader(self._params) if self._params.match == "regex" else MatchVerifier(self._params)


class MatchVerifier:
    """Compares a reply with the accepted texts, numbers or letters."""

    environment: ClassVar[Literal["none", "reuse", "fresh"]] = "none"

    def __init__(self, params: JsonlParams) -> None:
        self._params = params

    async def verify(self, task: Task, outcome: Outcome, session: Session | None) -> Verdict:
        """Pass a reply that matches one of the accepted answers."""
        return _verdict(task, outcome, self._params)


class RegexGrader:
    """Searches a reply for the accepted patterns."""

    def __init__(self, params: JsonlParams) -> None:
        self._params = params

    def grade(self, task: Task, outcome: Outcome) -> Verdict:
        """Pass a reply in which one of the patterns is found."""
        return _verdict(task, outcome, self._params)


def _verdict(task: Task, outcome: Outcome, params: JsonlParams) -> Verdict:
    reply = outcome.answer or ""
    if not params.keep_reasoning:
        if is_cut_off(reply):
            return Verdict.passed(False, "the answer was cut off inside its reasoning")
        reply = strip_reasoning(reply)
    if not reply.strip():
        return Verdict.passed(False, "there is no answer")
    accepted: Sequence[str] = task.hidden["answers"]
    success = _matches(reply, accepted, choices=task.hidden.get("choices", ()), params=params)
    return Verdict.passed(success, "" if success else f"expected {' or '.join(accepted)}"[:200])


def _matches(reply: str, accepted: Sequence[str], *, choices: Sequence[str], params: JsonlParams) -> bool:
    match params.match:
        case "exact":
            return matches_exactly(reply, accepted, ignore_case=params.ignore_case)
        case "numeric":
            return matches_number(reply, accepted, tolerance=params.tolerance)
        case "choice":
            letters = _LETTERS[: len(choices)] if choices else _LETTERS_WITHOUT_CHOICES
            return chosen_letter(reply, choices, letters=letters) in accepted
        case "regex":
            flags = re.IGNORECASE if params.ignore_case else 0
            return any(re.search(pattern, reply, flags) for pattern in accepted)


# --- reading the file -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    place: str
    """File and line, for messages."""
    line: int
    values: Mapping[str, object]

    def get(self, field: str) -> object:
        if field not in self.values:
            known = ", ".join(map(repr, self.values)) or "none"
            raise ConfigError(
                f"{self.place}: there is no field {field!r}{nearest(field, self.values)} (fields: {known})"
            )
        return self.values[field]

    def text(self, field: str) -> str:
        value = self.get(field)
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(field, value, "a text that is not blank")
        return value

    def wrong(self, field: str, value: object, valid: str) -> ConfigError:
        shown = json.dumps(value, ensure_ascii=False)[:200]
        return ConfigError(f"{self.place}: field {field!r} is {shown}, but must be {valid}")


def _rows(path: Path) -> Iterator[_Row]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _row(line, number, f"{path}:{number}")


def _row(line: bytes, number: int, place: str) -> _Row:
    try:
        values = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{place}: not UTF-8: byte {error.start + 1} of the line") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{place}: must be a JSON object, not {type(values).__name__}")
    return _Row(place, number, values)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")


def _ids(rows: Sequence[_Row], field: str | None) -> list[str]:
    if field is None or not any(field in row.values for row in rows):
        return [str(row.line) for row in rows]
    places: dict[str, _Row] = {}
    for row in rows:
        task_id = _id(row, field)
        if task_id in places:
            first = places[task_id]
            raise ConfigError(
                f"{row.place}: id {task_id!r} is that of line {first.line} already (ids are compared as text)"
            )
        places[task_id] = row
    return list(places)


def _id(row: _Row, field: str) -> str:
    value = row.get(field)
    if isinstance(value, bool) or not isinstance(value, int | str) or not str(value):
        raise row.wrong(field, value, "a text or a whole number")
    return str(value)


# --- from rows to tasks ---------------------------------------------------------------------------


def _task(row: _Row, task_id: str, params: JsonlParams) -> Task:
    choices = _choices(row, params.choices_field)
    answers = [_accepted(row, value, choices, params) for value in _answers(row, params.answer_field)]
    return Task(
        id=task_id,
        prompt=_prompt(row, choices, params),
        category=_category(row, params.category_field),
        reference=None if params.match == "regex" else answers[0],
        hidden={"answers": answers, **({"choices": choices} if choices else {})},
    )


def _answers(row: _Row, field: str) -> list[object]:
    value = row.get(field)
    answers = value if isinstance(value, list) else [value]
    if not answers or not all(map(_is_plain, answers)):
        raise row.wrong(field, value, "a text, a finite number, or a list of them")
    return answers


def _is_plain(value: object) -> bool:
    match value:
        case bool():
            return False
        case int() | float():
            return math.isfinite(value)
        case str():
            return bool(value.strip())
        case _:
            return False


def _accepted(row: _Row, answer: object, choices: Sequence[str], params: JsonlParams) -> str:
    """Return one accepted answer in the form that replies are compared with."""
    field = params.answer_field
    match params.match:
        case "exact":
            return str(answer)
        case "numeric":
            if not last_number(str(answer)):
                raise row.wrong(field, answer, "a finite number")
            return str(answer)
        case "choice":
            return _letter(row, field, answer, choices)
        case "regex":
            try:
                re.compile(str(answer))
            except (re.error, RecursionError, OverflowError) as error:
                raise row.wrong(field, answer, f"a regular expression ({error})") from error
            return str(answer)


def _letter(row: _Row, field: str, answer: object, choices: Sequence[str]) -> str:
    letters = _LETTERS[: len(choices)] if choices else _LETTERS_WITHOUT_CHOICES
    if isinstance(answer, int) and 0 <= answer < len(choices):
        return letters[answer]
    text = str(answer).strip()
    if len(text) == 1 and text.upper() in letters:
        return text.upper()
    if text in choices:
        return letters[choices.index(text)]
    valid = f"a letter from A to {letters[-1]}"
    raise row.wrong(
        field, answer, f"{valid}, an index below {len(choices)}, or a choice" if choices else valid
    )


def _choices(row: _Row, field: str | None) -> list[str]:
    if field is None:
        return []
    value = row.get(field)
    if not isinstance(value, list) or not all(map(_is_plain, value)) or not 2 <= len(value) <= len(_LETTERS):
        raise row.wrong(field, value, f"a list of 2 to {len(_LETTERS)} texts or numbers")
    return [str(choice).strip() for choice in value]


def _category(row: _Row, field: str | None) -> str:
    if field is None:
        return ""
    value = row.get(field)
    if not isinstance(value, str | int):
        raise row.wrong(field, value, "a text or a whole number")
    return str(value)


def _prompt(row: _Row, choices: Sequence[str], params: JsonlParams) -> str:
    lettered = "\n".join(f"{letter}. {choice}" for letter, choice in zip(_LETTERS, choices, strict=False))
    values = {"question": row.text(params.question_field), "choices": lettered}
    used = _template_fields(params)
    for field in used - values.keys():
        values[field] = str(row.get(field))
    prompt = params.template.format_map(values)
    return f"{prompt}\n\n{lettered}" if choices and "choices" not in used else prompt


def _template_fields(params: JsonlParams) -> set[str]:
    try:
        parts = list(string.Formatter().parse(params.template))
    except ValueError as error:
        raise ConfigError(f"template {params.template!r}: {error} (write {{{{ for a brace)") from error
    fields = {field for _, field, _, _ in parts if field is not None}
    for _, field, spec, conversion in parts:
        if spec or conversion or (field is not None and not field.replace("-", "_").isidentifier()):
            raise ConfigError(f"template {params.template!r}: {{{field}}} must be a plain field name")
    if params.answer_field in fields:
        raise ConfigError(f"template {params.template!r} would show the answer: {{{params.answer_field}}}")
    return fields
