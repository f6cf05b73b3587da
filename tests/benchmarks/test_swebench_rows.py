"""Rows become tasks: from every format, with every filter, with messages that name the place."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agentcompass.benchmarks.swebench import SweBench, SweBenchVerified
from agentcompass.benchmarks.swebench.params import SweBenchParams
from agentcompass.errors import ConfigError
from agentcompass.protocols import Task

CLASSIC = {
    "repo": "pallets/flask",
    "instance_id": "pallets__flask-1",
    "base_commit": "a" * 40,
    "patch": "--- a/flask/a.py\n+++ b/flask/a.py\n@@ -1 +1 @@\n-CANARY\n+y\n",
    "test_patch": "diff --git a/tests/test_a.py b/tests/test_a.py\n"
    "--- a/tests/test_a.py\n+++ b/tests/test_a.py\n@@ -1 +1 @@\n-x\n+CANARY\n",
    "problem_statement": "It fails.",
    "hints_text": "CANARY",
    "created_at": "2021-03-04T05:06:07Z",
    "version": "2.0",
    "FAIL_TO_PASS": '["tests/test_a.py::test_CANARY"]',
    "PASS_TO_PASS": "[]",
    "environment_setup_commit": "b" * 40,
    "difficulty": "<15 min fix",
}
MODERN = CLASSIC | {
    "instance_id": "acme__widgets-2",
    "repo": "acme/widgets",
    "image": "registry.example/widgets:2",
    "log_parser": "parse_log_pytest",
    "eval_type": "pass_and_fail",
    "eval_script": "#!/bin/bash\n: '>>>>> Start Test Output'\npytest\n: '>>>>> End Test Output'\n",
    "language": "python",
}


def load(path: Path, **params: Any) -> list[Task]:
    return list(SweBenchVerified(SweBenchParams(data_path=path, **params)).load(path.parent))


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    file = path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def write_json(path: Path, rows: list[dict[str, Any]]) -> Path:
    file = path / "rows.json"
    file.write_text(json.dumps(rows))
    return file


def write_json_by_id(path: Path, rows: list[dict[str, Any]]) -> Path:
    file = path / "rows.json"
    file.write_text("\ufeff" + json.dumps({row["instance_id"]: row for row in rows}))
    return file


def write_gzip(path: Path, rows: list[dict[str, Any]]) -> Path:
    file = path / "rows.jsonl.gz"
    file.write_bytes(gzip.compress(write_jsonl(path, rows).read_bytes()))
    return file


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    from pyarrow import Table, parquet

    file = path / "rows.parquet"
    parquet.write_table(Table.from_pylist(rows), file)
    return file


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_jsonl, write_json, write_json_by_id, write_gzip, write_parquet])
def test_every_format_gives_the_same_tasks(
    tmp_path: Path, write: Callable[[Path, list[dict[str, Any]]], Path]
) -> None:
    """The published Parquet file, and what people make of it."""
    [task] = load(write(tmp_path, [CLASSIC]))
    assert (task.id, task.question, task.reference) == (CLASSIC["instance_id"], "It fails.", CLASSIC["patch"])
    assert task.category == "pallets/flask"
    assert task.hidden["fail_to_pass"] == ["tests/test_a.py::test_CANARY"]
    assert task.hidden["row"] == CLASSIC
    assert "pytest -rA tests/test_a.py" in task.hidden["script"]


@pytest.mark.slow
def test_rows_that_bring_their_script(tmp_path: Path) -> None:
    """Fields of newer sets are taken from the row, and unknown ones are kept."""
    row = {**MODERN, "FAIL_TO_PASS": ["a"]}
    [task] = load(write_jsonl(tmp_path, [row]), category_field="language")
    assert (task.image, task.category) == ("registry.example/widgets:2", "python")
    assert task.hidden["script"] == MODERN["eval_script"]
    assert task.hidden["fail_to_pass"] == ["a"]
    assert task.hidden["row"]["language"] == "python"


@pytest.mark.slow
def test_agents_see_the_issue_and_nothing_else(tmp_path: Path) -> None:
    """Solution, tests, their names and hints are hidden; the prompt tells where to leave the patch."""
    [task] = load(write_jsonl(tmp_path, [CLASSIC]))
    assert "CANARY" not in task.prompt + task.question
    assert not task.files
    assert "/testbed" in task.prompt
    assert "/tmp/solution.patch" in task.prompt


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base_commit": None}, "row 2: lacks base_commit"),
        ({"FAIL_TO_PASS": "nonsense"}, "row 2: FAIL_TO_PASS is no JSON list"),
        ({"PASS_TO_PASS": "[1]"}, "row 2: PASS_TO_PASS must be a list of test names"),
        ({"version": "99"}, "row 2: swebench does not know how version '99' of 'pallets/flask' is tested"),
        ({"repo": "acme/widgets"}, "give the row eval_script"),
        ({"eval_script": "x", "log_parser": "parse_log_none"}, "no log parser 'parse_log_none'"),
        ({"eval_script": "pytest", "log_parser": "parse_log_pytest"}, "Start Test Output"),
    ],
)
def test_wrong_rows_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """A message says which row, what is wrong and what helps."""
    with pytest.raises(ConfigError) as error:
        load(write_jsonl(tmp_path, [CLASSIC, {**CLASSIC, "instance_id": "other", **change}]))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.csv", b"", "unknown format; use one of .parquet"),
        ("rows.jsonl", b"", "there is no row"),
        ("rows.jsonl", b"{", "rows.jsonl':1: "),
        ("rows.json", b"3", "must hold a list of rows"),
        ("rows.json", b"[3]", "row 1 is 3, not an object"),
        ("rows.json", b"\xff", "codec can't decode"),
        ("rows.jsonl.gz", b"no", "is no whole gzip file"),
        ("rows.parquet", b"no", "is no whole Parquet file"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    """Whatever is wrong with a file is one sentence that names it."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as error:
        load(tmp_path / name)
    assert message in str(error.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    """As is a file that is not there."""
    with pytest.raises(ConfigError, match=r"cannot read data_path .*none\.jsonl.*No such file"):
        load(tmp_path / "none.jsonl")


def test_unknown_category_field_is_refused(tmp_path: Path) -> None:
    """With the nearest one that exists."""
    with pytest.raises(ConfigError, match="did you mean 'difficulty'"):
        load(write_jsonl(tmp_path, [CLASSIC]), category_field="dificulty")


def test_set_without_data_is_refused() -> None:
    """The general benchmark needs a source."""
    with pytest.raises(ConfigError, match="data_path"):
        SweBench(SweBenchParams())


def test_other_revision_is_not_held_against_the_pinned_hash() -> None:
    """Whoever names a revision gets that one."""
    benchmark = SweBenchVerified(SweBenchParams(revision="main"))
    file = benchmark._file()
    assert file is not None
    assert (file.repo, file.revision, file.sha256) == ("SWE-bench/SWE-bench_Verified", "main", "")


@pytest.mark.slow
def test_images_may_come_from_elsewhere(tmp_path: Path) -> None:
    """A pattern goes over what rows and recipe say; one without the instance is refused."""
    [task] = load(write_jsonl(tmp_path, [MODERN]), image="mirror.example/{instance_id}:1")
    assert task.image == "mirror.example/acme__widgets-2:1"
    with pytest.raises(ValidationError, match="must hold"):
        SweBenchParams(image="mirror.example/one")
