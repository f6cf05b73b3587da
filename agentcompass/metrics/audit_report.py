"""The report card of a benchmark as text for people: ``audit.md``, and one line for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..records import AuditRecord
from .markdown import literal

_MEANINGS = {
    "reference_fails": "the reference solution does not pass",
    "flaky": "the reference solution passes at times",
    "null_passes": "doing nothing passes",
    "empty_passes": "an empty answer passes",
    "forgery_passes": "an answer that only claims a success passes",
    "leak": "an agent can read the reference solution or the tests",
}


def audit_line(audit: AuditRecord) -> str:
    """Return the result on one plain line."""
    counts = audit.counts
    return (
        f"{counts['tasks']} tasks · {counts['sound']} sound · {counts['findings']} with findings"
        f" · {counts['incomplete']} incomplete"
    )


def render_audit(audit: AuditRecord) -> str:
    """Return the text of ``audit.md``; whatever names contain is shown literally."""
    parts = (
        [f"# Audit of {literal(audit.benchmark.id)}"],
        _what_ran(audit),
        ["## Result", "", f"**{audit_line(audit)}**", *_kinds(audit)],
        _controls(audit),
        _findings(audit),
        _missing(audit),
    )
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _what_ran(audit: AuditRecord) -> list[str]:
    facts = (
        ("Benchmark", f"{audit.benchmark.id} {audit.benchmark.version}".strip()),
        ("Environment", f"{audit.environment.id} {audit.environment.version}".strip()),
        ("Audit", audit.audit_id),
        ("Started", audit.started_at),
        ("Seconds", f"{audit.seconds:.1f}"),
    )
    return [f"- {name}: {literal(text)}" for name, text in facts]


def _kinds(audit: AuditRecord) -> Iterator[str]:
    rows = [
        (kind, meaning, audit.counts[kind]) for kind, meaning in _MEANINGS.items() if kind in audit.counts
    ]
    if rows:
        yield ""
        yield from _table(("Finding", "Meaning", "Tasks"), rows)


def _controls(audit: AuditRecord) -> list[str]:
    rows = [
        (it.name, it.status, it.k, it.evaluated, it.passed, f"{it.seconds:.1f}", it.run_dir, it.error)
        for it in audit.controls
    ]
    head = ("Control", "Status", "Attempts per task", "Evaluated", "Passed", "Seconds", "Run", "Error")
    return ["## Controls", "", *_table(head, rows)]


def _findings(audit: AuditRecord) -> list[str]:
    rows = [
        (task.task_id, it.kind, it.control, it.explanation, ", ".join(it.evidence))
        for task in audit.tasks
        for it in task.findings
    ]
    if not rows:
        return []
    return ["## Findings", "", *_table(("Task", "Finding", "Control", "What happened", "Evidence"), rows)]


def _missing(audit: AuditRecord) -> list[str]:
    rows = [
        (task.task_id, it.control, it.attempt, it.outcome, it.error, it.evidence)
        for task in audit.tasks
        for it in task.missing
    ]
    if not rows:
        return []
    lines = _table(("Task", "Control", "Attempt", "Outcome", "Error", "Evidence"), rows)
    return ["## Missing", "", "Attempts that tell nothing about their task.", "", *lines]


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head)):
        yield f"| {' | '.join(row)} |"
    for cells in rows:
        yield f"| {' | '.join(literal(str(cell)) for cell in cells)} |"
