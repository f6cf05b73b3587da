"""
Who runs next: the task slots of an orchestration, and the order in which its requests get them.

A free slot goes to the request that was declared first, of those that could use it now. A request cannot use
one while it has as many attempts in flight as it may, while its attempts only wait for sessions of their
provider, or before an earlier one of its provider has loaded its tasks. Requests load their tasks shortly
before it is their turn, so that no slot idles between two of them and a thousand of them cost no more memory
than a few.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import anyio

from .limits import ProviderGates

LOADED_AHEAD = 2
"""How many requests of one provider are loaded at once: one that takes slots, and the next one."""

State = Literal["declared", "loading", "feeding", "fed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleStatistics:
    """
    A snapshot of a schedule.

    Args:
        working: Slots that are taken.
        recording: Attempts of which only the record is left to write.
        waiting: Requests that wait for a slot and could use it.
    """

    task_concurrency: int
    working: int
    recording: int
    waiting: int
    paused: bool


class Lane:
    """Who of an orchestration waits for sessions of one provider, from the moment of taking a task slot."""

    def __init__(self, gates: ProviderGates, on_clear: Callable[[], None]) -> None:
        self._gates = gates
        self._on_clear = on_clear
        self._waiting: set[object] = set()

    @property
    def is_clear(self) -> bool:
        """Whether a further attempt would not just join those who wait."""
        return not self._waiting or not self._gates.are_limited

    def join(self, borrower: object) -> None:
        """Count a borrower as waiting."""
        self._waiting.add(borrower)

    def leave(self, borrower: object) -> None:
        """Stop counting it: it has its session, or needs none any more."""
        if borrower in self._waiting:
            self._waiting.discard(borrower)
            if not self._waiting:
                self._on_clear()


@dataclass(slots=True, eq=False)
class _Waiter:
    borrower: object
    event: anyio.Event = field(default_factory=anyio.Event)
    granted: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Place:
    """
    A request's place in the schedule.

    Args:
        order: Of declaration.
        provider: Whose sessions it opens; empty for none.
        cap: Most attempts of the request in flight.
        weight: Share among requests with a weight; 0 for none.
        lane: None if the request opens no sessions.
    """

    schedule: Schedule
    order: int
    provider: str
    cap: float
    weight: float
    lane: Lane | None
    state: State = "declared"
    live: int = 0
    waiter: _Waiter | None = None
    admitted: anyio.Event = field(default_factory=anyio.Event)

    @property
    def is_capped(self) -> bool:
        """Whether no more attempts of the request may be in flight."""
        return self.live >= self.cap

    @property
    def can_take(self) -> bool:
        """Whether the request could use a free slot."""
        return (
            not self.is_capped
            and (self.lane is None or self.lane.is_clear)
            and not self.schedule.is_behind_loading(self)
        )

    async def wait_admission(self) -> None:
        """Wait until the request should load its tasks."""
        await self.admitted.wait()

    async def take(self, borrower: object) -> None:
        """Take a slot for work to come."""
        self.state = "feeding"
        await self.schedule.take(self, borrower)

    async def finish_work(self, borrower: object) -> None:
        """Let the next work begin; only the record is left to be written."""
        await self.schedule.finish_work(borrower)

    def free(self, borrower: object) -> None:
        """Give back whatever is held."""
        self.schedule.free(borrower)

    def end(self) -> None:
        """Let others load: this request has handed out all that it has."""
        self.schedule.end(self)


class Schedule:
    """
    The task slots of an orchestration: at most ``total`` attempts work at once.

    Work that only waits for its record to reach the disk makes room for the next, but no more records
    wait at once than there are slots: a slow disk slows the feed.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._working: dict[object, Place] = {}
        self._recording = anyio.CapacityLimiter(total)
        self._declared: dict[_Queue, deque[Place]] = defaultdict(deque)
        self._loaded: set[Place] = set()
        self._loading: set[Place] = set()
        self._waiting: set[Place] = set()
        self._first_weighted: int | None = None
        self._paused = False

    def statistics(self) -> ScheduleStatistics:
        """Return where it stands."""
        return ScheduleStatistics(
            task_concurrency=self._total,
            working=len(self._working),
            recording=int(self._recording.borrowed_tokens),
            waiting=sum(place.can_take for place in self._waiting),
            paused=self._paused,
        )

    # --- requests -----------------------------------------------------------------------------------

    @contextmanager
    def place(
        self, *, order: int, provider: str, cap: int | None, weight: float | None, lane: Lane | None
    ) -> Iterator[Place]:
        """Have a place in the schedule while the block runs; enter these blocks in order."""
        place = Place(
            schedule=self,
            order=order,
            provider=provider,
            cap=cap or math.inf,
            weight=weight or 0.0,
            lane=lane,
        )
        if weight and self._first_weighted is None:
            self._first_weighted = order
        self._declared[_queue(place)].append(place)
        self._admit()
        try:
            yield place
        finally:
            self.end(place)

    def end(self, place: Place) -> None:
        """Let others load: this request has handed out all that it has."""
        if place.state == "declared":
            self._declared[_queue(place)].remove(place)
        self._loaded.discard(place)
        if place.state != "fed":
            place.state = "fed"
            self._loading.discard(place)
            self._admit()
            self.grant()

    def is_behind_loading(self, place: Place) -> bool:
        """Whether an earlier request of the same provider is about to start."""
        return any(other.order < place.order and _queue(other) == _queue(place) for other in self._loading)

    def _admit(self) -> None:
        """Have requests load that will be needed soon."""
        ready = Counter(_queue(place) for place in self._loaded if not place.is_capped)
        for queue, places in self._declared.items():
            ahead = self._total if queue.is_weighted else LOADED_AHEAD
            while places and ready[queue] < ahead:
                place = places.popleft()
                place.state = "loading"
                place.admitted.set()
                self._loaded.add(place)
                self._loading.add(place)
                ready[queue] += 1

    # --- slots --------------------------------------------------------------------------------------

    async def take(self, place: Place, borrower: object) -> None:
        """Wait until it is the place's turn to have a slot, and take it."""
        self._loading.discard(place)
        if self._has_room and place.can_take:
            self._lend(place, borrower)
            return
        waiter = place.waiter = _Waiter(borrower)
        self._waiting.add(place)
        self.grant()  # only now: what a request can take at once, later ones must not have taken before
        arrived = False
        try:
            await waiter.event.wait()
            arrived = True
        finally:
            if not arrived:
                self._waiting.discard(place)
                if waiter.granted:
                    self._give_back(borrower)

    @property
    def _has_room(self) -> bool:
        return not self._paused and len(self._working) < self._total

    def _lend(self, place: Place, borrower: object) -> None:
        self._working[borrower] = place
        place.live += 1
        if place.lane is not None:
            place.lane.join(borrower)
        if place.is_capped:
            self._admit()

    def grant(self) -> None:
        """Hand free slots to the requests whose turn it is."""
        while self._waiting and self._has_room:
            place = min((place for place in self._waiting if place.can_take), key=self._rank, default=None)
            if place is None or place.waiter is None:
                return
            waiter, place.waiter = place.waiter, None
            self._waiting.discard(place)
            self._lend(place, waiter.borrower)
            waiter.granted = True
            waiter.event.set()

    def _rank(self, place: Place) -> tuple[int, float, int]:
        if not place.weight or self._first_weighted is None:
            return place.order, 0.0, 0
        return self._first_weighted, (place.live + 1) / place.weight, place.order

    async def finish_work(self, borrower: object) -> None:
        """Turn a slot into permission to write a record."""
        try:
            self._recording.acquire_on_behalf_of_nowait(borrower)  # saves a round through the event loop
        except anyio.WouldBlock:
            await self._recording.acquire_on_behalf_of(borrower)
        self._give_back(borrower)

    def free(self, borrower: object) -> None:
        """Give back whatever is held."""
        self._give_back(borrower)
        with suppress(RuntimeError):  # not held
            self._recording.release_on_behalf_of(borrower)

    def _give_back(self, borrower: object) -> None:
        place = self._working.pop(borrower, None)
        if place is None:
            return
        place.live -= 1
        if place.lane is not None:
            place.lane.leave(borrower)
        self.grant()

    # --- control ------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Hand out no further slots; what is live goes on."""
        self._paused = True

    def resume(self) -> None:
        """Hand out slots again."""
        self._paused = False
        self.grant()

    def set_total(self, total: int) -> None:
        """Change how many attempts may be in flight; live ones are left alone."""
        self._total = total
        self._recording.total_tokens = total
        self.grant()


class _Queue(NamedTuple):
    """Requests that load one after another."""

    provider: str
    is_weighted: bool


def _queue(place: Place) -> _Queue:
    return _Queue(place.provider, bool(place.weight))
