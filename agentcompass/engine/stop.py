"""The orderly stop of an orchestration: no new work, live work cancelled and recorded, then the files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import anyio

GRACE_SECONDS = 60.0
"""How long finishing touches may take once work has been cancelled."""
HASTY_GRACE_SECONDS = 5.0
"""The same after a second request to stop."""


class StopControl:
    """
    Cancels an orchestration's work when asked, and bounds what must still be finished.

    The first ``request`` cancels the work scopes; the next one shortens every shield.
    """

    def __init__(self) -> None:
        self._grace_seconds = math.inf
        self._work_deadline = math.inf
        self._work: set[anyio.CancelScope] = set()
        self._shields: set[anyio.CancelScope] = set()
        self.requested = False

    def request(self) -> None:
        """Stop, or hurry; call it on the orchestration's own event loop."""
        self._limit_shields(HASTY_GRACE_SECONDS if self.requested else GRACE_SECONDS)
        self.requested = True
        for scope in self._work:
            scope.cancel()

    def _limit_shields(self, seconds: float) -> None:
        self._grace_seconds = min(self._grace_seconds, seconds)
        latest = anyio.current_time() + seconds
        for scope in self._shields:
            scope.deadline = min(scope.deadline, latest)

    @contextmanager
    def work(self, *, deadline: float = math.inf) -> Iterator[anyio.CancelScope]:
        """Enter a scope that a stop, or the deadline, cancels."""
        self._work_deadline = min(self._work_deadline, deadline)
        with anyio.CancelScope(deadline=deadline) as scope:
            self._work.add(scope)
            try:
                if self.requested:
                    scope.cancel()
                yield scope
            finally:
                self._work.discard(scope)

    @contextmanager
    def shield(self) -> Iterator[anyio.CancelScope]:
        """
        Finish the block even under cancellation.

        Once a stop is requested, or the work's deadline is over, it may take the grace period.
        """
        now = anyio.current_time()
        after_work = max(now, self._work_deadline) + GRACE_SECONDS
        deadline = min(now + self._grace_seconds, after_work)
        with anyio.CancelScope(shield=True, deadline=deadline) as scope:
            self._shields.add(scope)
            try:
                yield scope
            finally:
                self._shields.discard(scope)


class RequestStop:
    """The same for one request of an orchestration, which a stop of the whole stops as well."""

    def __init__(self, whole: StopControl) -> None:
        self._whole = whole
        self._work: set[anyio.CancelScope] = set()
        self._cancelled = False

    @property
    def requested(self) -> bool:
        """Whether the request is to stop."""
        return self._cancelled or self._whole.requested

    def request(self) -> None:
        """Stop this request; call it on the orchestration's own event loop."""
        self._cancelled = True
        for scope in self._work:
            scope.cancel()

    @contextmanager
    def work(self, *, deadline: float = math.inf) -> Iterator[anyio.CancelScope]:
        """Enter a scope that a stop, or the deadline, cancels."""
        with self._whole.work(deadline=deadline) as scope:
            self._work.add(scope)
            try:
                if self._cancelled:
                    scope.cancel()
                yield scope
            finally:
                self._work.discard(scope)

    def shield(self) -> AbstractContextManager[anyio.CancelScope]:
        """Finish the block even under cancellation; only a stop of the whole bounds it."""
        return self._whole.shield()
