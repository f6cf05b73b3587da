"""Patches of a run in the official format: which attempts get a line, and where it goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .console import ODD_HARNESSES, call, finish, start

pytestmark = pytest.mark.slow

PATCH = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-caf\u00e9\n+tea\n"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two tasks: one handed a patch in, and one nothing."""
    folder = tmp_path_factory.mktemp("run")
    questions = [{"id": name, "question": name, "answer": "x"} for name in ("patched", "silent")]
    (folder / "q.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    (folder / "patch").write_text(PATCH, "utf-8")
    command = f"if grep -q patched prompt.txt; then cat {folder}/patch; fi"
    process = start(
        *("run", "jsonl", "command", "-b", "path=q.jsonl", "-H", f"command={json.dumps(command)}"),
        *("-e", "isolation=none", "--json"),
        cwd=folder,
    )
    code, out, err = finish(process)
    assert code == 0, err
    return Path(json.loads(out)["paths"]["run_dir"])


def test_every_attempt_that_counts_gets_a_line(run_dir: Path) -> None:
    """With an empty patch for one that handed in nothing."""
    result = call("export-predictions", str(run_dir), "--model-name", "acme/model")
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in (run_dir / "predictions.jsonl").read_text("utf-8").splitlines()]
    assert lines == [
        {"instance_id": "patched", "model_name_or_path": "acme/model", "model_patch": PATCH},
        {"instance_id": "silent", "model_name_or_path": "acme/model", "model_patch": ""},
    ]


def test_missing_data_gets_no_line(tmp_path: Path) -> None:
    """The official harness would take an empty patch for a wrong answer."""
    words = ["run", "fake", "mixed", "-b", "tasks=4", "--max-retries", "0", "--json", *ODD_HARNESSES]
    _, out, err = finish(start(*words, cwd=tmp_path))
    assert out, err
    paths = json.loads(out)["paths"]
    journal = [json.loads(line)["record"] for line in Path(paths["journal"]).read_text().splitlines()]
    lost = {record["task_id"] for record in journal if record.get("outcome") == "infra_error"}
    assert lost
    exported = call("export-predictions", paths["run_dir"], "-o", "-")
    written = {json.loads(line)["instance_id"] for line in exported.stdout.splitlines()}
    assert written == {record["task_id"] for record in journal if record["type"] == "trial"} - lost
    assert "is left out: it ended as infra_error" in exported.stderr


def test_standard_output_and_other_files(run_dir: Path, tmp_path: Path) -> None:
    """The harness stands in for a model that there is none of."""
    printed = call("export-predictions", str(run_dir), "-o", "-")
    assert {json.loads(line)["model_name_or_path"] for line in printed.stdout.splitlines()} == {"command"}
    call("export-predictions", str(run_dir), "-o", str(tmp_path / "p.jsonl"))
    assert (tmp_path / "p.jsonl").read_text() == printed.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--attempt", "2"], "has no finished attempt 2"),
        (
            ["-o", "/no/such/folder/p.jsonl"],
            "cannot write '/no/such/folder/p.jsonl': No such file or directory",
        ),
    ],
)
def test_wrong_input_is_named(run_dir: Path, words: list[str], message: str) -> None:
    """In one sentence."""
    result = call("export-predictions", str(run_dir), *words)
    assert result.exit_code != 0
    assert message in result.output


def test_no_run_directory(tmp_path: Path) -> None:
    """As everywhere."""
    result = call("export-predictions", str(tmp_path))
    assert result.exit_code == 2
    assert "is not a run directory" in result.output
