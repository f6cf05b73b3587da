"""Events that wait for a slow reader: bounded, and the telling ones are kept longest."""

from __future__ import annotations

from collections import deque

from ..records import PhaseChanged, ProgressEvent, TrialProgressed, TrialStarted


class Backlog:
    """
    A bounded queue of events.

    When it is full, the oldest start, phase change or step goes first; only when there is none, the oldest
    of the others.

    Args:
        limit: How many events may wait.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self.dropped = 0
        self._limit = limit
        self._number = 0
        self._minor: deque[tuple[int, ProgressEvent]] = deque()
        self._major: deque[tuple[int, ProgressEvent]] = deque()

    def __len__(self) -> int:
        return len(self._minor) + len(self._major)

    def push(self, event: ProgressEvent) -> None:
        """Append an event, dropping another one if need be."""
        self._number += 1
        queue = (
            self._minor if isinstance(event, TrialStarted | PhaseChanged | TrialProgressed) else self._major
        )
        queue.append((self._number, event))
        if len(self) > self._limit:
            (self._minor or self._major).popleft()
            self.dropped += 1

    def take(self, limit: int) -> list[ProgressEvent]:
        """Remove and return the oldest events, in order."""
        return [self._pop() for _ in range(min(limit, len(self)))]

    def _pop(self) -> ProgressEvent:
        if self._minor and (not self._major or self._minor[0] < self._major[0]):
            return self._minor.popleft()[1]
        return self._major.popleft()[1]
