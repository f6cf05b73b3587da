"""The examples work, each the way a user would run it: on the command line, from a script, as a package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .markdown import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

EXAMPLES = ROOT / "docs" / "examples"
BAD_PROGRAM = "print("
GOOD_PROGRAM = "import re\nprint(sum(map(int, re.findall('[0-9]+', open('question.txt').read()))))\n"


def evaluate(folder: Path, *words: str, plugins: tuple[str, ...] = (), **variables: str) -> dict[str, Any]:
    """Run ``agentcompass run``, with further environment variables, and return its result."""
    program = [sys.executable, "-c", "from agentcompass.cli.main import main; main()"]
    options = [word for name in plugins for word in ("--plugin", str(EXAMPLES / name))]
    done = subprocess.run(
        [*program, "run", *words, *options, "--json"],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("benchmark", ["sums", "programs"])
@pytest.mark.parametrize(("control", "score"), [("oracle", 1.0), ("null", 0.0)])
def test_controls_score_what_they_must(tmp_path: Path, benchmark: str, control: str, score: float) -> None:
    """The reference solutions pass and an absent answer fails, without missing data."""
    result = evaluate(tmp_path, benchmark, control, plugins=(f"{benchmark}.py",))
    assert result["status"] == "completed"
    assert result["metrics"]["score"]["value"] == score


def evaluate_programs(folder: Path, *replies: str) -> dict[str, Any]:
    """Run the example harness on one sum with a model that gives these replies."""
    lines = [json.dumps({"text": f"```python\n{reply}```"}) for reply in replies]
    (folder / "script.jsonl").write_text("\n".join(lines), "utf-8")
    model = ["some-model", "--model-api-protocol", "scripted", "-m", "script=script.jsonl"]
    plugins = ("sums.py", "program_of_thought.py")
    return evaluate(folder, "sums", "program_of_thought", *model, "-b", "tasks=1", plugins=plugins)


def test_harness_mends_its_program(tmp_path: Path) -> None:
    """The first program fails, the second one answers; all four steps are in the trajectory."""
    result = evaluate_programs(tmp_path, BAD_PROGRAM, GOOD_PROGRAM)
    assert result["metrics"]["score"]["value"] == 1.0
    detail = json.loads((Path(result["paths"]["details"]) / "sum-000.1.json").read_bytes())
    assert [step["type"] for step in detail["steps"]] == ["model", "command", "model", "command"]


def test_harness_that_gives_up_is_a_failed_attempt(tmp_path: Path) -> None:
    """An agent that never succeeds counts as failed, not as missing data."""
    result = evaluate_programs(tmp_path, BAD_PROGRAM)
    assert result["metrics"]["counts"]["by_outcome"] == {"agent_error": 1}
    assert result["metrics"]["score"]["value"] == 0.0


def test_environment_serves_the_built_in_benchmark(tmp_path: Path) -> None:
    """HumanEval is judged in sessions of the example, and they leave nothing behind."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = ["humaneval", "oracle", "--limit", "2", "--environment", "scratch"]
    result = evaluate(tmp_path, *words, plugins=("scratch.py",), TMPDIR=str(temporary))
    assert result["metrics"]["score"]["value"] == 1.0
    assert not list(temporary.iterdir())


def test_environment_serves_a_program_as_the_agent(tmp_path: Path) -> None:
    """The command harness reads what the agent left, and an agent that left nothing is no error."""
    questions = [{"question": "Say ok", "answer": "ok"}, {"question": "Be silent", "answer": "ok"}]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, questions)), "utf-8")
    agent = "grep -q ok prompt.txt && echo ok > answer.txt; sleep 60 & true"
    words = ["jsonl", "command", "-b", "path=q.jsonl", "-H", f"command={agent}", "-H", "answer_from=file"]
    result = evaluate(tmp_path, *words, "--environment", "scratch", plugins=("scratch.py",))
    assert result["status"] == "completed"
    assert result["metrics"]["score"]["value"] == 0.5


def test_recipe_adapts_the_session(tmp_path: Path) -> None:
    """The agent program sees the mirror that the recipe names, and the run says which recipes applied."""
    question = {"question": "Which mirror?", "answer": "https://mirror.example/simple"}
    (tmp_path / "q.jsonl").write_text(json.dumps(question), "utf-8")
    words = ["jsonl", "command", "-b", "path=q.jsonl", "-H", "command=echo $PIP_INDEX_URL"]
    result = evaluate(tmp_path, *words, plugins=("package_mirror.py",))
    assert result["metrics"]["score"]["value"] == 1.0
    recipes = json.loads(Path(result["paths"]["run_json"]).read_bytes())["recipes"]
    assert [recipe["id"] for recipe in recipes] == ["package_mirror"]


def test_entry_point_of_a_package(tmp_path: Path) -> None:
    """An installed package's component is there without any option."""
    package = tmp_path / "site"
    metadata = package / "my_evals-1.0.dist-info"
    metadata.mkdir(parents=True)
    shutil.copy(EXAMPLES / "sums.py", package / "my_sums.py")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-evals\nVersion: 1.0\n", "utf-8")
    (metadata / "entry_points.txt").write_text("[agentcompass.benchmarks]\nsums = my_sums:Sums\n", "utf-8")
    result = evaluate(tmp_path, "sums", "oracle", PYTHONPATH=str(package))
    assert result["metrics"]["score"]["value"] == 1.0


def test_module_as_a_plugin(tmp_path: Path) -> None:
    """A module that can be imported serves as well as a file."""
    shutil.copy(EXAMPLES / "sums.py", tmp_path / "my_sums.py")
    result = evaluate(tmp_path, "sums", "oracle", "--plugin", "my_sums", PYTHONPATH=str(tmp_path))
    assert result["metrics"]["score"]["value"] == 1.0
