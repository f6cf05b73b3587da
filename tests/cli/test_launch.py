"""``agentcompass launch`` from end to end: files, plans, outcomes, resumption."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from .console import ODD_HARNESSES, call, finish, start

pytestmark = pytest.mark.slow

TWO = """
name: two
defaults:
  benchmark: {id: fake, tasks: 3}
  output: {results_dir: RESULTS}
requests:
  - {name: best, harness: oracle}
  - {name: worst, harness: "null"}
runtime: {progress: none}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path, TWO)


def write(folder: Path, text: str) -> Path:
    path = folder / "launch.yaml"
    path.write_text(text.replace("RESULTS", str(folder / "results")), "utf-8")
    return path


def test_outcome_of_each_request_is_told(file: Path, tmp_path: Path) -> None:
    """One line each, a file about the whole, and exit code 0 when all is complete, however low the scores."""
    result = call("launch", str(file))
    assert result.exit_code == 0, result.output
    assert "best     completed  1.000" in result.stdout
    assert "worst    completed  0.000" in result.stdout
    [told] = (tmp_path / "results" / "_launches").glob("*-two-*.json")
    document = json.loads(told.read_text())
    assert (document["status"], [entry["status"] for entry in document["requests"]]) == (
        "completed",
        ["completed", "completed"],
    )


def test_json_has_everything(file: Path) -> None:
    """The same as the Python result."""
    result = call("launch", str(file), "--json")
    document = json.loads(result.stdout)
    assert [request["metrics"]["score"]["value"] for request in document["requests"]] == [1.0, 0.0]
    assert document["status"] == "completed"


def test_resume_goes_on_in_place(file: Path, tmp_path: Path) -> None:
    """Finished requests are not run again, new ones start, and no second run directory is made."""
    assert call("launch", str(file), "--only", "best").exit_code == 0
    result = call("launch", str(file), "--resume", "--json")
    best, worst = json.loads(result.stdout)["requests"]
    assert (best["execution"]["executed_trials"], worst["execution"]["executed_trials"]) == (0, 3)
    assert len(list((tmp_path / "results" / "best").iterdir())) == 1


def test_changed_request_is_not_resumed(file: Path) -> None:
    """It is refused with the difference, and the others go on."""
    assert call("launch", str(file)).exit_code == 0
    file.write_text(file.read_text().replace("harness: oracle", 'harness: "null"'))
    result = call("launch", str(file), "--resume")
    assert result.exit_code == 1
    assert "best: error: run" in result.stderr
    assert "harness.id: 'oracle' then, 'null' now" in result.stderr
    assert "worst    completed" in result.stdout


def test_failed_request_costs_only_itself(tmp_path: Path) -> None:
    """Its data cannot be loaded: that is its outcome, told with the way on."""
    broken = "harness: oracle, benchmark: {id: jsonl, path: no.jsonl}"
    text = TWO.replace("harness: oracle", broken)
    result = call("launch", str(write(tmp_path, text)))
    assert result.exit_code == 1
    assert "best: error: benchmark 'jsonl' cannot be loaded" in result.stderr
    assert "continue with:" in result.stderr
    assert "--resume" in result.stderr
    assert "worst    completed" in result.stdout


def test_plan_runs_nothing(file: Path, tmp_path: Path) -> None:
    """Counts per request and in total, and what would be kept."""
    result = call("launch", str(file), "--dry-run", "--task-concurrency", "3")
    assert result.exit_code == 0
    assert "6 attempts" in result.stdout
    assert "- name: worst\n  benchmark:\n    id: fake\n    tasks: 3\n" in result.stdout
    assert "3 tasks" in result.stdout
    assert not (tmp_path / "results").exists()


def test_plan_tells_the_worst_case_and_shows_no_key(tmp_path: Path) -> None:
    """Output tokens where they are limited, with their cost; a missing key is remarked."""
    text = """
defaults:
  benchmark: {id: fake, tasks: 10}
  harness: chat
  output: {results_dir: RESULTS}
  execution: {max_retries: 1}
  model:
    base_url: "http://localhost:1/v1"
    params: {max_tokens: 100}
    max_retries: 0
    prices: {input: 1, output: 10}
requests:
  - {name: a, model: {id: m, api_key: sk-canary-key}}
  - {name: b, model: m}
"""
    result = call("launch", str(write(tmp_path, text)), "--dry-run")
    assert result.exit_code == 0, result.output
    assert "at most 4,000" in result.stdout
    assert "at most $0.04" in result.stdout
    assert "b: no model_api_key for http://localhost:1/v1" in result.stderr
    for more in ([], ["--json"]):
        assert "sk-canary-key" not in call("launch", str(tmp_path / "launch.yaml"), "--dry-run", *more).output


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "harness: oracle",
            "harness: orcle",
            "launch.yaml:7: requests.0.harness: unknown harness 'orcle'; did you mean 'oracle'",
        ),
        (
            "tasks: 3",
            "taks: 3",
            "launch.yaml:4: defaults.benchmark.taks: no such option; did you mean",
        ),
        ("name: two", "nam: two", "launch.yaml:2: nam: no such option; did you mean 'name'"),
        ("requests:", "requests: 3\nx:", "launch.yaml:6: requests: input should be a valid list"),
        ("name: two", "name: ${NO_SUCH_VARIABLE}", "launch.yaml:2: name: the environment variable"),
    ],
)
def test_wrong_file_is_exit_code_2_with_the_line(file: Path, old: str, new: str, message: str) -> None:
    """Nothing is run."""
    file.write_text(file.read_text().replace(old, new))
    result = call("launch", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr.replace(f"{file.parent}/", "")
    assert not (file.parent / "results").exists()


def test_unknown_request_is_named(file: Path) -> None:
    """A mistyped ``--only`` runs nothing."""
    result = call("launch", str(file), "--only", "bset")
    assert result.exit_code == 2
    assert "no request 'bset'; did you mean 'best'?" in result.stderr


def test_missing_file_is_named(tmp_path: Path) -> None:
    """With the reason."""
    result = call("launch", str(tmp_path / "no.yaml"))
    assert result.exit_code == 2
    assert "cannot read" in result.stderr


def test_configuration_file_lies_under_the_launch(file: Path, tmp_path: Path) -> None:
    """Its values hold where the launch file says nothing."""
    (tmp_path / "c.yaml").write_text("limit: 2\ntask_concurrency: 5\n")
    options = ["--config", str(tmp_path / "c.yaml"), "--dry-run", "--json"]
    document = json.loads(call("launch", str(file), *options).stdout)
    assert document["task_concurrency"] == 5
    assert [request["tasks"] for request in document["requests"]] == [2, 2]


@pytest.mark.parametrize("signals", [1, 2])
def test_signal_keeps_and_sums_up_what_is_finished(tmp_path: Path, signals: int) -> None:
    """Every request that had begun has its summary, and the file about the whole says how it ended."""
    text = TWO.replace("{name: best, harness: oracle}", "{name: best, harness: hang}")
    process = start("launch", str(write(tmp_path, text)), *ODD_HARNESSES, "--progress", "plain", cwd=tmp_path)
    assert process.stderr is not None
    while b"worst \xc2\xb7 completed" not in process.stderr.readline():
        assert process.poll() is None
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert code == 130, err
    assert "worst    completed  0.000" in out
    assert "best     cancelled" in out
    assert "--resume" in err
    [told] = (tmp_path / "results" / "_launches").glob("*.json")
    assert json.loads(told.read_text())["status"] == "cancelled"
    assert len(list((tmp_path / "results").glob("*/*/summary.md"))) == 2
