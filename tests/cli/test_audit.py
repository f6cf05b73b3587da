"""``agentcompass audit`` from end to end: output, exit codes, signals."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from .console import call, finish, start

pytestmark = pytest.mark.slow


def audit(folder: Path, *arguments: str) -> list[str]:
    """Put together an audit whose results stay in a folder."""
    places = ["--results-dir", str(folder / "results"), "--data-dir", str(folder), "--progress", "none"]
    return ["audit", *arguments, *places]


def patterns(folder: Path) -> str:
    """Write a file of one question whose pattern takes anything, and return its path."""
    path = folder / "questions.jsonl"
    path.write_text('{"id": "one", "question": "What?", "answer": "."}', "utf-8")
    return str(path)


def test_sound_benchmark_is_exit_code_0(tmp_path: Path) -> None:
    """The controls, the result, and where the report lies."""
    result = call(*audit(tmp_path, "fake", "-b", "tasks=2", "--limit", "1"))
    assert result.exit_code == 0, result.output
    *lines, total, folder = result.stdout.splitlines()
    assert [line.split()[:3] for line in lines if line][1:] == [
        ["oracle", "completed", "5/5"],
        ["null", "completed", "0/1"],
        ["idle_patch", "completed", "0/1"],
        ["empty", "completed", "0/1"],
        ["forger", "completed", "0/3"],
        ["snoop", "completed", "0/1"],
    ]
    assert total.startswith("1 tasks · 1 sound · 0 with findings · 0 incomplete · ")
    assert sorted(path.name for path in Path(folder).glob("audit.*")) == ["audit.json", "audit.md"]


def test_findings_and_gaps_are_exit_code_1(tmp_path: Path) -> None:
    """A pattern that takes any answer takes forged ones; without a reference the oracle tells nothing."""
    params = ["-b", f"path={patterns(tmp_path)}", "-b", "match=regex"]
    result = call(*audit(tmp_path, "jsonl", *params))
    assert result.exit_code == 1
    assert ["one", "forgery_passes"] in [line.split()[:2] for line in result.stdout.splitlines()]
    assert "has no reference solution" in result.stdout


def test_json_is_one_document(tmp_path: Path) -> None:
    """The whole audit, and its paths."""
    result = call(*audit(tmp_path, "fake", "-b", "tasks=1", "--json"))
    document = json.loads(result.stdout)
    assert json.loads(Path(document["paths"]["audit_json"]).read_bytes()) == document["audit"]
    assert document["audit"]["counts"] == {"tasks": 1, "sound": 1, "findings": 0, "incomplete": 0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fak"], "error: unknown benchmark 'fak'"),
        (["fake", "-b", "tsks=1"], "error: --benchmark-param tsks: no such option"),
        (["fake", "--environment", "lokal"], "error: unknown environment 'lokal'; did you mean 'local'?"),
        (["fake", "-b", "sample_ids=t9"], "error: --benchmark-param sample_ids: unknown: 't9'"),
        ([], "error: BENCHMARK: "),
    ],
)
def test_wrong_input_is_exit_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    """One sentence, and no report."""
    result = call(*audit(tmp_path, *arguments))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert not list(tmp_path.rglob("audit.*"))


def test_interrupted_audit_reports_its_gaps(tmp_path: Path) -> None:
    """Exit code 130; what never ran is missing, not sound."""
    with start(*audit(tmp_path, "fake", "-b", "verify_seconds=60", "--json"), cwd=tmp_path) as process:
        deadline = time.monotonic() + 10
        while not any(b'"plan"' in path.read_bytes() for path in tmp_path.rglob("attempts.jsonl")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        code, out, err = finish(process)
    assert code == 130, err
    counts = json.loads(out)["audit"]["counts"]
    assert (counts["tasks"], counts["incomplete"]) == (3, 3)


def test_audit_can_be_excluded_on_the_command_line(tmp_path: Path) -> None:
    """The file of the report goes straight into a run."""
    (folder,) = call(*audit(tmp_path, "fake", "-b", "tasks=1")).stdout.splitlines()[-1:]
    run = ["run", "fake", "oracle", "--exclude-audit", f"{folder}/audit.json", "--dry-run", "--json"]
    assert json.loads(call(*run).stdout)["tasks"] == 3
