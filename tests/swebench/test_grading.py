"""Predictions tested in containers that look like the published ones: what counts, and what does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agentcompass import RunResult, run_evaluation
from agentcompass.records import Detail, TrialRecord
from agentcompass.store.journal import read_journal
from agentcompass.store.run import read_detail

from .conftest import run_options
from .projects import Project

pytestmark = [pytest.mark.once, pytest.mark.xdist_group("verdicts")]  # one process: they share a run


def replay(
    options: Mapping[str, Any], project: Project, patches: Mapping[str, str], **more: Any
) -> RunResult:
    """Grade several predictions for one instance, each as an instance of its own in the same image."""
    folder = Path(options["results_dir"]).parent
    ids = {name: f"{project.id}-{number}" for number, name in enumerate(patches)}
    rows = [
        {**project.row, "instance_id": ids[name], "image": project.image, "name": name} for name in patches
    ]
    predictions = [{"instance_id": ids[name], "model_patch": patch} for name, patch in patches.items()]
    for file, lines in (("rows.jsonl", rows), ("predictions.jsonl", predictions)):
        (folder / file).write_text("".join(json.dumps(line) + "\n" for line in lines))
    params = {
        "data_path": folder / "rows.jsonl",
        "category_field": "name",
        **more.pop("benchmark_params", {}),
    }
    arguments = {**options, "benchmark_params": params, **more}
    return run_evaluation(
        harness="replay", harness_params={"predictions": folder / "predictions.jsonl"}, **arguments
    )


Graded = Mapping[str, tuple[TrialRecord, Detail, Path]]
"""Record, evidence and run directory by the name of the prediction."""


def graded(result: RunResult) -> Graded:
    """Return what became of each prediction of a run."""
    assert result.paths is not None
    run_dir, found = Path(result.paths.run_dir), {}
    for record in read_journal(result.paths.journal):
        if isinstance(record, TrialRecord):
            detail = read_detail(run_dir, record)
            assert isinstance(detail, Detail)
            found[record.category] = (record, detail, run_dir)
    return found


def only(result: RunResult) -> tuple[TrialRecord, Detail]:
    """Return the one trial of a run and its evidence."""
    [(record, detail, _)] = graded(result).values()
    return record, detail


def artifact(found: tuple[TrialRecord, Detail, Path], name: str) -> bytes:
    _, detail, run_dir = found
    return (run_dir / detail.artifacts[name]).read_bytes()


def test_oracle_resolves_everything(options: dict[str, Any]) -> None:
    """The reference patches score 1, and the official report agrees."""
    result = run_evaluation(harness="oracle", **options)
    assert result.status == "completed", result.error
    assert result.metrics is not None
    assert result.metrics.score.value == 1.0
    assert {name: value.value for name, value in result.metrics.metrics.items()} == {
        "patch_applied": 1.0,
        "fail_to_pass": 1.0,
        "pass_to_pass": 1.0,
    }


def test_null_resolves_nothing_and_starts_no_container(options: dict[str, Any]) -> None:
    """An empty prediction is graded without a machine, so the daemon need not have an image."""
    result = run_evaluation(
        harness="null", **{**options, "environment_params": {"image": "no/such", "pull": "never"}}
    )
    assert result.metrics is not None
    assert result.metrics.score.value == 0.0
    assert result.metrics.score.evaluated == 3


def check_partial_and_breaking(found: Graded) -> None:
    record, detail, _ = found["partial"]
    assert record.score == 0.0
    assert 0 < record.metrics["fail_to_pass"] < 1
    assert record.metrics["pass_to_pass"] == 1
    assert detail.verifier_output["official_resolved"] is False
    record, detail, _ = found["breaking"]
    assert record.score == 0.0
    assert (record.metrics["fail_to_pass"], record.metrics["pass_to_pass"]) == (1.0, 0.0)
    assert detail.verifier_output["official_resolved"] is False


@pytest.mark.parametrize("kind", ["unittest", "django"])
def test_partial_and_breaking_patches_resolve_nothing(
    options: dict[str, Any], projects: dict[str, Project], kind: str
) -> None:
    """Some of the failing tests are not enough, and neither are all of them if another test breaks."""
    project = projects[kind]
    patches = {"partial": project.partial, "breaking": project.breaking}
    check_partial_and_breaking(graded(replay(options, project, patches)))


def adding(path: str, content: str) -> str:
    """Return a patch that creates a file."""
    lines = content.splitlines()
    body = "".join(f"+{line}\n" for line in lines)
    return (
        f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
        f"@@ -0,0 +1,{len(lines)} @@\n{body}"
    )


def _without_final_newline(patch: str) -> str:
    return patch.rstrip("\n")


def _in_a_fence(patch: str) -> str:
    return f"Here is the patch:\n\n```diff\n{patch}```\nIt resolves the issue."


def _with_wrong_line_numbers(patch: str) -> str:
    return patch.replace("@@ -1,6 +1,8 @@", "@@ -41,6 +41,8 @@")


def _with_stale_context(patch: str) -> str:
    """A first line that the file does not have so: only a fuzzy patch takes it."""
    return patch.replace(" def resize(value, factor):", " def resize(size, factor):")


def _with_carriage_returns(patch: str) -> str:
    return patch.replace("\n", "\r\n")


def _with_binary_file(patch: str) -> str:
    """A literal of git's binary format; the content is one zero byte."""
    return patch + (
        "diff --git a/icon.bin b/icon.bin\nnew file mode 100644\n"
        "index 0000000000000000000000000000000000000000..f76dd238ade08917e6712764a16a22005a50573d\n"
        "GIT binary patch\nliteral 1\nIcmZPo000310RR91\n\nliteral 0\nHcmV?d00001\n\n"
    )


def _with_rename_and_mode(patch: str) -> str:
    return patch + (
        "diff --git a/widgets/__init__.py b/widgets/start.py\nsimilarity index 100%\n"
        "rename from widgets/__init__.py\nrename to widgets/start.py\n"
        "diff --git a/tests/test_core.py b/tests/test_core.py\nold mode 100644\nnew mode 100755\n"
    )


def _with_changed_tests(patch: str) -> str:
    """Takes a test out of a graded file."""
    return patch + (
        "diff --git a/tests/test_core.py b/tests/test_core.py\n"
        "--- a/tests/test_core.py\n+++ b/tests/test_core.py\n"
        "@@ -1,5 +1,2 @@\n from widgets.core import resize\n \n-\n-def test_twice():\n"
        "-    assert resize(2, 2) == 4\n"
    )


def _with_latin_1(patch: str) -> str:
    return patch + adding("NOTES", "caf\udce9")


def _with_conftest(patch: str) -> str:
    return patch + adding("conftest.py", "collect_ignore = ['docs']\n")


SHAPES: Mapping[str, tuple[Callable[[str], str], str]] = {
    "no final newline": (_without_final_newline, "apply"),
    "in a fence": (_in_a_fence, "apply"),
    "wrong line numbers": (_with_wrong_line_numbers, "apply"),
    "stale context": (_with_stale_context, "fuzz"),
    "carriage returns": (_with_carriage_returns, "fuzz"),
    "binary file": (_with_binary_file, "apply"),
    "rename and mode": (_with_rename_and_mode, "apply"),
    "changed tests": (_with_changed_tests, "apply"),
    "not UTF-8": (_with_latin_1, "apply"),
    "honest conftest": (_with_conftest, "apply"),
}


_PASSES = [
    f"tests/test_core.py::{name}"
    for name in ("test_twice", "test_negative", "test_label[a]", "test_label[b]")
]
_PRINTS = "\n".join(f"    os.write(1, b'PASSED {name}\\n')" for name in _PASSES)
_MARKS = "os.write(1, b\"+ : '>>>>> End Test Output'\\n>>>>> Test Exit Code: 0\\n\")"
_AT_START = f"import os, signal\ndef pytest_configure(config):\n{_PRINTS}\n"
CHEATS = {
    "prints results, then leaves with success": f"{_AT_START}    os._exit(0)\n",
    "prints results at exit": f"import atexit, os\n@atexit.register\ndef say():\n{_PRINTS}\n",
    "prints results and the end mark": f"{_AT_START}    {_MARKS}\n    os._exit(0)\n",
    "turns failures into passes": (
        "import pytest\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n"
        "    outcome = yield\n    outcome.get_result().outcome = 'passed'\n"
    ),
    "kills the shell": f"{_AT_START}    os.kill(os.getppid(), 9)\n",
}


NO_PATCHES = {
    "does not apply": "--- a/widgets/none.py\n+++ b/widgets/none.py\n@@ -1 +1 @@\n-x\n+y\n",
    "in .git": adding(".git/hooks/post-checkout", "#!/bin/sh\n"),
}


@pytest.fixture(scope="module")
def verdicts(projects: dict[str, Project], tmp_path_factory: pytest.TempPathFactory) -> Graded:
    """What became of all these predictions, graded in one run."""
    project = projects["pytest"]
    patches = {name: change(project.row["patch"]) for name, (change, _) in SHAPES.items()}
    patches |= {name: adding("conftest.py", content) for name, content in CHEATS.items()}
    options = run_options(tmp_path_factory.mktemp("verdicts"))
    patches |= {"partial": project.partial, "breaking": project.breaking}
    return graded(replay(options, project, {**patches, **NO_PATCHES}))


def test_partial_and_breaking_patches_resolve_nothing_with_pytest(verdicts: Graded) -> None:
    """The same with logs of pytest."""
    check_partial_and_breaking(verdicts)


@pytest.mark.parametrize("shape", SHAPES)
def test_patches_of_every_shape_are_applied(verdicts: Graded, shape: str) -> None:
    """Whatever git or a fuzzy patch can make sense of counts."""
    record, detail, _ = verdicts[shape]
    assert record.score == 1.0, detail.verdict
    assert json.loads(artifact(verdicts[shape], "evaluation.json"))["applied"] == SHAPES[shape][1]


def test_bytes_of_a_patch_survive(verdicts: Graded) -> None:
    """What is no UTF-8 comes from the predictions file into the container and onto the disk as it was."""
    assert b"+caf\xe9\n" in artifact(verdicts["not UTF-8"], "patch.diff")


@pytest.mark.parametrize("cheat", CHEATS)
def test_forged_results_do_not_count(verdicts: Graded, cheat: str) -> None:
    """Code of the prediction can print what it likes and exit as it likes; the instance stays unresolved."""
    record, detail, _ = verdicts[cheat]
    assert record.outcome == "completed"
    assert record.score == 0.0, detail.verdict


def test_patch_that_does_not_apply_is_its_own_kind_of_failure(verdicts: Graded) -> None:
    """The verdict has git's own words, and no test is run."""
    record, detail, _ = verdicts["does not apply"]
    assert (record.score, record.metrics) == (0.0, {"patch_applied": 0.0})
    assert detail.verdict == "the prediction cannot be applied"
    assert "widgets/none.py" in detail.verifier_output["message"]
    assert "test_output.txt" not in detail.artifacts


def test_patch_of_the_git_directory_is_not_applied(verdicts: Graded) -> None:
    """A hook in .git would run in the grading."""
    record, detail, _ = verdicts["in .git"]
    assert record.score == 0.0
    assert ".git" in detail.verdict


def test_tests_that_hang_are_not_resolved(options: dict[str, Any], projects: dict[str, Project]) -> None:
    """The time for the tests is the prediction's; nothing of them lives on."""
    project = projects["pytest"]
    patch = project.row["patch"] + adding("conftest.py", "import time\ntime.sleep(600)\n")
    record, detail = only(
        replay(options, project, {"it": patch}, benchmark_params={"test_timeout_seconds": 3})
    )
    assert (record.outcome, record.score) == ("completed", 0.0)
    assert "stopped after 3 s" in detail.verdict


def test_flooded_log_is_no_wrong_answer(options: dict[str, Any], projects: dict[str, Project]) -> None:
    """Where our cap cut the log, nothing is known; the message names the setting."""
    project = projects["pytest"]
    patch = project.row["patch"] + adding(
        "conftest.py",
        "import os\ndef pytest_configure(config):\n    for _ in range(400): os.write(1, b'x' * 8192)\n",
    )
    record, _ = only(replay(options, project, {"it": patch}, benchmark_params={"max_log_mb": 1}))
    assert record.outcome == "infra_error"
    assert record.failure is not None
    assert "max_log_mb" in record.failure.message


def test_image_without_the_repository_is_no_wrong_answer(
    options: dict[str, Any], projects: dict[str, Project], busybox_image: str
) -> None:
    """The machinery failed, so the attempt is missing data."""
    project = projects["pytest"]
    environment = {"image": busybox_image, "pull": "never"}
    record, _ = only(replay(options, project, {"it": project.row["patch"]}, environment_params=environment))
    assert record.outcome == "infra_error"
    assert record.failure is not None
    assert record.failure.phase == "verify"
    assert "/testbed" in record.failure.message


def test_control_run_can_be_left_out(options: dict[str, Any], projects: dict[str, Project]) -> None:
    """The official semantics alone, for those who want them."""
    project = projects["pytest"]
    cheat = adding("conftest.py", CHEATS["prints results, then leaves with success"])
    record, detail = only(replay(options, project, {"it": cheat}, benchmark_params={"control_run": False}))
    assert record.score == 1.0
    assert "control_output.txt" not in detail.artifacts
