"""Do something once for all who want it at the same time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

from ...errors import SessionError

T = TypeVar("T")


@dataclass
class _Flight(Generic[T]):
    done: anyio.Event = field(default_factory=anyio.Event)
    results: list[T] = field(default_factory=list)
    error: SessionError | None = None


class SingleFlight(Generic[T]):
    """Share one call among all callers of a key; if the one who makes it is cancelled, another does."""

    def __init__(self) -> None:
        self._flights: dict[str, _Flight[T]] = {}

    async def run(self, key: str, work: Callable[[], Awaitable[T]]) -> T:
        """
        Return what ``work`` returns, here or for another caller at the same time.

        Raises:
            SessionError: Of ``work``, for all who waited for it.
        """
        while (flight := self._flights.get(key)) is not None:
            await flight.done.wait()
            if flight.error is not None:
                raise type(flight.error)(str(flight.error), retryable=flight.error.retryable)
            if flight.results:
                return flight.results[0]
        flight = self._flights[key] = _Flight()
        try:
            flight.results.append(await work())
        except SessionError as error:
            flight.error = error
            raise
        finally:
            del self._flights[key]
            flight.done.set()
        return flight.results[0]
