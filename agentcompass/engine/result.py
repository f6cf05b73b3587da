"""What a run gives back: numbers, paths and how it went; never the trajectories."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import msgspec

from ..errors import CompassError
from ..records import Metrics, RunPaths, RunStatus


class Items:
    """Lets ``result["metrics"]`` give an attribute as plain JSON-like data."""

    __slots__ = ()

    def __getitem__(self, name: str) -> Any:
        known = [field.name for field in fields(self)]  # type: ignore[arg-type]
        if name not in known:
            raise KeyError(f"{name!r}; there are: {', '.join(known)}")
        return plain(getattr(self, name))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON-like data."""
        return {field.name: self[field.name] for field in fields(self)}  # type: ignore[arg-type]


def plain(value: object) -> Any:
    """Turn a value of a result into JSON-like data."""
    match value:
        case Items():
            return value.to_dict()
        case CompassError():
            return {"error": type(value).__name__, "message": str(value)}
        case tuple():
            return [plain(item) for item in value]
    return msgspec.to_builtins(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution(Items):
    """
    How a request ran.

    Args:
        started_at: Wall clock, ISO 8601 UTC.
        seconds: Wall time on the monotonic clock.
        executed_trials: Trials that this call carried out, retries included.
        kept_attempts: Attempts taken over from an earlier session or run.
    """

    started_at: str
    seconds: float
    executed_trials: int = 0
    kept_attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(Items):
    """
    What became of one request.

    Args:
        status: ``completed`` means that every planned attempt was evaluated.
        run_id: Empty when the request failed before it had a run directory.
        metrics: None when no attempt was ever planned.
        paths: Where everything lies.
        error: Why the request failed, if it did.
    """

    name: str
    status: RunStatus
    run_id: str = ""
    metrics: Metrics | None = None
    paths: RunPaths | None = None
    error: CompassError | None = None
    execution: Execution


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestrationResult(Items):
    """What became of an orchestration: the worst status of its requests, and each one's result in order."""

    status: RunStatus
    requests: tuple[RunResult, ...]
    seconds: float

    def request(self, name: str) -> RunResult:
        """Return the result of the request of that name."""
        for result in self.requests:
            if result.name == name:
                return result
        raise KeyError(name)


_SEVERITY = (
    RunStatus.COMPLETED,
    RunStatus.PARTIAL,
    RunStatus.FAILED,
    RunStatus.TIMED_OUT,
    RunStatus.CANCELLED,
)


def worst(statuses: list[RunStatus]) -> RunStatus:
    """Return the status that a whole of these parts has."""
    return max(statuses, key=_SEVERITY.index, default=RunStatus.COMPLETED)
