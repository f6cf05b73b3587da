"""An audit finds what is wrong with a benchmark, task by task, and runs can leave these tasks out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentcompass import RunResult, run_evaluation
from agentcompass.engine import registry
from agentcompass.engine.audit import Audit, run_audit
from agentcompass.errors import ConfigError
from agentcompass.records import AuditRecord, Detail
from agentcompass.spec.options import RunArguments
from agentcompass.store.run import load_run

from .faulty import Faulty
from .lab import plans

pytestmark = [pytest.mark.slow, pytest.mark.once, pytest.mark.xdist_group("audit")]  # they share an audit

FINDINGS = {
    "none": set(),
    "wrong reference": {"reference_fails"},
    "flaky grader": {"flaky"},
    "tests in the prompt": {"leak"},
    "tests in a file": {"leak"},
    "passes everything": {"null_passes", "empty_passes", "forgery_passes"},
    "trusts the exit code": {"forgery_passes"},
    "takes nothing for a part": {"empty_passes"},
    "broken grader": set(),
}


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    before = {key: dict(value) for key, value in registry._registered.items()}
    registry.benchmark("faulty")(Faulty)
    yield
    registry._registered.clear()
    registry._registered.update(before)


def options(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "benchmark": "faulty",
        "harness": "oracle",
        "results_dir": folder / "results",
        "data_dir": folder,
        "progress": "none",
        "log_level": "CRITICAL",
        "max_retries": 0,
        **more,
    }


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return run_audit(RunArguments(**options(tmp_path_factory.mktemp("audit"))))


def test_every_planted_fault_is_found_and_nothing_else(audit: Audit) -> None:
    """Each task has the findings of its fault, and the sound one has none."""
    found = {task.task_id: {finding.kind for finding in task.findings} for task in audit.record.tasks}
    assert found == FINDINGS


def test_broken_grader_is_missing_data(audit: Audit) -> None:
    """Infrastructure that fails is no finding, but it is shown, attempt by attempt."""
    gaps = {task.task_id: task.missing for task in audit.record.tasks if task.missing}
    [(task_id, missing)] = gaps.items()
    assert task_id == "broken grader"
    assert {gap.outcome for gap in missing} == {"infra_error"}
    assert [gap.attempt for gap in missing if gap.control == "oracle"] == [1, 2, 3, 4, 5]
    assert "the grader is broken" in missing[0].error
    assert (audit.record.counts["sound"], audit.record.counts["incomplete"]) == (1, 1)
    assert not audit.is_clean


def test_evidence_is_the_detail_file_of_a_trial(audit: Audit) -> None:
    """Whoever doubts a finding can look it up."""
    for task in audit.record.tasks:
        for finding in task.findings:
            assert finding.evidence
            for path in finding.evidence:
                detail = msgspec.json.decode((audit.audit_dir / path).read_bytes(), type=Detail)
                assert detail.task_id == task.task_id


def test_explanations_say_what_happened(audit: Audit) -> None:
    """The verdict on the reference, the forgery that passed, the place of a leak."""
    told = {
        (task.task_id, finding.control): finding.explanation
        for task in audit.record.tasks
        for finding in task.findings
    }
    assert told["wrong reference", "oracle"].startswith("the reference solution fails: the test failed")
    assert told["flaky grader", "oracle"] == "the reference solution passes 3 of 5 times"
    assert told["tests in the prompt", "snoop"].startswith("test is in the prompt")
    assert told["tests in a file", "snoop"].startswith("test is in ./tests.py")
    assert "prints success and exits at once" in told["trusts the exit code", "forger"]


def test_report_lies_beside_the_runs_of_the_controls(audit: Audit) -> None:
    """Both forms say the same, and every control has an ordinary run directory."""
    assert (
        msgspec.json.decode((audit.audit_dir / "audit.json").read_bytes(), type=AuditRecord) == audit.record
    )
    text = (audit.audit_dir / "audit.md").read_text("utf-8")
    assert all(task_id in text for task_id, kinds in FINDINGS.items() if kinds)
    runs = [load_run(audit.audit_dir / control.run_dir).record for control in audit.record.controls]
    assert [run.name for run in runs] == ["oracle", "null", "idle_patch", "empty", "forger", "snoop"]


def test_excluded_tasks_are_left_out_and_recorded(audit: Audit, tmp_path: Path) -> None:
    """Those with findings; the limit counts what is left."""
    file = audit.audit_dir / "audit.json"
    result = run_evaluation(**options(tmp_path, exclude_audit=file, limit=5))
    assert plans(result)[-1].task_ids == ["none", "broken grader"]
    record = run_record(result)
    assert record["excluded_tasks"] == [task_id for task_id, kinds in FINDINGS.items() if kinds]
    assert record["execution"]["exclude_audit"] == str(file)
    assert result.paths is not None
    assert "7 tasks with findings of an audit" in Path(result.paths.summary).read_text("utf-8")


def run_record(result: RunResult) -> dict[str, Any]:
    assert result.paths is not None
    record: dict[str, Any] = json.loads(Path(result.paths.run_json).read_bytes())
    return record


def test_exclusion_is_a_selection_of_tasks(audit: Audit, tmp_path: Path) -> None:
    """A run is continued under another exclusion as under another limit: what is finished stays."""
    file = audit.audit_dir / "audit.json"
    first = run_evaluation(**options(tmp_path, run_id="one", limit=2))
    second = run_evaluation(**options(tmp_path, run_id="one", exclude_audit=file, limit=1))
    assert first.metrics is not None
    assert second.metrics is not None
    assert second.execution.executed_trials == 0
    assert (first.metrics.score.value, second.metrics.score.value) == (0.5, 1.0)


def changed(audit: Audit, folder: Path, **fields: Any) -> Path:
    path = folder / "audit.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(audit.record, **fields)))
    return path


def test_audit_that_does_not_fit_is_refused(audit: Audit, tmp_path: Path) -> None:
    """Of another benchmark, of other content, of the future, or no audit at all."""
    tasks = [msgspec.structs.replace(task, task_hash="other") for task in audit.record.tasks]
    other = msgspec.structs.replace(audit.record.benchmark, id="humaneval")
    for fields, message in (
        ({"benchmark": other}, "is an audit of 'humaneval', not of 'faulty'"),
        ({"tasks": tasks}, "the content of 'wrong reference' and 6 more has changed since"),
        ({"schema_version": 99}, "newer version"),
    ):
        with pytest.raises(ConfigError, match=message):
            run_evaluation(**options(tmp_path, exclude_audit=changed(audit, tmp_path, **fields)))
    (tmp_path / "x.json").write_text("[]")
    for name, message in (("x.json", "is no audit.json"), ("y.json", "cannot read")):
        with pytest.raises(ConfigError, match=message):
            run_evaluation(**options(tmp_path, exclude_audit=tmp_path / name))


def test_exclusion_of_everything_says_so(audit: Audit, tmp_path: Path) -> None:
    """A run of nothing is a mistake in the input."""
    params = {"sample_ids": ["flaky grader"]}
    with pytest.raises(ConfigError, match="exclude_audit leaves all of them out"):
        run_evaluation(
            **options(tmp_path, exclude_audit=audit.audit_dir / "audit.json", benchmark_params=params)
        )


def test_wrong_input_leaves_nothing(tmp_path: Path) -> None:
    """Neither a component that does not exist nor a task that does not makes a report."""
    for more in ({"environment": "moon"}, {"benchmark_params": {"sample_ids": "no such"}}):
        with pytest.raises(ConfigError):
            run_audit(RunArguments(**options(tmp_path, **more)))
    assert not (tmp_path / "results" / "audit__faulty").exists()
