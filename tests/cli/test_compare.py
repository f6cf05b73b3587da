"""``compare``: table, Markdown and JSON, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .console import ODD_HARNESSES, call, finish, start

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Run the controls and an agent that passes, fails, breaks and finds no machine, each on 16 tasks."""
    folder = tmp_path_factory.mktemp("runs")
    options = ["-b", "tasks=16", "--max-retries", "0", "--json", *ODD_HARNESSES]
    processes = {name: start("run", "fake", name, *options, cwd=folder) for name in ("oracle", "mixed")}
    return {
        name: Path(json.loads(finish(process)[1])["paths"]["run_dir"]) for name, process in processes.items()
    }


def test_table_tells_the_difference_and_what_it_rests_on(runs: dict[str, Path]) -> None:
    """Numbers, sides, what differs, tasks, and the verdict in a sentence."""
    result = call("compare", str(runs["mixed"]), str(runs["oracle"]), "--limit", "3")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split("  ")[0] == "benchmark"
    assert lines[1].split() == [
        "fake",
        "12/16",
        "0.333",
        "1.000",
        "+0.667",
        "[+0.245,",
        "+0.898]",
        "0.008",
        "+8",
        "-0",
    ]
    assert ["harness.id", "mixed", "oracle"] in [line.split() for line in lines]
    assert "and 5 more (see --limit, --json)" in lines
    assert (
        "B is better: B - A is +0.667 [+0.245, +0.898], "
        "p = 0.008, exact McNemar test, one pass or fail per task" in lines
    )
    assert "4 of 16 tasks lack a score in A or B; with them B - A could be [+0.500, +0.750]" in lines


def test_several_pairs_are_corrected(runs: dict[str, Path]) -> None:
    """p after Holm stands beside the raw one, and decides."""
    a, b = str(runs["mixed"]), str(runs["oracle"])
    result = call("compare", a, b, b, a)
    first = result.stdout.splitlines()
    assert "p (Holm)" in first[0]
    assert [row.split()[7:9] for row in first[1:3]] == [["0.008", "0.016"], ["0.008", "0.016"]]
    assert "A is better: B - A is -0.667" in result.stdout
    assert "p = 0.016 after Holm" in result.stdout


def test_json_has_all_tasks_and_says_what_is_unknown(runs: dict[str, Path]) -> None:
    """One document for programs."""
    result = call("compare", str(runs["mixed"]), str(runs["oracle"]), "--json", "--limit", "0")
    [pair] = json.loads(result.stdout)["pairs"]
    assert len(pair["gained"]) == 8
    assert (pair["better"], pair["difference"]["method"]) == ("b", "exact_mcnemar")
    assert pair["a"]["cost_usd"] is None


def test_markdown_shows_the_same(runs: dict[str, Path]) -> None:
    """To paste into an issue."""
    text = call("compare", str(runs["mixed"]), str(runs["oracle"]), "--markdown").stdout
    assert text.startswith("# Comparison\n\n| benchmark | tasks | A | B |")
    assert "- B is better: B - A is +0.667 \\[+0.245, +0.898\\], p = 0.008" in text
    assert "| their cost | unknown | unknown |" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {row.replace("\\|", "").count("|") for row in rows} == {4, 9}


def test_refusal_names_the_field_and_is_lifted_by_it(runs: dict[str, Path], tmp_path: Path) -> None:
    """Fewer tasks by another parameter; the mark stands in the report."""
    short = call("run", "fake", "oracle", "-b", "tasks=5", "--results-dir", str(tmp_path), "--json").stdout
    other = json.loads(short)["paths"]["run_dir"]
    refused = call("compare", str(runs["mixed"]), other)
    assert refused.exit_code == 2
    assert "  benchmark.params.tasks: 16 in A, 5 in B\n" in refused.stderr
    assert "--allow benchmark" in refused.stderr
    marked = call("compare", str(runs["mixed"]), other, "--allow", "benchmark.params.tasks")
    assert marked.exit_code == 0
    assert ["benchmark.params.tasks", "16", "5"] in [line.split() for line in marked.stdout.splitlines()]
    assert "these runs were not measured alike; the comparison was allowed" in marked.stdout
    assert "11 tasks are planned in A alone and left out" in marked.stdout


def test_wrong_input_is_one_sentence(runs: dict[str, Path], tmp_path: Path) -> None:
    """No traceback, and exit code 2."""
    a, b = str(runs["mixed"]), str(runs["oracle"])
    for arguments, message in {
        (): "missing argument",
        (a,): "runs are compared in pairs, A with B; 1 path was given",
        (a, b, a): "3 paths were given",
        (a, a): "is named twice",
        (a, str(tmp_path)): "is no run directory",
        (a, str(tmp_path / "nowhere")): "there is no ",
        (a, f"{a}/run.json"): "cannot look for runs in ",
        (a, b, "--allow", "benhmark"): "did you mean 'benchmark'",
        (a, b, "--json", "--markdown"): "--markdown and --json exclude each other",
    }.items():
        result = call("compare", *arguments)
        assert result.exit_code == 2, arguments
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert message in result.stderr


def test_other_benchmark_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    """The first thing to agree in; its parameters are not listed as well."""
    (tmp_path / "q.jsonl").write_text('{"id": "a", "question": "q", "answer": "a"}\n', "utf-8")
    options = ["-b", f"path={tmp_path}/q.jsonl", "--results-dir", str(tmp_path), "--json"]
    other = json.loads(call("run", "jsonl", "oracle", *options).stdout)["paths"]["run_dir"]
    refused = call("compare", str(runs["oracle"]), other)
    assert refused.exit_code == 2
    assert refused.stderr.splitlines()[1] == "  benchmark.id: 'fake' in A, 'jsonl' in B"
    nothing = call("compare", str(runs["oracle"]), other, "--allow", "all")
    assert "have no task in common: 16 planned in A, 1 in B" in nothing.stderr
