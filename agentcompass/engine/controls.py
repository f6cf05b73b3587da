"""The controls of an audit: agents whose right score is known, and what it means if they get another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..harnesses.forgeries import FORGERIES
from ..harnesses.snoop import NOTHING_FOUND
from ..records import Finding, FindingKind, MissingTrial, OutcomeClass, TrialRecord
from .registry import find_component

AnswerForm = Literal["auto", "text", "code", "patch"]
_LOCAL = frozenset({"local", "host_process"})
_REPETITIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """
    The trial that stands for an attempt of a control.

    Args:
        evidence: Its detail file, relative to the folder of the audit.
        verdict: Reads what the verifier said about it.
    """

    record: TrialRecord
    evidence: str
    verdict: Callable[[], str]

    @property
    def tells(self) -> bool:
        """Whether it says anything about the task: a control that broke says nothing."""
        return self.record.outcome is OutcomeClass.COMPLETED and self.record.score is not None

    @property
    def passed(self) -> bool:
        """Whether its answer was taken for right, which for scalar scores means 1."""
        record = self.record
        return record.score == 1.0 if record.success is None else record.success


Judge = Callable[["Control", Sequence[Observed]], Iterator[Finding]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """
    One control.

    Args:
        name: Of its request.
        harness: Id of the harness.
        k: How often each task is attempted.
        judge: Turns the attempts at one task that tell something into findings.
    """

    name: str
    harness: str
    params: Mapping[str, Any] = field(default_factory=dict)
    k: int = 1
    judge: Judge

    def findings(self, observed: Mapping[int, Observed]) -> list[Finding]:
        """Return what the attempts at one task show, given by number."""
        telling = [observed[attempt] for attempt in sorted(observed) if observed[attempt].tells]
        return list(self.judge(self, telling))

    def missing(self, observed: Mapping[int, Observed]) -> Iterator[MissingTrial]:
        """Yield the attempts at one task that tell nothing."""
        for attempt in range(1, self.k + 1):
            it = observed.get(attempt)
            if it is None:
                yield MissingTrial(control=self.name, attempt=attempt, outcome="missing")
            elif not it.tells:
                failure = it.record.failure
                yield MissingTrial(
                    control=self.name,
                    attempt=attempt,
                    outcome=str(it.record.outcome),
                    error=f"{failure.error}: {failure.message}" if failure else "",
                    evidence=it.evidence,
                )


def controls(form: AnswerForm, environment: str) -> list[Control]:
    """Return the controls for a benchmark whose agents hand in that, in that environment."""
    idle_patch = Control(
        name="idle_patch",
        harness="null",
        params={"hands_in": "idle_patch"},
        judge=_must_fail("null_passes", "a patch that does nothing passes"),
    )
    return [
        Control(name="oracle", harness="oracle", k=_REPETITIONS, judge=_must_pass_each_time),
        Control(name="null", harness="null", judge=_must_fail("null_passes", "doing nothing passes")),
        *([idle_patch] if form in {"auto", "patch"} else []),
        Control(
            name="empty",
            harness="null",
            params={"hands_in": "empty"},
            judge=_must_fail("empty_passes", "an empty answer passes"),
        ),
        Control(
            name="forger",
            harness="forger",
            params={"answer_form": form},
            k=len(FORGERIES),
            judge=_must_fail("forgery_passes", "a forged success passes"),
        ),
        Control(
            name="snoop",
            harness="snoop",
            params={"everywhere": environment not in _LOCAL},
            judge=_must_find_nothing,
        ),
    ]


def answer_form(benchmark_id: str) -> AnswerForm:
    """
    Return what a benchmark says about the answers it takes; ``auto`` if it says nothing we know.

    Raises:
        ConfigError: There is no such benchmark.
    """
    declared: AnswerForm = getattr(find_component("benchmark", benchmark_id).cls, "answer_form", "auto")
    return declared if declared in {"text", "code", "patch"} else "auto"


def _must_pass_each_time(control: Control, observed: Sequence[Observed]) -> Iterator[Finding]:
    failing = [it for it in observed if not it.passed]
    if not failing:
        return
    passes = f"passes {len(observed) - len(failing)} of {len(observed)} times"
    said = failing[0].verdict()
    if len(failing) == len(observed):
        shown = failing[:1]
        yield _finding("reference_fails", control, "the reference solution fails", said, shown)
    else:
        shown = [failing[0], next(it for it in observed if it.passed)]
        yield _finding("flaky", control, f"the reference solution {passes}", said, shown)


def _must_fail(kind: FindingKind, what: str) -> Judge:
    def judge(control: Control, observed: Sequence[Observed]) -> Iterator[Finding]:
        passing = [it for it in observed if it.passed]
        if passing:
            reasons = [it.record.stop_reason.partition("forged: ")[2] for it in passing]
            yield _finding(kind, control, what, ", ".join(filter(None, reasons)), passing)

    return judge


def _must_find_nothing(control: Control, observed: Sequence[Observed]) -> Iterator[Finding]:
    finding = [it for it in observed if it.record.stop_reason != NOTHING_FOUND]
    for it in finding:
        grade = "handing it in passes" if it.passed else "handing it in does not pass"
        yield _finding("leak", control, it.record.stop_reason, grade, [it])


def _finding(kind: FindingKind, control: Control, what: str, more: str, shown: Sequence[Observed]) -> Finding:
    return Finding(
        kind=kind,
        control=control.name,
        explanation=f"{what}: {more}" if more else what,
        evidence=[it.evidence for it in shown],
    )
