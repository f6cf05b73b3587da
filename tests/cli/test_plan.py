"""``agentcompass run --dry-run``: the plan, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .console import call

pytestmark = pytest.mark.slow


def planned(folder: Path, *arguments: str) -> list[str]:
    """Put together a dry run whose results would be in a folder."""
    return ["run", "fake", "oracle", "--dry-run", "--results-dir", str(folder / "results"), *arguments]


def facts(text: str) -> dict[str, str]:
    """Read the two columns of the plan."""
    return dict(line.split("  ", 1) for line in text.splitlines() if "  " in line)


def test_plan_counts_without_running(tmp_path: Path) -> None:
    """Components, parameters, counts and limits are told; nothing is written."""
    options = ["-b", "tasks=5", "-k", "2", "--limit", "4", "--provider-limit", "local=8"]
    result = call(*planned(tmp_path, *options))
    assert result.exit_code == 0
    told = {name: value.strip() for name, value in facts(result.stdout).items()}
    expected = {
        "benchmark": "fake",
        "benchmark.tasks": "5",
        "tasks": "4",
        "attempts": "8 (2 per task)",
        "to run": "8",
        "at once": "16 tasks, 8 sessions of local",
    }
    assert expected.items() <= told.items()
    assert not list(tmp_path.iterdir())


def test_plan_says_what_is_kept(tmp_path: Path) -> None:
    """Finished attempts of the run to be continued are not run again."""
    results = ["--results-dir", str(tmp_path / "results")]
    assert call("run", "fake", "oracle", "--run-id", "r1", "--limit", "1", *results).exit_code == 0
    document = json.loads(call(*planned(tmp_path, "--run-id", "r1", "--json")).stdout)
    assert (document["attempts"], document["kept"]) == (3, 1)


def test_plan_shows_no_key(tmp_path: Path) -> None:
    """Not even where another option repeats it."""
    options = ["a-model", "--model-api-key", "sk-secret-1", "-m", "copy=sk-secret-1"]
    for more in ([], ["--json"]):
        result = call(*planned(tmp_path, *options, *more))
        assert result.exit_code == 0
        assert "sk-secret-1" not in result.stdout + result.stderr
        assert "a-model" in result.stdout


def test_plan_of_wrong_input_is_exit_code_2(tmp_path: Path) -> None:
    """A dry run refuses what a run would refuse."""
    result = call(*planned(tmp_path, "-b", 'sample_ids=["t9999"]'))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "t9999" in result.stderr
