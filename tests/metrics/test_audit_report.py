"""The report card as Markdown."""

from __future__ import annotations

from agentcompass.metrics.audit_report import audit_line, render_audit
from agentcompass.records import (
    AuditRecord,
    ComponentRecord,
    ControlRun,
    Finding,
    MissingTrial,
    RunStatus,
    TaskAudit,
)

FINDING = Finding(kind="leak", control="snoop", explanation="test is in ./a|b.py", evidence=["s/1.json"])
GAP = MissingTrial(control="oracle", attempt=2, outcome="infra_error", error="E: <b>", evidence="o/2.json")


def audit(*tasks: TaskAudit, **counts: int) -> AuditRecord:
    return AuditRecord(
        audit_id="now",
        benchmark=ComponentRecord(id="bench"),
        environment=ComponentRecord(id="local", version="1"),
        dataset_hash="h",
        started_at="2021-03-04T05:06:07Z",
        seconds=1.25,
        versions={},
        counts={"tasks": len(tasks), "sound": 0, "findings": 0, "incomplete": 0, **counts},
        controls=[ControlRun(name="oracle", harness="oracle", k=5, status=RunStatus.PARTIAL, error="down")],
        tasks=list(tasks),
    )


def test_report_names_task_finding_and_evidence() -> None:
    """Literally, whatever characters there are in them."""
    text = render_audit(audit(TaskAudit(task_id="a*b", findings=[FINDING]), findings=1, leak=1))
    assert "| leak | an agent can read the reference solution or the tests | 1 |" in text
    assert r"| a\*b | leak | snoop | test is in ./a\|b.py | s/1.json |" in text
    assert "## Missing" not in text


def test_report_shows_what_is_missing() -> None:
    """With its error, and the control that did not finish with its own."""
    text = render_audit(audit(TaskAudit(task_id="t", missing=[GAP]), incomplete=1))
    assert "| t | oracle | 2 | infra_error | E: &lt;b&gt; | o/2.json |" in text
    assert "| oracle | partial | 5 | 0 | 0 | 0.0 |  | down |" in text
    assert "## Findings" not in text


def test_line_counts_tasks() -> None:
    """Sound, with findings, incomplete."""
    assert audit_line(audit(sound=3, findings=2)) == "0 tasks · 3 sound · 2 with findings · 0 incomplete"
