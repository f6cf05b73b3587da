"""The real mini-swe-agent resolves real repositories, led by an endpoint on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentcompass import run_evaluation
from agentcompass.records import CommandStep, Detail, TrialRecord
from agentcompass.store.journal import read_journal
from agentcompass.store.run import load_run, read_detail

from ..cli.console import call, finish, start
from ..docker import daemon
from .endpoint import KEY, Endpoint, serving
from .projects import Project
from .test_grading import graded

_LOOK = (
    "git log --all --oneline; git status --short; git stash list; git for-each-ref; git reflog --all; "
    "git fsck --lost-found --no-reflogs; git cat-file --batch-all-objects --batch | grep -ac 'CAN[A]RY'; "
    "grep -rac 'CAN[A]RY' .git . | grep -v ':0$'; env; cat /proc/mounts"
)


@pytest.fixture
def endpoint(projects: dict[str, Project]) -> Iterator[Endpoint]:
    """Leads to the reference patch: look, edit, submit."""

    def commands(problem: str, turn: int) -> Sequence[str]:
        [project] = [each for each in projects.values() if each.row["problem_statement"] in problem]
        edit = f"git apply - <<'EOF'\n{project.row['patch']}EOF"
        submit = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt"
        return [
            [_LOOK],
            [edit, "python -m pytest --version; which pytest"],
            ["git diff > patch.txt"],
            [submit],
        ][turn]

    with serving(commands) as served:
        yield served


def arguments(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "harness": "mini_swe_agent",
        "model": "acme/model",
        "model_base_url": endpoint.base_url,
        "model_api_key": KEY,
        "model_api_protocol": "openai-chat",
        "model_params": {"temperature": 0},
    }


def test_agent_resolves_every_project_through_python(options: dict[str, Any], endpoint: Endpoint) -> None:
    """Each step is kept, usage is counted, and nothing of the future was to be seen."""
    result = run_evaluation(**options, **arguments(endpoint), model_prices={"input": 3, "output": 15})
    assert result.metrics is not None
    assert result.metrics.score.value == 1.0
    assert result.metrics.usage.calls == 12
    assert result.metrics.usage.cost_usd == pytest.approx(12 * (1000 * 3 + 100 * 15) / 1e6)
    assert all(request["temperature"] == 0 for request in endpoint.requests)
    assert result.paths is not None
    run_dir = Path(result.paths.run_dir)
    for record in load_run(run_dir).trials():
        assert record.stop_reason == "Submitted"
        detail = read_detail(run_dir, record)
        assert isinstance(detail, Detail)
        outputs = [step.stdout for step in detail.steps if isinstance(step, CommandStep)]
        assert len(outputs) == 5
        assert "CANARY" not in "".join(outputs)
        assert "/opt/miniconda3/envs/testbed/bin/pytest" in outputs[2]
        assert {"patch.diff", "test_output.txt", "evaluation.json", "mini-swe-agent.traj.json"} <= set(
            detail.artifacts
        )
    assert KEY not in "".join(
        path.read_text("utf-8", "replace") for path in run_dir.rglob("*") if path.is_file()
    )


def test_agent_resolves_every_project_from_inside_the_session(
    options: dict[str, Any], endpoint: Endpoint
) -> None:
    """Without a network there and without the key: the engine makes the calls."""
    environment = {**options["environment_params"], "network_policy": "no-network"}
    result = run_evaluation(
        **{**options, "environment_params": environment},
        **arguments(endpoint),
        harness_params={"run_in": "session"},
    )
    assert result.metrics is not None
    assert result.metrics.score.value == 1.0
    assert result.metrics.usage.calls == 12
    for record, detail, run_dir in graded(result).values():
        assert record.stop_reason == "Submitted"
        outputs = [step.stdout for step in detail.steps if isinstance(step, CommandStep)]
        assert len(outputs) == 5
        assert "CANARY" not in "".join(outputs)
        assert (run_dir / detail.artifacts["mini-swe-agent.traj.json"]).stat().st_size > 1000


def test_agent_resolves_a_project_on_the_command_line_and_is_graded_again(
    data_path: Path, projects: dict[str, Project], endpoint: Endpoint, tmp_path: Path
) -> None:
    """Run one sample, export its prediction, and grade that without another model call."""
    sample = projects["django"].id
    common = ["-b", f"data_path={data_path}", "-b", f'sample_ids=["{sample}"]', "--environment", "docker"]
    common += ["-e", "pull=never", "--json", "--max-retries", "0"]
    model = ["--model-base-url", endpoint.base_url, "--model-api-protocol", "openai-chat"]
    process = start(
        *("run", "swebench_verified", "mini_swe_agent", "acme/model", *common, *model),
        cwd=tmp_path,
        env={"MODEL_API_KEY": KEY},
    )
    code, out, err = finish(process)
    assert code == 0, err
    result = json.loads(out)
    assert result["metrics"]["score"]["value"] == 1.0
    run_dir = result["paths"]["run_dir"]
    exported = call("export-predictions", run_dir)
    assert exported.exit_code == 0, exported.output
    [prediction] = [json.loads(line) for line in Path(run_dir, "predictions.jsonl").read_text().splitlines()]
    assert prediction["instance_id"] == sample
    assert prediction["model_name_or_path"] == "acme/model"
    assert prediction["model_patch"].strip() == projects["django"].row["patch"].strip()
    calls = len(endpoint.requests)
    source = f"predictions={run_dir}/predictions.jsonl"
    process = start("run", "swebench_verified", "replay", *common, "-H", source, cwd=tmp_path)
    code, out, err = finish(process)
    assert code == 0, err
    assert json.loads(out)["metrics"]["score"]["value"] == 1.0
    assert len(endpoint.requests) == calls


def test_unknown_sample_is_refused_with_the_nearest(data_path: Path, tmp_path: Path) -> None:
    """Before anything is spent."""
    process = start(
        *(
            "run",
            "swebench_verified",
            "null",
            "-b",
            f"data_path={data_path}",
            "-b",
            "sample_ids=django__django-33",
        ),
        *("--environment", "docker"),
        cwd=tmp_path,
    )
    code, _, err = finish(process)
    assert code == 2
    assert "did you mean 'django__django-3'?" in err


def test_patch_file_of_another_agent_is_fetched(
    options: dict[str, Any], projects: dict[str, Project]
) -> None:
    """What any program saves where the prompt says is its prediction, also if it is cut short."""
    project = projects["pytest"]
    command = f"git apply - <<'EOF'\n{project.row['patch']}EOF\ngit diff >/tmp/solution.patch; sleep 60"
    params = {**options["benchmark_params"], "sample_ids": project.id}
    result = run_evaluation(
        **{**options, "benchmark_params": params},
        harness="command",
        harness_params={"command": command},
        task_timeout_seconds=4,
    )
    assert result.paths is not None
    [record] = load_run(Path(result.paths.run_dir)).trials()
    assert (record.outcome, record.score) == ("timed_out", 1.0)


def test_killed_run_is_resumed_without_doing_anything_twice(
    data_path: Path, projects: dict[str, Project], endpoint: Endpoint, tmp_path: Path
) -> None:
    """SIGKILL with one task finished and one half-way: the finished one is kept, no call is repeated."""
    held = threading.Event()
    release = threading.Event()
    kept, cut = projects["pytest"], projects["unittest"]

    def hold(problem: str, turn: int) -> None:
        if cut.row["problem_statement"] in problem and turn == 2 and not release.is_set():
            held.set()
            release.wait(60)

    endpoint.hold = hold
    ids = json.dumps([kept.id, cut.id])
    words = ["run", "swebench_verified", "mini_swe_agent", "acme/model", "-b", f"data_path={data_path}"]
    words += ["-b", f"sample_ids={ids}", "--environment", "docker", "-e", "pull=never", "--json"]
    words += ["--model-base-url", endpoint.base_url, "--task-concurrency", "1"]
    process = start(*words, cwd=tmp_path, env={"MODEL_API_KEY": KEY})
    assert held.wait(60)
    process.kill()
    process.communicate()
    release.set()
    left = daemon.resources_of(process.pid)
    [journal] = tmp_path.glob("results/*/*/attempts.jsonl")
    before = [line for line in read_journal(str(journal)) if isinstance(line, TrialRecord)]
    assert [record.task_id for record in before] == [kept.id]
    killed, process = (
        process.pid,
        start(*words, "--run-id", journal.parent.name, cwd=tmp_path, env={"MODEL_API_KEY": KEY}),
    )
    code, out, err = finish(process)
    assert code == 0, err
    assert json.loads(out)["metrics"]["score"]["value"] == 1.0
    assert _turns(endpoint, kept) == [1, 1, 1, 1]
    assert _turns(endpoint, cut) == [2, 2, 2, 1]
    assert left
    assert daemon.resources_of(killed) == daemon.resources_of(process.pid) == set()


def _turns(endpoint: Endpoint, project: Project) -> list[int]:
    """Say how often each turn of a project was asked for."""
    problem = project.row["problem_statement"]
    return [endpoint.turns[key] for key in sorted(endpoint.turns) if problem in key[0]]
