"""Look into a running orchestration and steer it: who waits for what, pause, limits, cancel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import anyio

from ..errors import ConfigError, nearest
from ..records import RunStatus
from .live import LiveAttempt, LiveAttempts
from .outage import OutageBreaker
from .schedule import Place
from .shared import Shared
from .stop import RequestStop


@dataclass(slots=True, kw_only=True, eq=False)
class RunningRequest:
    """
    A request of a running orchestration.

    Args:
        breaker: None before it has begun.
        status: None while it runs.
    """

    name: str
    controls: Controls
    provider: str
    place: Place
    stop: RequestStop
    live: LiveAttempts
    run_dir: str = ""
    breaker: OutageBreaker | None = None
    status: RunStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStatus:
    """
    One attempt in flight.

    Args:
        doing: What it does, or what it waits for.
        seconds: For how long.
    """

    task_id: str
    attempt: int
    trial: int
    doing: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStatus:
    """
    Where a request stands.

    Args:
        state: ``declared``, ``loading``, ``feeding`` (has attempts to start), ``fed`` (has started all), or
            how it ended.
        waits_for: Why it starts no further attempt right now; empty if nothing holds it up.
        attempts: How many there are, 0 while they are not loaded.
        done: How many of them are settled.
        live: Its attempts in flight, the longest in their present state first.
    """

    name: str
    state: str
    waits_for: str = ""
    run_dir: str = ""
    attempts: int = 0
    done: int = 0
    live: list[AttemptStatus] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderStatus:
    """
    The sessions of a provider, over all orchestrations of this process.

    Args:
        limit: None for none.
        waiting: How many attempts wait for a session.
    """

    limit: int | None
    open: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchStatus:
    """
    Where an orchestration stands.

    Args:
        working: Task slots that are taken.
        seconds: Since it began.
    """

    paused: bool
    stopping: bool
    task_concurrency: int
    working: int
    seconds: float
    providers: dict[str, ProviderStatus]
    requests: list[RequestStatus]


class Controls:
    """
    The controls of an orchestration; call them on its event loop.

    Before it is up and after it has ended, every method raises ``ConfigError``.
    """

    def __init__(self) -> None:
        self._shared: Shared | None = None
        self._requests: dict[str, RunningRequest] = {}
        self._started = 0.0
        self._attached = anyio.Event()

    async def wait_attached(self) -> None:
        """Wait until there is something to control."""
        await self._attached.wait()

    def attach(self, shared: Shared, requests: dict[str, RunningRequest]) -> None:
        """Begin to control an orchestration."""
        self._shared, self._requests = shared, requests
        self._started = shared.clock.now()
        self._attached.set()

    def detach(self) -> None:
        """Stop controlling it: it has ended."""
        self._shared = None

    def status(self) -> LaunchStatus:
        """Say what every request and every attempt does or waits for, and since when."""
        shared = self._running()
        slots = shared.schedule.statistics()
        return LaunchStatus(
            paused=slots.paused,
            stopping=shared.stop.requested,
            task_concurrency=slots.task_concurrency,
            working=slots.working,
            seconds=shared.clock.now() - self._started,
            providers=_providers(shared),
            requests=[_request_status(shared, request) for request in self._requests.values()],
        )

    def pause(self) -> None:
        """Start no further attempts; those in flight go on."""
        self._running().schedule.pause()

    def resume(self) -> None:
        """Start attempts again."""
        self._running().schedule.resume()

    def set_task_concurrency(self, total: int) -> None:
        """
        Change how many attempts may be in flight; those that are go on.

        Raises:
            ConfigError: It is not positive.
        """
        self._running().schedule.set_total(_positive("task_concurrency", total))

    def set_provider_limit(self, provider: str, total: int) -> None:
        """
        Change how many sessions of a provider may be open; those that are stay open.

        Raises:
            ConfigError: It is not positive, or no request uses the provider.
        """
        shared = self._running()
        used = {request.provider for request in self._requests.values()}
        if provider not in used:
            raise ConfigError(
                f"provider_limits.{provider}: no request uses it{nearest(provider, used)} "
                f"(in use: {', '.join(sorted(used))})"
            )
        shared.providers.set_limit(provider, _positive(f"provider_limits.{provider}", total))

    def cancel_task(self, request: str, task_id: str) -> int:
        """
        Cancel a task: its live attempts are recorded as cancelled, and no further ones start.

        Returns:
            How many attempts were live.
        """
        return self._request(request).live.cancel(task_id)

    def cancel_request(self, name: str) -> None:
        """Stop one request in order; the others go on."""
        self._request(name).stop.request()

    def stop(self) -> None:
        """Stop the orchestration in order; a second call hurries."""
        self._running().stop.request()

    def _running(self) -> Shared:
        if self._shared is None:
            raise ConfigError("the launch is not running")
        return self._shared

    def _request(self, name: str) -> RunningRequest:
        self._running()
        if name not in self._requests:
            known = ", ".join(self._requests)
            raise ConfigError(f"no request {name!r}{nearest(name, self._requests)} (there are: {known})")
        return self._requests[name]


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise ConfigError(f"{name}: must be at least 1, got {value}")
    return value


def _providers(shared: Shared) -> dict[str, ProviderStatus]:
    return {
        provider: ProviderStatus(
            limit=None if sessions.total == float("inf") else int(sessions.total),
            open=sessions.borrowed,
            waiting=sessions.waiting,
        )
        for provider, sessions in shared.providers.statistics().items()
    }


def _request_status(shared: Shared, request: RunningRequest) -> RequestStatus:
    snapshot = shared.hub.snapshot(request.name)
    return RequestStatus(
        name=request.name,
        state=request.status or request.place.state,
        waits_for="" if request.status else "; ".join(_obstacles(shared, request)),
        run_dir=request.run_dir,
        attempts=snapshot.attempts if snapshot else 0,
        done=snapshot.done if snapshot else 0,
        live=sorted(
            (_attempt_status(attempt, shared.clock.now()) for attempt in request.live),
            key=lambda status: -status.seconds,
        ),
    )


def _attempt_status(attempt: LiveAttempt, now: float) -> AttemptStatus:
    return AttemptStatus(
        task_id=attempt.task_id,
        attempt=attempt.attempt,
        trial=attempt.trial,
        doing=attempt.doing,
        seconds=now - attempt.since,
    )


def _obstacles(shared: Shared, request: RunningRequest) -> Iterator[str]:
    """Yield what keeps a request from starting a further attempt right now."""
    place, slots = request.place, shared.schedule.statistics()
    if request.breaker is not None and request.breaker.statistics().down:
        yield "the end of an outage"
    match place.state:
        case "declared":
            yield "its turn to load its tasks"
        case "feeding":
            if slots.paused:
                yield "resume (paused)"
            if place.is_capped:
                yield f"its own task_concurrency ({place.live} live)"
            if place.lane is not None and not place.lane.is_clear:
                yield f"sessions of {request.provider}"
            if slots.working >= slots.task_concurrency:
                yield f"a task slot ({slots.working} of {slots.task_concurrency} taken)"
