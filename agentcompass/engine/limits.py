"""
The limits that gate attempts, taken in this order and released in reverse.

1. ``task_concurrency``: the slots of the orchestration's ``Schedule``, taken by the feeders.
2. ``provider_limits``: a ``SharedLimiter`` per provider, while a session is open.
3. ``env_open_qps``: a ``TokenBucket`` per provider, one token per ``open()``.

The last two are process-wide: they hold across threads, event loops and orchestrations.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol, cast

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from ..clock import Clock

DEFAULT_REMOTE_QPS = 10.0
"""Sessions per second for providers that are neither local nor docker."""
_UNPACED = frozenset({"local", "docker"})


class _NativeToken(Protocol):
    def call_soon_threadsafe(self, callback: Callable[[], object]) -> object: ...
    def run_sync_soon(self, callback: Callable[[], object]) -> object: ...


def wake_call(token: EventLoopToken, callback: Callable[[], object]) -> None:
    """Have an event loop of any thread call something soon, without waiting for it."""
    native = cast("_NativeToken", token.native_token)
    try:
        if hasattr(native, "run_sync_soon"):
            native.run_sync_soon(callback)
        else:
            native.call_soon_threadsafe(callback)
    except RuntimeError:
        return  # that loop is closed: nobody waits there any more


@dataclass(eq=False, slots=True)
class _Waiter:
    token: EventLoopToken
    event: anyio.Event
    granted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterStatistics:
    """A snapshot of a ``SharedLimiter``; ``total`` is ``math.inf`` while no limit is set."""

    borrowed: int
    total: float
    waiting: int


class SharedLimiter:
    """
    A capacity limit that holds across threads and event loops.

    Each orchestration contributes its own setting while it lives; the strictest one holds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._settings: dict[object, int] = {}
        self._borrowed = 0
        self._waiters: deque[_Waiter] = deque()

    @contextmanager
    def setting(self, total: int | None) -> Iterator[Callable[[int | None], None]]:
        """Hold the limit at ``total`` (None: no limit) while the block runs; yields how to change it."""
        key = object()

        def change(total: int | None) -> None:
            with self._lock:
                self._settings.pop(key, None)
                if total is not None:
                    self._settings[key] = total
                self._grant()

        change(total)
        try:
            yield change
        finally:
            change(None)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot and hold it while the block runs."""
        await self._acquire()
        try:
            yield
        finally:
            self._release()

    def statistics(self) -> LimiterStatistics:
        """Return who holds and who waits."""
        with self._lock:
            return LimiterStatistics(borrowed=self._borrowed, total=self._total(), waiting=len(self._waiters))

    def _total(self) -> float:
        return min(self._settings.values(), default=math.inf)

    def _grant(self) -> None:
        """Hand free slots to those who wait longest; called under the lock."""
        while self._waiters and self._borrowed < self._total():
            waiter = self._waiters.popleft()
            waiter.granted = True
            self._borrowed += 1
            wake_call(waiter.token, waiter.event.set)

    async def _acquire(self) -> None:
        with self._lock:
            if not self._waiters and self._borrowed < self._total():
                self._borrowed += 1
                return
            waiter = _Waiter(current_token(), anyio.Event())
            self._waiters.append(waiter)
        arrived = False
        try:
            await waiter.event.wait()
            arrived = True
        finally:
            if not arrived:
                self._withdraw(waiter)

    def _withdraw(self, waiter: _Waiter) -> None:
        """Give back what a cancelled waiter had been granted, or take it out of the queue."""
        with self._lock:
            if waiter.granted:
                self._borrowed -= 1
                self._grant()
            else:
                self._waiters.remove(waiter)

    def _release(self) -> None:
        with self._lock:
            self._borrowed -= 1
            self._grant()


class TokenBucket:
    """
    Hand out tokens at a steady rate, one burst-free slot in time per token, across event loops.

    Each orchestration contributes its own rate while it lives; the slowest one holds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rates: list[float] = []
        self._next_slot = -math.inf
        self._returned: list[float] = []

    @property
    def is_set(self) -> bool:
        """Whether there is any rate to keep."""
        return bool(self._rates)

    @contextmanager
    def setting(self, tokens_per_second: float) -> Iterator[None]:
        """Hold the rate at that or less while the block runs; 0 for any rate."""
        if not tokens_per_second:
            yield
            return
        with self._lock:
            self._rates.append(tokens_per_second)
        try:
            yield
        finally:
            with self._lock:
                self._rates.remove(tokens_per_second)

    async def wait(self, clock: Clock) -> None:
        """Wait for a token; a cancelled waiter gives its slot to the next one who asks."""
        slot = self._reserve(clock.now())
        used = False
        try:
            delay = slot - clock.now()
            if delay > 0:
                await clock.sleep(delay)
            used = True
        finally:
            if not used:
                with self._lock:
                    heapq.heappush(self._returned, slot)

    def _reserve(self, now: float) -> float:
        with self._lock:
            if not self._rates:
                return now
            while self._returned and self._returned[0] < now:
                heapq.heappop(self._returned)
            if self._returned:
                return heapq.heappop(self._returned)
            slot = max(now, self._next_slot)
            self._next_slot = slot + 1 / min(self._rates)
            return slot


@dataclass(slots=True)
class ProviderGates:
    """The process-wide limits of one environment provider."""

    sessions: SharedLimiter = field(default_factory=SharedLimiter)
    opens: TokenBucket = field(default_factory=TokenBucket)

    @property
    def are_limited(self) -> bool:
        """Whether a session may have to be waited for."""
        return self.opens.is_set or self.sessions.statistics().total < math.inf


# Process-wide by contract: orchestrations in any thread share the machine that a provider stands for.
_gates: dict[str, ProviderGates] = {}
_gates_lock = threading.Lock()


def provider_gates(provider: str) -> ProviderGates:
    """Return the gates that all orchestrations of this process share for a provider."""
    with _gates_lock:
        return _gates.setdefault(provider, ProviderGates())


class ProviderSettings:
    """One orchestration's part in the limits of all providers; made by ``open_provider_settings``."""

    def __init__(self, limits: Mapping[str, int], open_qps: Mapping[str, float], stack: ExitStack) -> None:
        self._limits = limits
        self._open_qps = open_qps
        self._stack = stack
        self._changes: dict[str, Callable[[int | None], None]] = {}

    def gates(self, provider: str) -> ProviderGates:
        """Return a provider's gates, with this orchestration's settings in force until it ends."""
        gates = provider_gates(provider)
        if provider not in self._changes:
            limit = self._limits.get(provider)
            rate = self._open_qps.get(provider, 0.0 if provider in _UNPACED else DEFAULT_REMOTE_QPS)
            self._changes[provider] = self._stack.enter_context(gates.sessions.setting(limit))
            self._stack.enter_context(gates.opens.setting(rate))
        return gates

    def set_limit(self, provider: str, total: int | None) -> None:
        """Change how many sessions of a provider may be open; open ones are left alone."""
        self.gates(provider)
        self._changes[provider](total)

    def statistics(self) -> dict[str, LimiterStatistics]:
        """Return who holds and who waits, by provider."""
        return {provider: provider_gates(provider).sessions.statistics() for provider in self._changes}


@contextmanager
def open_provider_settings(
    *, limits: Mapping[str, int], open_qps: Mapping[str, float]
) -> Iterator[ProviderSettings]:
    """Contribute one orchestration's settings to the gates of the providers that it uses."""
    with ExitStack() as stack:
        yield ProviderSettings(limits, open_qps, stack)
