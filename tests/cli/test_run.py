"""``agentcompass run`` from end to end: output, exit codes, signals."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .console import ODD_HARNESSES, call, finish, start

pytestmark = pytest.mark.slow


def run(folder: Path, *arguments: str) -> list[str]:
    """Put together a run whose results stay in a folder."""
    return ["run", "fake", *arguments, "--results-dir", str(folder / "results"), "--data-dir", str(folder)]


def test_complete_run_prints_its_scores(tmp_path: Path) -> None:
    """Exit code 0; the table, the score line and the run directory on standard output."""
    result = call(*run(tmp_path, "oracle", "-k", "2"))
    assert (result.exit_code, "continue with" in result.stderr) == (0, False)
    *tables, score, run_dir = result.stdout.splitlines()
    assert tables[:4] == [
        "benchmark    fake",
        "harness      oracle",
        "model        -",
        "environment  local",
    ]
    assert {line.split()[0] for line in tables[5:] if line} == {
        "value", "score", "pass@1", "pass@2", "pass^1", "pass^2",
    }  # fmt: skip
    assert score.startswith("1.000 [")
    assert "6/6 evaluated" in score
    assert (Path(run_dir) / "summary.md").is_file()


def test_missing_data_is_exit_code_3_with_the_way_on(tmp_path: Path) -> None:
    """Failures are counted by error class, and the printed command resumes the run."""
    words = run(tmp_path, "mixed", *ODD_HARNESSES, "-b", "tasks=4", "--max-retries", "0")
    code, out, err = finish(start(*words, cwd=tmp_path))
    assert code == 3
    lines = [line.split() for line in out.splitlines()]
    assert ["HarnessError", "1"] in lines
    assert ["SessionOpenError", "1"] in lines
    way_on = shlex.split(err.splitlines()[-1])
    assert way_on[-2:] == ["--run-id", Path(out.splitlines()[-1]).name]
    _, again, _ = finish(start(*way_on[1:], cwd=tmp_path))
    assert again.splitlines()[-1] == out.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["orcale"], "error: unknown harness 'orcale'; did you mean 'oracle'?"),
        (["oracle", "-k", "0"], "error: --k: input should be greater than 0, got '0'"),
        (["oracle", "-b", "tsks=1"], "error: --benchmark-param tsks: no such option; did you mean 'tasks'?"),
        (["oracle", "-b", "x"], "error: --benchmark-param: expected KEY=VALUE or a JSON object, got 'x'"),
        (["oracle", "--strategy", "best"], "error: --strategy: input should be 'avg' or 'pass', got 'best'"),
        (["chat"], "error: MODEL: harness 'chat' needs a model; name one"),
        (["oracle", "-b", 'sample_ids=["t9"]'], "error: "),
        (
            ["oracle", "m", "--model-api-key", "sk-secret", "-m", "sk-secret"],
            "error: --model-param: expected",
        ),
    ],
)
def test_wrong_input_is_exit_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    """Nothing runs; one sentence names the option, without the key, and nothing is on standard output."""
    result = call(*run(tmp_path, *arguments), env={"MODEL_NAME": None})
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1].startswith(message)
    assert "sk-secret" not in result.stderr


def test_configuration_file_holds_where_nothing_was_typed(tmp_path: Path) -> None:
    """Benchmark, harness and parameters may come from the file; what is typed wins."""
    config = {"benchmark": "fake", "harness": "oracle", "benchmark_params": {"tasks": 5}, "limit": 4}
    (tmp_path / "c.json").write_text(json.dumps(config | {"results_dir": str(tmp_path)}), "utf-8")
    result = call("run", "--config", str(tmp_path / "c.json"), "--limit", "2", "--json")
    assert json.loads(result.stdout)["metrics"]["tasks"] == 2


def test_json_is_the_only_thing_on_standard_output(tmp_path: Path) -> None:
    """One document, whatever the progress display and the log say."""
    arguments = run(tmp_path, "oracle", "--json", "--progress", "json", "--log-level", "DEBUG")
    code, out, err = finish(start(*arguments, cwd=tmp_path))
    assert code == 0
    assert json.loads(out)["status"] == "completed"
    assert json.loads(out)["metrics"]["score"]["value"] == 1
    assert "run_started" in err


def test_key_is_nowhere(tmp_path: Path) -> None:
    """Neither the document, the messages, nor any file holds the key, even if another option repeats it."""
    secret = ["-m", "copy=sk-secret-1", "--model-api-key", "sk-secret-1"]
    more = [*ODD_HARNESSES, "-b", "tasks=4", "--max-retries", "0"]
    code, out, err = finish(start(*run(tmp_path, "mixed", "a-model", *secret, *more), cwd=tmp_path))
    assert code == 3
    assert "sk-secret-1" not in out + err
    assert '--model-api-key "$MODEL_API_KEY"' in err
    written = [path for path in (tmp_path / "results").rglob("*") if path.is_file()]
    assert written
    assert not any(b"sk-secret-1" in path.read_bytes() for path in written)


@contextmanager
def start_until_it_hangs(*arguments: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a run and wait until its journal has the one trial that ends by itself."""
    with start(*arguments, cwd=folder) as process:
        try:
            deadline = time.monotonic() + 10
            while not any(b'"trial"' in path.read_bytes() for path in folder.rglob("attempts.jsonl")):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("signals", "exit_code"),
    [
        ([signal.SIGINT], 130),
        ([signal.SIGINT, signal.SIGINT], 130),
        ([signal.SIGTERM], 143),
    ],
)
def test_signal_ends_a_run_that_hangs(tmp_path: Path, signals: list[signal.Signals], exit_code: int) -> None:
    """Finished work is kept and counted, the way on is shown, and there is no traceback."""
    arguments = run(tmp_path, "hang", *ODD_HARNESSES, "--json")
    with start_until_it_hangs(*arguments, folder=tmp_path) as process:
        for number in signals:
            process.send_signal(number)
        code, out, err = finish(process)
    assert code == exit_code
    assert json.loads(out)["metrics"]["counts"]["cancelled"] == 2
    assert json.loads(out)["metrics"]["counts"]["finished"] == 1
    assert "continue with" in err
    assert "Traceback" not in err


def test_deadline_of_the_run_is_exit_code_4(tmp_path: Path) -> None:
    """A run that was cut by its own deadline has missing data."""
    arguments = run(tmp_path, "hang", *ODD_HARNESSES, "--timeout-seconds", "1.5")
    code, _, err = finish(start(*arguments, cwd=tmp_path))
    assert code == 4
    assert "timed_out; continue with:" in err
