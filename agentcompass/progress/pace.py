"""How fast attempts finish, over a sliding window; costs the same however many finish."""

from __future__ import annotations

from collections import deque

_BUCKET_SECONDS = 5.0
_BUCKETS = 60
_FEW = 5
"""Below so many in the window, the whole time says more than the window."""


class Pace:
    """
    Count what finishes and tell the rate.

    Args:
        now: The reading of the clock at which counting starts.
    """

    def __init__(self, now: float) -> None:
        self._started = now
        self._total = 0
        self._buckets: deque[list[int]] = deque()

    def add(self, now: float) -> None:
        """Count one."""
        self._total += 1
        number = int(now / _BUCKET_SECONDS)
        if self._buckets and self._buckets[-1][0] == number:
            self._buckets[-1][1] += 1
        else:
            self._forget(number)
            self._buckets.append([number, 1])

    def per_second(self, now: float) -> float | None:
        """Return the current rate, None before the first one finished."""
        elapsed = now - self._started
        if not self._total or elapsed <= 0:
            return None
        self._forget(int(now / _BUCKET_SECONDS))
        recent = sum(count for _, count in self._buckets)
        if recent < _FEW:
            return self._total / elapsed
        return recent / min(elapsed, _BUCKETS * _BUCKET_SECONDS)

    def _forget(self, number: int) -> None:
        while self._buckets and self._buckets[0][0] <= number - _BUCKETS:
            self._buckets.popleft()
