"""``agentcompass audit``: find out which tasks of a benchmark cannot be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import ConfigError
from ..metrics.audit_report import audit_line
from ..progress.phrases import duration
from ..records import AuditRecord
from .options import chosen_parameters, given_values, with_option_names
from .table import Table, print_tables
from .terminal import print_json, print_text

if TYPE_CHECKING:
    from ..engine.audit import Audit

_HELP = """
Find out which tasks of a benchmark cannot be trusted.

Control agents attempt every task: one hands in the reference solution, five times, and must pass each time;
others do nothing, hand in an empty answer, forge a success, or look for the tests, and must fail. The report
names each task that is wrong, with the evidence. Leave these tasks out of a run with --exclude-audit.

Exit codes: 0 every task is sound, 1 there are findings or gaps, 2 wrong input.

\b
  agentcompass audit humaneval --limit 20
  agentcompass run humaneval chat MODEL --exclude-audit results/audit__humaneval/ID/audit.json
"""
_FIELDS = (
    "benchmark",
    "benchmark_params",
    "environment",
    "environment_params",
    "limit",
    "task_concurrency",
    "results_dir",
    "data_dir",
    "plugins",
    "progress",
)
_ROWS_SHOWN = 50


def _audit(*, as_json: bool, **_fields: object) -> int:
    from ..engine.audit import run_audit
    from ..engine.configuration import run_arguments

    ctx = click.get_current_context()
    try:
        audit = run_audit(run_arguments({"harness": "oracle", **given_values(ctx)}))
    except ConfigError as error:
        raise ConfigError(with_option_names(str(error))) from error
    if as_json:
        _print_json(audit)
    else:
        _print_report(audit)
    if audit.signal_number is not None:
        return 128 + audit.signal_number
    return 0 if audit.is_clean else 1


def _print_json(audit: Audit) -> None:
    from ..engine.audit import AUDIT_FILE, REPORT_FILE
    from ..engine.result import plain

    names = {"audit_dir": "", "audit_json": AUDIT_FILE, "audit_md": REPORT_FILE}
    paths = {name: str(Path(audit.audit_dir, file)) for name, file in names.items()}
    print_json({"audit": plain(audit.record), "paths": paths})


def _print_report(audit: Audit) -> None:
    record = audit.record
    print_tables(_controls_table(record), _findings_table(record), _missing_table(record))
    print_text(f"{audit_line(record)} · {duration(record.seconds)}")
    print_text(str(audit.audit_dir))


def _controls_table(record: AuditRecord) -> Table:
    rows = [
        (it.name, str(it.status), f"{it.passed}/{it.evaluated}", duration(it.seconds), it.error)
        for it in record.controls
    ]
    return Table(("control", "status", "passed", "time", "error"), rows)


def _findings_table(record: AuditRecord) -> Table:
    rows = [
        (task.task_id, finding.kind, finding.explanation, " ".join(finding.evidence))
        for task in record.tasks
        for finding in task.findings
    ]
    return Table(("task", "finding", "what happened", "evidence"), _first(rows))


def _missing_table(record: AuditRecord) -> Table:
    rows = [
        (task.task_id, f"{it.control} {it.attempt}", it.outcome, it.error)
        for task in record.tasks
        for it in task.missing
    ]
    return Table(("task", "missing", "outcome", "error"), _first(rows))


def _first(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    more = len(rows) - _ROWS_SHOWN
    return [*rows[:_ROWS_SHOWN], (f"{more} more in audit.md", "", "", "")] if more > 0 else list(rows)


command = click.Command(
    "audit",
    callback=_audit,
    help=_HELP,
    params=[
        *chosen_parameters(_FIELDS),
        click.Option(["--json", "as_json"], is_flag=True, help="Print the audit as one JSON document."),
    ],
)
