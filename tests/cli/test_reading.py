"""``summary`` and ``show``: what a run directory tells, sound or damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from .console import ODD_HARNESSES, call, finish, start

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run four tasks that pass, fail, break and find no machine."""
    folder = tmp_path_factory.mktemp("finished")
    options = ["-b", "tasks=4", "--max-retries", "0", "--json"]
    _, out, _ = finish(start("run", "fake", "mixed", *ODD_HARNESSES, *options, cwd=folder))
    return Path(json.loads(out)["paths"]["run_dir"])


@pytest.fixture
def run_dir(finished_run: Path, tmp_path: Path) -> Path:
    """Copy the run, to be damaged at will."""
    return Path(shutil.copytree(finished_run, tmp_path / "run"))


def test_summary_needs_the_journal_only(run_dir: Path) -> None:
    """Deleted files come back byte for byte, and the table is the one that ``run`` printed."""
    before = {name: (run_dir / name).read_bytes() for name in ("metrics.json", "summary.md")}
    for name in before:
        (run_dir / name).unlink()
    result = call("summary", str(run_dir))
    assert result.exit_code == 0
    assert "score" in result.stdout
    assert {name: (run_dir / name).read_bytes() for name in before} == before
    assert not list(run_dir.glob(".partial*"))


def test_summary_of_an_interrupted_run(run_dir: Path) -> None:
    """A torn last line costs its own trial; the rest is counted."""
    journal = run_dir / "attempts.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])
    document = json.loads(call("summary", str(run_dir), "--json").stdout)
    assert document["metrics"]["counts"]["missing"] == 1
    assert document["metrics"]["counts"]["planned"] == 4


def test_summary_says_where_it_cannot_write(run_dir: Path) -> None:
    """The numbers are shown all the same."""
    (run_dir / "metrics.json").unlink()
    (run_dir / "metrics.json").mkdir()
    result = call("summary", str(run_dir))
    assert result.exit_code == 1
    assert "3/4" in result.stdout
    assert result.stderr.startswith("error: cannot write to ")


def test_show_lists_what_did_not_succeed(run_dir: Path) -> None:
    """Wrong, broken and missing attempts, at most as many as asked for, without control characters."""
    lines = call("show", str(run_dir)).stdout.splitlines()
    rows = {line.split()[0]: line for line in lines if line.startswith("t0")}
    assert [row.split()[2] for row in rows.values()] == ["wrong", "agent_error", "infra_error"]
    assert rows["t0002"].endswith(r"HarnessError: broke \x1b[2J[bold]")
    shorter = call("show", str(run_dir), "--limit", "1").stdout
    assert "2 more did not succeed; see them with --limit 3" in shorter


def test_show_of_a_perfect_run_says_so(tmp_path: Path) -> None:
    """An empty list would leave a person wondering."""
    run = call("run", "fake", "oracle", "--results-dir", str(tmp_path)).stdout
    result = call("show", run.splitlines()[-1])
    assert "nothing that ran failed" in result.stdout


def test_show_tells_all_about_a_task(run_dir: Path) -> None:
    """Steps, answer and score; hostile text stands there literally."""
    text = call("show", str(run_dir), "t0001").stdout
    assert text.startswith("t0001 · attempt 1 · trial 1 · completed · score 0.000")
    assert r"$ echo \x1b[31m[bold]hi" in text
    assert r"tab     bell\x07" in text
    assert "[red]wrong[/red]" in text
    assert "patch: artifacts/t0000/1/patch" in call("show", str(run_dir), "t0000").stdout
    assert "SessionOpenError in the agent phase: no machine" in call("show", str(run_dir), "t0003").stdout


def test_show_names_the_nearest_task(run_dir: Path) -> None:
    """A mistyped id is wrong input."""
    result = call("show", str(run_dir), "t001")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: no task 't001' in this run; did you mean 't0001'?\n"


@pytest.mark.parametrize("damage", [None, b"", b'{"task_id": ', b"[]", b"\xff\xfe"])
def test_damaged_details_are_one_clear_line(run_dir: Path, damage: bytes | None) -> None:
    """What the journal has is still shown."""
    detail = run_dir / "details" / "t0001.1.json"
    detail.unlink()
    if damage is not None:
        detail.write_bytes(damage)
    result = call("show", str(run_dir), "t0001")
    assert result.exit_code == 0
    assert "score 0.000" in result.stdout
    assert "its detail file 'details/t0001.1.json'" in result.stdout
    document = json.loads(call("show", str(run_dir), "t0001", "--json").stdout)
    assert document["trials"][0]["detail"] is None


def test_documents_hold_the_records(run_dir: Path) -> None:
    """``--json`` gives what is on disk."""
    document = json.loads(call("show", str(run_dir), "--json").stdout)
    assert [record["task_id"] for record in document["unsuccessful"]] == ["t0001", "t0002", "t0003"]
    trial = json.loads(call("show", str(run_dir), "t0001", "--json").stdout)["trials"][0]
    assert trial["record"]["outcome"] == "completed"
    assert trial["detail"]["answer"] == "[red]wrong[/red]"


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]"])
def test_folder_that_is_no_run(run_dir: Path, content: bytes | None) -> None:
    """Without a sound run.json there is one sentence and exit code 2."""
    (run_dir / "run.json").unlink()
    if content is not None:
        (run_dir / "run.json").write_bytes(content)
    for command in ("summary", "show"):
        result = call(command, str(run_dir))
        assert (result.exit_code, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1
