"""What lies on disk: one frozen struct per kind of record. Readers tolerate unknown fields."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec

SCHEMA_VERSION = 1


class OutcomeClass(StrEnum):
    """How a trial ended."""

    COMPLETED = "completed"
    """A verdict exists."""
    AGENT_ERROR = "agent_error"
    """The agent's side broke; counts as failed unless something could be verified."""
    TIMED_OUT = "timed_out"
    """The agent's deadline hit; verified if anything can be, else counts as failed."""
    INFRA_ERROR = "infra_error"
    """Environment, endpoint or verifier machinery failed: missing data."""
    INTERNAL_ERROR = "internal_error"
    """A bug in the engine or a component: missing data."""
    CANCELLED = "cancelled"
    """Stopped from outside: missing data."""

    @property
    def counts(self) -> bool:
        """Whether an attempt that ended so is evaluated (as opposed to missing data)."""
        return self in _COUNTING


_COUNTING = frozenset({OutcomeClass.COMPLETED, OutcomeClass.AGENT_ERROR, OutcomeClass.TIMED_OUT})


class RunStatus(StrEnum):
    """How a request (or an orchestration) ended."""

    COMPLETED = "completed"
    """Every planned attempt was evaluated."""
    PARTIAL = "partial"
    """It ran to its end, but some attempts are missing data."""
    FAILED = "failed"
    """It could not run, or gave up."""
    TIMED_OUT = "timed_out"
    """The deadline of the orchestration hit."""
    CANCELLED = "cancelled"
    """Stopped from outside."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Model usage of one call or the sum over many, discarded calls included."""

    calls: int = 0
    failed_calls: int = 0
    input_tokens: int = 0
    """All prompt tokens, those read from and written to a cache included."""
    cached_tokens: int = 0
    """Read from a cache."""
    cache_write_tokens: int = 0
    """Written to a cache, where the endpoint tells."""
    output_tokens: int = 0
    """All generated tokens, reasoning included."""
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    """None while no price is known."""

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Usage(
            calls=self.calls + other.calls,
            failed_calls=self.failed_calls + other.failed_calls,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost_usd=sum(costs) if costs else None,
        )


NO_USAGE = Usage()


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that the model asked for; ``arguments`` is its JSON text as received."""

    id: str
    name: str
    arguments: str


class ModelStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="model"):
    """One model call: what it answered, or why it failed."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: str = ""
    error: str = ""
    usage: Usage = NO_USAGE
    started_seconds: float = 0.0
    """Seconds since the agent phase began."""
    duration_seconds: float = 0.0


class CommandStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="command"):
    """One command in the session and what came back."""

    command: str
    exit_code: int
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    truncated: bool = False
    started_seconds: float = 0.0
    duration_seconds: float = 0.0


class NoteStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="note"):
    """Anything else worth keeping in the order of events."""

    text: str
    started_seconds: float = 0.0


Step = ModelStep | CommandStep | NoteStep


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a trial has no verdict, or why its agent broke."""

    error: str
    """Class name of the error."""
    phase: str
    message: str
    retryable: bool = False
    traceback: str = ""
    """Only for ``internal_error``."""


class Timings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Seconds on the monotonic clock. Waiting for limits is kept apart from work."""

    queued: float = 0.0
    open: float = 0.0
    agent: float = 0.0
    verify: float = 0.0
    total: float = 0.0


class TrialRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="trial"):
    """One line of the journal: the whole verdict of one trial."""

    task_id: str
    task_hash: str
    attempt: int
    trial: int
    outcome: OutcomeClass
    category: str = ""
    score: float | None = None
    """Primary metric in [0, 1]; None when the trial is missing data."""
    success: bool | None = None
    """For benchmarks whose verdict is pass or fail; None for scalar ones."""
    metrics: dict[str, float] = {}
    discarded: bool = False
    """Another trial of the same attempt follows; counts for usage only."""
    failure: Failure | None = None
    stop_reason: str = ""
    usage: Usage = NO_USAGE
    timings: Timings = Timings()
    started_at: str = ""
    """Wall clock, ISO 8601 UTC."""
    details: str = ""
    """Path of the detail file, relative to the run directory; empty if none was kept."""
    reused_from: str = ""
    """Run id that the trial was copied from."""


class PlanRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="plan"):
    """
    A line of the journal that says what a run is meant to cover from here on.

    Written when a run starts and again when it resumes with another plan; the last one holds.
    """

    task_ids: list[str]
    categories: list[str]
    """Parallel to ``task_ids``; empty when no task has a category."""
    k: int = 1
    strategy: Literal["avg", "pass"] = "avg"
    started_at: str = ""


JournalRecord = TrialRecord | PlanRecord


class Detail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The evidence of one trial; losing it loses no score."""

    task_id: str
    attempt: int
    trial: int
    prompt: str = ""
    answer: str | None = None
    steps: list[Step] = []
    verdict: str = ""
    """The verifier's explanation."""
    verifier_output: dict[str, Any] = {}
    artifacts: dict[str, str] = {}
    """Name to path relative to the run directory."""


class ComponentRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A component as resolved for a run."""

    id: str
    source: str = ""
    version: str = ""
    params: dict[str, Any] = {}


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The model as resolved for a run; never its key."""

    id: str
    protocol: str = ""
    base_url: str = ""
    params: dict[str, Any] = {}


class RecipeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recipe that applied."""

    id: str
    source: str
    """Not compared: where a recipe lies changes nothing."""
    priority: int = 0
    hash: str = ""
    """Of the source of its package."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``run.json``: written once when a run starts."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    name: str
    benchmark: ComponentRecord
    harness: ComponentRecord
    environment: ComponentRecord
    model: ModelRecord
    recipes: list[RecipeRecord] = []
    """Those that apply to any task of the benchmark, in their order."""
    dataset_hash: str = ""
    excluded_tasks: list[str] = []
    """Left out because of an audit's findings."""
    k: int = 1
    strategy: Literal["avg", "pass"] = "avg"
    seed: int = 0
    execution: dict[str, Any] = {}
    started_at: str = ""
    environment_facts: dict[str, str] = {}
    """What the environment found out, e.g. the version of its engine; never compared."""
    host: dict[str, str] = {}
    versions: dict[str, str] = {}


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A mean with its uncertainty; ``value`` is None when nothing was evaluated."""

    value: float | None
    low: float | None
    """Lower end of the 95% interval."""
    high: float | None
    method: Literal["wilson", "cluster", "none"]
    evaluated: int
    """Attempts (tasks, under strategy ``pass``) that the mean covers."""
    planned: int
    coverage: float
    """evaluated / planned, 0 when nothing was planned."""
    bound_low: float | None
    """The value if every missing attempt scored 0."""
    bound_high: float | None
    """The value if every missing attempt scored 1."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts by what became of them; planned = finished + failed + cancelled + missing."""

    planned: int
    finished: int
    """With a verdict."""
    failed: int
    """Agent error, time-out, infrastructure or internal error."""
    cancelled: int
    missing: int
    """Never ran to a record."""
    by_outcome: dict[str, int] = {}


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """``metrics.json``: a pure fold over the journal."""

    schema_version: int = SCHEMA_VERSION
    score: Estimate
    counts: Counts
    tasks: int
    k: int
    strategy: Literal["avg", "pass"]
    pass_at: dict[str, float] = {}
    """Unbiased pass@j by j."""
    pass_hat: dict[str, float] = {}
    """Unbiased pass^j by j."""
    any_of_k: float | None = None
    """Share of tasks with a success, for strategy ``pass``."""
    categories: dict[str, Estimate] = {}
    macro: float | None = None
    """Unweighted mean of the categories' values."""
    metrics: dict[str, Estimate] = {}
    """Further metrics that the verifier reported."""
    usage: Usage = NO_USAGE
    """Over all trials, discarded ones included."""
    trials: int = 0
    discarded_trials: int = 0
    duplicate_lines: int = 0
    damaged_lines: int = 0
    agent_seconds: float = 0.0


class RunPaths(msgspec.Struct, frozen=True, kw_only=True):
    """Where the files of a run lie (absolute)."""

    run_dir: str
    run_json: str
    journal: str
    details: str
    artifacts: str
    metrics: str
    summary: str
    progress: str
    log: str


# Audits: what controls tell about a benchmark.


FindingKind = Literal["reference_fails", "flaky", "null_passes", "empty_passes", "forgery_passes", "leak"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong with a task."""

    kind: FindingKind
    control: str
    """Name of the control that found it."""
    explanation: str
    evidence: list[str]
    """Detail files of the trials that show it, relative to the folder of the audit."""


class MissingTrial(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt of a control that tells nothing about the task."""

    control: str
    attempt: int
    outcome: str
    """Its ``OutcomeClass``, or ``missing`` if it never ran to a record."""
    error: str = ""
    evidence: str = ""


class TaskAudit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the controls found out about one task; sound if there are neither findings nor gaps."""

    task_id: str
    task_hash: str = ""
    """As in its trials; empty if there is none."""
    findings: list[Finding] = []
    missing: list[MissingTrial] = []


class ControlRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One control over all tasks."""

    name: str
    harness: str
    params: dict[str, Any] = {}
    k: int
    status: RunStatus
    run_dir: str = ""
    """Relative to the folder of the audit; empty if it failed before it had one."""
    evaluated: int = 0
    """Attempts with a verdict."""
    passed: int = 0
    seconds: float = 0.0
    error: str = ""


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``audit.json``: the report card of a benchmark."""

    schema_version: int = SCHEMA_VERSION
    audit_id: str
    benchmark: ComponentRecord
    environment: ComponentRecord
    dataset_hash: str
    started_at: str
    seconds: float
    versions: dict[str, str]
    counts: dict[str, int]
    """Tasks: all, ``sound``, with ``findings``, ``incomplete`` (gaps, but no finding), and by kind."""
    controls: list[ControlRun]
    tasks: list[TaskAudit]


# Progress events: what `on_progress` receives and `progress.jsonl` holds.


class RunStarted(msgspec.Struct, frozen=True, kw_only=True, tag="run_started"):
    request: str
    run_id: str
    run_dir: str
    tasks: int
    attempts: int
    already_finished: int
    """Attempts kept from an earlier session or a reused run, and those that their success made needless."""
    kept_evaluated: int = 0
    """How many of the kept attempts have a score."""
    kept_score_sum: float = 0.0
    strategy: Literal["avg", "pass"] = "avg"
    at: str = ""


class TrialStarted(msgspec.Struct, frozen=True, kw_only=True, tag="trial_started"):
    request: str
    task_id: str
    attempt: int
    trial: int
    at: str = ""


class PhaseChanged(msgspec.Struct, frozen=True, kw_only=True, tag="phase_changed"):
    request: str
    task_id: str
    attempt: int
    phase: str
    at: str = ""


class TrialProgressed(msgspec.Struct, frozen=True, kw_only=True, tag="trial_progressed"):
    """A live trial has one more step: where it is by now."""

    request: str
    task_id: str
    attempt: int
    steps: int
    usage: Usage
    at: str = ""


class TrialFinished(msgspec.Struct, frozen=True, kw_only=True, tag="trial_finished"):
    request: str
    task_id: str
    attempt: int
    trial: int
    outcome: OutcomeClass
    discarded: bool
    """A retry follows."""
    score: float | None
    success: bool | None
    usage: Usage
    seconds: float
    error: str = ""
    """``Class: message`` of the failure, if any."""
    at: str = ""


class AttemptsSkipped(msgspec.Struct, frozen=True, kw_only=True, tag="attempts_skipped"):
    """A task succeeded early: its further attempts are not needed (strategy ``pass``)."""

    request: str
    task_id: str
    attempts: int
    at: str = ""


class OutageChanged(msgspec.Struct, frozen=True, kw_only=True, tag="outage_changed"):
    """The outage breaker opened (``down``) or closed again."""

    request: str
    down: bool
    error: str
    at: str = ""


class Notice(msgspec.Struct, frozen=True, kw_only=True, tag="notice"):
    """Something a person should know, e.g. that the run is stopping."""

    request: str
    text: str
    at: str = ""


class RunFinished(msgspec.Struct, frozen=True, kw_only=True, tag="run_finished"):
    request: str
    run_id: str
    status: RunStatus
    value: float | None
    seconds: float
    at: str = ""


ProgressEvent = (
    RunStarted
    | TrialStarted
    | PhaseChanged
    | TrialProgressed
    | TrialFinished
    | AttemptsSkipped
    | OutageChanged
    | Notice
    | RunFinished
)


class ProgressSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """``progress.json``: where a run stands, rewritten at most once a second."""

    request: str
    run_id: str
    status: Annotated[str, "running, or a RunStatus"]
    attempts: int
    done: int
    running: dict[str, int]
    """Live trials by phase."""
    evaluated: int
    score_sum: float
    usage: Usage
    at: str
