"""Audit a benchmark: run the controls as one orchestration, and write down what they tell about each task."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..metrics.audit_report import render_audit
from ..records import (
    AuditRecord,
    ControlRun,
    Detail,
    PlanRecord,
    RunRecord,
    TaskAudit,
    TrialRecord,
)
from ..spec.options import OutputOptions, RunArguments
from ..spec.orchestration import ComponentSpec, OrchestrationSpec, RunRequestSpec, as_orchestration
from ..store.encode import to_json
from ..store.files import SYSTEM_FILES, write_whole
from ..store.layout import reserve_run_dir, slug
from ..store.run import LoadedRun, load_run, read_detail
from .api import launch_until_signal
from .controls import Control, Observed, answer_form, controls
from .orchestration import resolve_all
from .result import OrchestrationResult, RunResult

AUDIT_FILE = "audit.json"
REPORT_FILE = "audit.md"
_CONTROL_SECONDS = 3600.0
"""The controls do not work by the deadlines that tasks set for agents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """
    A finished audit.

    Args:
        audit_dir: Where the report and the run directories of the controls lie.
        signal_number: What stopped it, if anything did.
    """

    record: AuditRecord
    audit_dir: Path
    signal_number: int | None = None

    @property
    def is_clean(self) -> bool:
        """Whether every task was found sound."""
        return self.record.counts["sound"] == self.record.counts["tasks"]


def run_audit(arguments: RunArguments) -> Audit:
    """
    Run the controls on a benchmark and write ``audit.json`` and ``audit.md`` into a folder of their own.

    Args:
        arguments: Benchmark, environment, limits and places; harness and model do not matter.

    Raises:
        ConfigError: The input is wrong; nothing was run.
    """
    whole = as_orchestration(arguments)
    resolve_all(whole)  # what is wrong with one control is wrong with all: it is told once, as for a run
    wanted = controls(answer_form(arguments.benchmark), arguments.environment)
    audit_dir = reserve_run_dir(Path(arguments.results_dir), f"audit__{slug(arguments.benchmark)}")
    with _folder_only_if_used(audit_dir):
        result, signal_number = launch_until_signal(_orchestration(whole, wanted, audit_dir))
        _require_one_that_ran(result, signal_number)
    record = _record(audit_dir, wanted, result)
    _write(audit_dir / AUDIT_FILE, msgspec.json.format(to_json(record), indent=2) + b"\n")
    _write(audit_dir / REPORT_FILE, render_audit(record).encode("utf-8", "replace"))
    return Audit(record=record, audit_dir=audit_dir, signal_number=signal_number)


def _orchestration(whole: OrchestrationSpec, wanted: Sequence[Control], audit_dir: Path) -> OrchestrationSpec:
    """Make one named request of each control, their run directories in the folder of the audit."""
    [template] = whole.requests
    return whole.model_copy(update={"requests": [_request(it, template, audit_dir) for it in wanted]})


def _request(control: Control, template: RunRequestSpec, audit_dir: Path) -> RunRequestSpec:
    execution = template.execution.model_copy(
        update={
            "k": control.k,
            "task_timeout_seconds": template.execution.task_timeout_seconds or _CONTROL_SECONDS,
        }
    )
    return template.model_copy(
        update={
            "name": control.name,
            "harness": ComponentSpec(id=control.harness, **control.params),
            "execution": execution,
            "output": OutputOptions(results_dir=audit_dir, data_dir=template.output.data_dir),
        }
    )


@contextmanager
def _folder_only_if_used(audit_dir: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:  # whatever it was, an empty folder would be mistaken for an audit
        if not any(audit_dir.glob("*/*/run.json")):
            shutil.rmtree(audit_dir)
            with suppress(OSError):  # there are other audits
                audit_dir.parent.rmdir()
        raise


def _require_one_that_ran(result: OrchestrationResult, signal_number: int | None) -> None:
    """Raise what kept all controls from running, which is the same for all of them."""
    if any(request.metrics is not None for request in result.requests):
        return
    for request in result.requests:
        if request.error is not None:
            raise request.error
    if signal_number is None or signal_number == signal.SIGINT:
        raise KeyboardInterrupt
    signal.raise_signal(signal_number)


def _write(path: Path, data: bytes) -> None:
    write_whole(SYSTEM_FILES, str(path), data, partial=f"{path}.partial.{os.getpid()}", durable=True)


# --- what the runs tell -----------------------------------------------------------------------------


def _record(audit_dir: Path, wanted: Sequence[Control], result: OrchestrationResult) -> AuditRecord:
    runs = {it.name: _Run.read(audit_dir, it, result.request(it.name)) for it in wanted}
    plan = next((run.plan for run in runs.values() if run.plan), PlanRecord(task_ids=[], categories=[]))
    tasks = [_task(task_id, runs) for task_id in plan.task_ids]
    facts = next(run.record for run in runs.values() if run.record)
    return AuditRecord(
        audit_id=audit_dir.name,
        benchmark=facts.benchmark,
        environment=facts.environment,
        dataset_hash=facts.dataset_hash,
        started_at=facts.started_at,
        seconds=round(result.seconds, 3),
        versions=facts.versions,
        counts=_counts(tasks),
        controls=[run.summary() for run in runs.values()],
        tasks=tasks,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The run of a control: what it did at each task, by attempt."""

    control: Control
    result: RunResult
    run_dir: str
    record: RunRecord | None
    plan: PlanRecord | None
    observed: Mapping[str, Mapping[int, Observed]]

    @classmethod
    def read(cls, audit_dir: Path, control: Control, result: RunResult) -> _Run:
        """Read its journal; blocks."""
        if result.paths is None or result.metrics is None:
            return cls(control=control, result=result, run_dir="", record=None, plan=None, observed={})
        run = load_run(Path(result.paths.run_dir))
        run_dir = f"{run.run_dir.parent.name}/{run.run_dir.name}"
        plan = None
        observed: dict[str, dict[int, Observed]] = {}
        for record in run.journal():
            match record:
                case PlanRecord():
                    plan = record
                case TrialRecord(discarded=False):
                    attempts = observed.setdefault(record.task_id, {})
                    attempts[record.attempt] = _observed(run, run_dir, record)
        return cls(
            control=control, result=result, run_dir=run_dir, record=run.record, plan=plan, observed=observed
        )

    def summary(self) -> ControlRun:
        """Return its line of the report."""
        telling = [it for attempts in self.observed.values() for it in attempts.values() if it.tells]
        return ControlRun(
            name=self.control.name,
            harness=self.control.harness,
            params=dict(self.control.params),
            k=self.control.k,
            status=self.result.status,
            run_dir=self.run_dir,
            evaluated=len(telling),
            passed=sum(it.passed for it in telling),
            seconds=round(self.result.execution.seconds, 3),
            error="" if self.result.error is None else str(self.result.error),
        )


def _observed(run: LoadedRun, run_dir: str, record: TrialRecord) -> Observed:
    def verdict() -> str:
        match read_detail(run.run_dir, record):
            case Detail() as detail:
                return detail.verdict
            case reason:
                return reason

    evidence = f"{run_dir}/{record.details}" if record.details else ""
    return Observed(record=record, evidence=evidence, verdict=verdict)


def _task(task_id: str, runs: Mapping[str, _Run]) -> TaskAudit:
    by_run = [(run.control, run.observed.get(task_id, {})) for run in runs.values()]
    hashes = (it.record.task_hash for _, observed in by_run for it in observed.values())
    return TaskAudit(
        task_id=task_id,
        task_hash=next(hashes, ""),
        findings=[finding for control, observed in by_run for finding in control.findings(observed)],
        missing=[gap for control, observed in by_run for gap in control.missing(observed)],
    )


def _counts(tasks: Sequence[TaskAudit]) -> dict[str, int]:
    failed = [task for task in tasks if task.findings]
    incomplete = [task for task in tasks if task.missing and not task.findings]
    kinds = sorted(kind for task in failed for kind in {finding.kind for finding in task.findings})
    return {
        "tasks": len(tasks),
        "sound": len(tasks) - len(failed) - len(incomplete),
        "findings": len(failed),
        "incomplete": len(incomplete),
        **{kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
    }
