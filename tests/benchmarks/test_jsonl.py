"""A person's own question file: what it may hold, how mistakes are reported, how replies are judged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from pydantic import ValidationError

from agentcompass.benchmarks.jsonl import Jsonl, JsonlParams
from agentcompass.errors import ConfigError
from agentcompass.protocols import Grader, Outcome, Task, Verdict, Verifier


def load(directory: Path, content: str | bytes, **params: Any) -> list[Task]:
    path = directory / "qa.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(Jsonl(JsonlParams(path=path, **params)).load(directory))


async def load_one(directory: Path, row: Mapping[str, object], **params: Any) -> Task:
    (task,) = await to_thread.run_sync(partial(load, directory, lines(row), **params))
    return task


def lines(*rows: Mapping[str, object]) -> str:
    return "\n".join(json.dumps({"question": "q", "answer": "a", **row}) for row in rows)


async def judge(task: Task, answer: str | None, **params: Any) -> Verdict:
    verifier = Jsonl(JsonlParams(path=Path(), **params)).verifier()
    if isinstance(verifier, Verifier):
        verdict = await verifier.verify(task, Outcome(answer=answer), None)
    else:
        verdict = verifier.grade(task, Outcome(answer=answer))
    assert isinstance(verdict, Verdict)
    return verdict


def test_windows_file_with_bom_and_blank_lines_is_read(tmp_path: Path) -> None:
    """Line ends, a byte order mark and blank lines don't matter; text is UTF-8 whatever the locale."""
    first = '{"id": "a/1", "question": "日本—?", "answer": 1}'
    second = '{"id": 2, "question": "y", "answer": ["b", 3]}'
    tasks = load(tmp_path, b"\xef\xbb\xbf" + f"\r\n{first}\r\n\r\n{second}\r\n".encode())
    assert [(task.id, task.prompt) for task in tasks] == [("a/1", "日本—?"), ("2", "y")]


def test_line_numbers_are_the_ids_where_no_line_has_one(tmp_path: Path) -> None:
    """Blank lines count, so that an id leads to its line."""
    tasks = load(tmp_path, f"{lines({})}\n\n{lines({})}\n")
    assert [task.id for task in tasks] == ["1", "3"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": 1}, {"id": "1"}], r"qa\.jsonl:2: id '1' is that of line 1"),
        ([{"id": "x"}, {"id": "y"}, {"id": "x"}], r"qa\.jsonl:3: id 'x' is that of line 1"),
        ([{"id": 1}, {}], r"qa\.jsonl:2: there is no field 'id'"),
        ([{"id": 1.0}], r"qa\.jsonl:1: field 'id' is 1\.0, but must be a text or a whole number"),
        ([{"id": True}], "field 'id' is true"),
        ([{"id": ""}], "field 'id' is \"\""),
        ([{"id": None}], "field 'id' is null"),
    ],
)
def test_ids_that_could_be_merged_are_refused(
    rows: list[dict[str, object]], message: str, tmp_path: Path
) -> None:
    """Ids are compared as text, and both lines are named."""
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, lines(*rows))


@pytest.mark.parametrize(
    "ids", [["1", "01"], ["a", "A"], ["é", "e\u0301"], ["x" * 290 + "a", "x" * 290 + "b"]]
)
def test_similar_ids_stay_apart(ids: list[str], tmp_path: Path) -> None:
    """Ids are kept as they are."""
    assert [task.id for task in load(tmp_path, lines(*({"id": one} for one in ids)))] == ids


MISTAKES = [
    ({}, b"", "there is no question"),
    ({}, b"{", r":1: not JSON"),
    ({}, b"\n[1]", r":2: must be a JSON object, not list"),
    ({}, b"\xff\xfe", r":1: not UTF-8: byte 1"),
    ({}, b'{"question": "q", "answer": NaN}', r":1: not JSON: NaN"),
    (
        {},
        b'{"question": "q", "answer": 1e999}',
        "field 'answer' is Infinity, but must be a text, a finite number",
    ),
    ({}, b'{"question": "q", "answr": 1}', "no field 'answer'; did you mean 'answr'"),
    ({}, b'{"question": " ", "answer": 1}', "field 'question' is \" \", but must be a text"),
    ({}, b'{"question": "q", "answer": null}', "field 'answer' is null"),
    ({}, b'{"question": "q", "answer": true}', "field 'answer' is true"),
    ({}, b'{"question": "q", "answer": []}', r"field 'answer' is \[\]"),
    ({}, b'{"question": "q", "answer": {"a": 1}}', "field 'answer' is {"),
    ({"match": "numeric"}, b'{"question": "q", "answer": "many"}', "must be a finite number"),
    ({"match": "regex"}, b'{"question": "q", "answer": "("}', "must be a regular expression"),
    ({"match": "choice"}, b'{"question": "q", "answer": "Paris"}', "must be a letter from A to J"),
    (
        {"match": "choice", "choices_field": "c"},
        b'{"question": "q", "answer": "C", "c": ["x", "y"]}',
        "a letter from A to B, an index below 2, or a choice",
    ),
    (
        {"choices_field": "c"},
        b'{"question": "q", "answer": 1, "c": "x"}',
        "field 'c' is \"x\", but must be a list",
    ),
    ({"category_field": "c"}, b'{"question": "q", "answer": 1, "c": []}', "field 'c' is"),
    ({"template": "{question} {answer}"}, b'{"question": "q", "answer": 1}', "would show the answer"),
    ({"template": "{question.x}"}, b'{"question": "q", "answer": 1}', "plain field name"),
    ({"template": "{"}, b'{"question": "q", "answer": 1}', "for a brace"),
    ({"template": "{hint}"}, b'{"question": "q", "answer": 1}', "no field 'hint'"),
]


@pytest.mark.parametrize(("params", "content", "message"), MISTAKES)
def test_mistake_is_reported_with_its_place(
    params: dict[str, Any], content: bytes, message: str, tmp_path: Path
) -> None:
    """The message names file, line, field, value and what is valid."""
    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path, content, **params)
    assert "qa.jsonl" in str(caught.value) or "template" in params


def test_missing_file_is_a_config_error(tmp_path: Path) -> None:
    """No traceback for a wrong path."""
    with pytest.raises(ConfigError, match=r"nowhere\.jsonl"):
        Jsonl(JsonlParams(path=tmp_path / "nowhere.jsonl")).load(tmp_path)


def test_unknown_match_lists_the_valid_ones() -> None:
    """A wrong setting is refused with the valid values."""
    with pytest.raises(ValidationError, match="'exact', 'numeric', 'regex' or 'choice'"):
        JsonlParams.model_validate({"path": "x", "match": "fuzzy"})


def test_prompt_shows_nothing_but_what_the_template_names(tmp_path: Path) -> None:
    """Answers and further fields never reach the agent; braces in the data are data."""
    row = {"question": "{x} 1+1?", "answer": "CANARY1", "target": "CANARY2", "hint": "think", "c": ["u", "v"]}
    (task,) = load(tmp_path, lines(row), template="Hint: {hint}\n{question}", choices_field="c")
    assert task.prompt == "Hint: think\n{x} 1+1?\n\nA. u\nB. v"
    assert "CANARY" not in task.prompt + str(task.files)


def test_template_decides_where_choices_stand(tmp_path: Path) -> None:
    """Choices are not repeated if the template has them."""
    row = {"c": [1, 2], "kind": "math"}
    (task,) = load(
        tmp_path, lines(row), template="{choices}\n{{{question}}}", choices_field="c", category_field="kind"
    )
    assert (task.prompt, task.category) == ("A. 1\nB. 2\n{q}", "math")


JUDGED = [
    ({}, {"answer": ["Paris", "City of Light"]}, "Answer: city of light.", "Nice"),
    ({"ignore_case": False}, {"answer": "Paris"}, "Paris", "paris"),
    ({"match": "numeric"}, {"answer": 42}, "So 40 + 2 = 42.", "43"),
    ({"match": "numeric", "tolerance": 0.1}, {"answer": ["7", 3.14]}, "3.1", "3"),
    ({"match": "choice"}, {"answer": "c"}, "**Answer: C**", "**Answer: D**"),
    ({"match": "choice", "choices_field": "c"}, {"answer": 0, "c": ["x", "y"]}, "A", "B"),
    ({"match": "choice", "choices_field": "c"}, {"answer": "y", "c": ["x", "y"]}, "The answer is (B)", "x"),
    ({"match": "regex"}, {"answer": r"^\s*par+is$"}, "PARRIS", "in paris"),
    ({}, {"answer": "B"}, "<think>A</think>B", "<think>B</think>A"),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("params", "row", "right", "wrong"), JUDGED)
async def test_right_reply_passes_and_wrong_one_fails(
    params: dict[str, Any], row: dict[str, object], right: str, wrong: str, tmp_path: Path
) -> None:
    """Each way to compare tells right from wrong, and fails what is no answer."""
    task = await load_one(tmp_path, row, **params)
    assert (await judge(task, right, **params)).success is True
    for reply in (wrong, None, "", " \n", "\ud800"):
        assert (await judge(task, reply, **params)).success is False


@pytest.mark.anyio
@pytest.mark.parametrize(("params", "row"), [(params, row) for params, row, _, _ in JUDGED])
async def test_reference_passes_where_there_is_one(
    params: dict[str, Any], row: dict[str, object], tmp_path: Path
) -> None:
    """The oracle scores 1; patterns have no reference."""
    task = await load_one(tmp_path, row, **params)
    if params.get("match") == "regex":
        assert task.reference is None
    else:
        assert (await judge(task, task.reference, **params)).success is True


@pytest.mark.anyio
async def test_reasoning_can_be_judged_too(tmp_path: Path) -> None:
    """With ``keep_reasoning`` nothing is removed."""
    task = await load_one(tmp_path, {"answer": "<think>x"})
    assert (await judge(task, "<think>x")).explanation == "the answer was cut off inside its reasoning"
    assert (await judge(task, "<think>x", keep_reasoning=True)).success is True


def test_patterns_get_a_killable_grader() -> None:
    """Only patterns may be slow; everything else is quick enough for the event loop."""
    kinds = {match: Jsonl(JsonlParams(path=Path(), match=match)).verifier() for match in ("regex", "exact")}
    assert isinstance(kinds["regex"], Grader)
    assert isinstance(kinds["exact"], Verifier)
    assert kinds["exact"].environment == "none"
