"""The running account of one request, folded from its events; what displays and snapshots are made of."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..records import (
    NO_USAGE,
    AttemptsSkipped,
    Notice,
    OutageChanged,
    OutcomeClass,
    PhaseChanged,
    ProgressEvent,
    ProgressSnapshot,
    RunFinished,
    RunStarted,
    TrialFinished,
    TrialProgressed,
    TrialStarted,
    Usage,
)
from .pace import Pace

Interval = Callable[[float, int], tuple[float, float]]
"""Takes the sum of scores and how many there are; returns the ends of the mean's interval."""

_FAILURE_KINDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTrial:
    """A live trial: where it is and for how long."""

    task_id: str
    attempt: int
    steps: int
    phase: str
    phase_seconds: float
    total_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """
    A request at one moment.

    Args:
        done: Attempts that need no further work, those kept from earlier sessions included.
        score: Mean over the attempts evaluated in this session; the final value once it has ended.
        interval: Ends of the mean's interval, where one is known.
        usage: Of all trials, the live ones included.
        failures: Attempts without a completed outcome, by error class.
        outage: The error that keeps the request down; empty while it is up.
    """

    request: str
    status: str
    attempts: int
    done: int
    kept: int
    elapsed_seconds: float
    running: Mapping[str, int]
    oldest: RunningTrial | None
    evaluated: int
    score: float | None
    interval: tuple[float, float] | None
    failures: Mapping[str, int]
    retries: int
    usage: Usage
    rate: float | None
    """Attempts per second."""
    eta_seconds: float | None
    outage: str
    outage_seconds: float


@dataclass(slots=True)
class _Live:
    phase: str
    since: float
    started: float
    steps: int = 0
    usage: Usage = NO_USAGE


class Tally:
    """
    Fold the events of one request; memory grows with the live trials only.

    Args:
        interval: How uncertain a mean is; None leaves intervals out.
        clock: Monotonic seconds.
    """

    def __init__(
        self, request: str, *, interval: Interval | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.request = request
        self.attempts = 0
        self.done = 0
        self._interval = interval
        self._clock = clock
        self._run_id = ""
        self._status = "running"
        self._at = ""
        self._kept = 0
        self._final_score: float | None = None
        self._live: dict[tuple[str, int], _Live] = {}  # in order of starting: the first is the oldest
        self._phases: Counter[str] = Counter()
        self._scores_attempts = True
        """Whether the running score is a mean over attempts; under strategy ``pass`` there is none."""
        self._evaluated = 0
        self._score_sum = 0.0
        self._usage = NO_USAGE
        self._failures: Counter[str] = Counter()
        self._retries = 0
        self._outage = ""
        self._outage_since = 0.0
        self._started = self._ended = clock()
        self._pace = Pace(self._started)

    def apply(self, event: ProgressEvent) -> None:
        """Take in the next event."""
        self._at = event.at or self._at
        match event:
            case TrialStarted():
                self._start_trial(event)
            case PhaseChanged():
                self._change_phase(event)
            case TrialProgressed():
                self._progress_trial(event)
            case TrialFinished():
                self._finish_trial(event)
            case OutageChanged():
                self._outage = (event.error or "unknown error") if event.down else ""
                self._outage_since = self._clock()
            case RunStarted():
                self._start(event)
            case RunFinished():
                self._status, self._final_score = str(event.status), event.value
                self._ended = self._clock()
            case AttemptsSkipped():
                self.done += event.attempts
            case Notice():
                pass

    @property
    def is_over(self) -> bool:
        """Whether the request has ended."""
        return self._status != "running"

    def snapshot(self, *, at: str = "") -> ProgressSnapshot:
        """
        Return where the request stands, in the form that is stored.

        Args:
            at: The time to put on it; by default that of the last event.
        """
        return ProgressSnapshot(
            request=self.request,
            run_id=self._run_id,
            status=self._status,
            attempts=self.attempts,
            done=self.done,
            running=dict(self._phases),
            evaluated=self._evaluated,
            score_sum=self._score_sum,
            usage=self._usage,
            at=at or self._at,
        )

    def standing(self) -> Standing:
        """Return where the request stands, in the form that displays show."""
        now = self._ended if self.is_over else self._clock()
        rate = self._pace.per_second(now)
        left = max(0, self.attempts - self.done)
        return Standing(
            request=self.request,
            status=self._status,
            attempts=self.attempts,
            done=self.done,
            kept=self._kept,
            elapsed_seconds=now - self._started,
            running=dict(self._phases),
            oldest=self._oldest(now),
            evaluated=self._evaluated,
            score=self._score(),
            interval=self._score_interval(),
            failures=dict(self._failures.most_common()),
            retries=self._retries,
            usage=sum((live.usage for live in self._live.values()), start=self._usage),
            rate=rate,
            eta_seconds=left / rate if rate else None,
            outage=self._outage,
            outage_seconds=now - self._outage_since,
        )

    def _start(self, event: RunStarted) -> None:
        self._run_id = event.run_id
        self.attempts = event.attempts
        self.done = self._kept = event.already_finished
        self._scores_attempts = event.strategy == "avg"
        if event.attempts > event.tasks:
            self._interval = None  # attempts of one task are not independent; the summary has the interval
        if self._scores_attempts:
            self._evaluated, self._score_sum = event.kept_evaluated, event.kept_score_sum
        self._started = self._clock()
        self._pace = Pace(self._started)

    def _start_trial(self, event: TrialStarted) -> None:
        self._end_trial(event.task_id, event.attempt)
        now = self._clock()
        self._live[event.task_id, event.attempt] = _Live("plan", now, now)
        self._phases["plan"] += 1

    def _change_phase(self, event: PhaseChanged) -> None:
        live = self._live.get((event.task_id, event.attempt))
        if live is None:  # it has finished: a late event must not bring it back
            return
        self._leave_phase(live.phase)
        self._phases[event.phase] += 1
        live.phase, live.since = event.phase, self._clock()

    def _progress_trial(self, event: TrialProgressed) -> None:
        live = self._live.get((event.task_id, event.attempt))
        if live is not None:
            live.steps, live.usage = event.steps, event.usage

    def _finish_trial(self, event: TrialFinished) -> None:
        self._end_trial(event.task_id, event.attempt)
        self._usage += event.usage
        if event.discarded:
            self._retries += 1
        elif event.outcome is not OutcomeClass.CANCELLED:  # a cancelled attempt is still to be done
            self._finish_attempt(event)

    def _finish_attempt(self, event: TrialFinished) -> None:
        self.done += 1
        self._pace.add(self._clock())
        if event.score is not None and self._scores_attempts:
            self._evaluated += 1
            self._score_sum += event.score
        if event.outcome is not OutcomeClass.COMPLETED:
            kind = event.error.partition(":")[0].strip() or str(event.outcome)
            known = kind in self._failures or len(self._failures) < _FAILURE_KINDS
            self._failures[kind if known else "other"] += 1

    def _end_trial(self, task_id: str, attempt: int) -> None:
        live = self._live.pop((task_id, attempt), None)
        if live is not None:
            self._leave_phase(live.phase)

    def _leave_phase(self, phase: str) -> None:
        self._phases[phase] -= 1
        if not self._phases[phase]:
            del self._phases[phase]

    def _oldest(self, now: float) -> RunningTrial | None:
        if not self._live:
            return None
        (task_id, attempt), live = next(iter(self._live.items()))
        return RunningTrial(
            task_id=task_id,
            attempt=attempt,
            steps=live.steps,
            phase=live.phase,
            phase_seconds=now - live.since,
            total_seconds=now - live.started,
        )

    def _mean(self) -> float | None:
        return self._score_sum / self._evaluated if self._evaluated else None

    def _score(self) -> float | None:
        return self._final_score if self.is_over else self._mean()

    def _score_interval(self) -> tuple[float, float] | None:
        mean, score = self._mean(), self._score()
        if self._interval is None or mean is None or score is None:
            return None
        # The final value may cover attempts of earlier sessions, which the interval would not.
        return self._interval(self._score_sum, self._evaluated) if abs(mean - score) < 1e-9 else None
