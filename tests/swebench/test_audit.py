"""An audit of tasks in containers that look like the published ones: planted faults are found, no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentcompass import run_evaluation
from agentcompass.engine.audit import Audit, run_audit
from agentcompass.spec.options import RunArguments

from .conftest import run_options
from .projects import Project

pytestmark = [pytest.mark.once, pytest.mark.xdist_group("audit of swebench")]  # they share an audit

PASSES_ALREADY, WRONG_GOLD = "passes-already", "wrong-gold"


def rows_file(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def audit(projects: dict[str, Project], tmp_path_factory: pytest.TempPathFactory) -> Audit:
    """Audit a task whose failing test passes before the patch, and one whose gold patch is not enough."""
    project, folder = projects["pytest"], tmp_path_factory.mktemp("audit")
    row = {**project.row, "image": project.image}
    tests = {"FAIL_TO_PASS": row["PASS_TO_PASS"], "PASS_TO_PASS": "[]"}
    path = rows_file(
        folder,
        {**row, "instance_id": PASSES_ALREADY, **tests},
        {**row, "instance_id": WRONG_GOLD, "patch": project.partial},
    )
    options = {**run_options(folder), "benchmark_params": {"data_path": path}}
    return run_audit(RunArguments(harness="oracle", **options))


def found(audit: Audit, task_id: str) -> dict[str, str]:
    """Return the controls that found something at a task, and what it was."""
    [task] = [task for task in audit.record.tasks if task.task_id == task_id]
    return {finding.control: finding.kind for finding in task.findings}


def test_test_that_passes_before_the_patch_is_found(audit: Audit) -> None:
    """A patch that does nothing resolves it: no patch at all would not have been tested."""
    kinds = found(audit, PASSES_ALREADY)
    assert kinds["idle_patch"] == "null_passes"
    assert kinds.keys() <= {"idle_patch", "forger"}


def test_gold_patch_that_does_not_resolve_is_found(audit: Audit) -> None:
    """The explanation says which tests fail."""
    assert found(audit, WRONG_GOLD) == {"oracle": "reference_fails"}
    [_, task] = audit.record.tasks
    assert "FAIL_TO_PASS: 2 of 3 fail" in task.findings[0].explanation


def test_every_control_could_be_carried_through(audit: Audit) -> None:
    """Nothing is missing; the future of the repository and the tests are nowhere to be found."""
    assert audit.record.counts["incomplete"] == 0
    assert [task.missing for task in audit.record.tasks] == [[], []]
    assert "leak" not in audit.record.counts


def test_forged_patch_resolves_where_printed_results_are_believed(
    options: dict[str, Any], projects: dict[str, Project], tmp_path: Path
) -> None:
    """So that it fails above is to the credit of the control run."""
    project = projects["pytest"]
    params = {
        "data_path": rows_file(tmp_path, {**project.row, "image": project.image}),
        "control_run": False,
    }
    forger = {"harness": "forger", "harness_params": {"answer_form": "patch"}, "k": 2}
    result = run_evaluation(**{**options, "benchmark_params": params, **forger})
    assert result.metrics is not None
    assert result.metrics.pass_at["2"] == 1.0
