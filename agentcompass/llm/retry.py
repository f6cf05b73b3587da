"""When a failed model call is tried again; one pacing serves all calls of an endpoint."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from itertools import count

from ..clock import Clock
from ..errors import ModelError
from ..protocols import Reply

BACKOFF_SECONDS = 0.5
"""The longest pause before the first retry; it doubles with each further one."""
MAX_BACKOFF_SECONDS = 60.0
JITTER = 0.25
"""How far pauses that the endpoint asked for are spread, as a share of them."""


class Pacing:
    """
    Try calls again, and keep all of an endpoint's calls away from it while it asks for a pause.

    Args:
        max_retries: How many further tries a call gets.
        rng: Spreads the pauses, so that calls which failed together do not return together.
    """

    def __init__(self, *, max_retries: int, clock: Clock, rng: random.Random) -> None:
        self._max_retries = max_retries
        self._clock = clock
        self._rng = rng
        self._resume_at = float("-inf")
        self._asked_seconds = 0.0

    async def run(
        self,
        one_try: Callable[[], Awaitable[Reply]],
        *,
        on_pause: Callable[[bool], None] = lambda _pausing: None,
    ) -> Reply:
        """
        Try until a reply comes, the retries are used up or none can help.

        Args:
            on_pause: Told when a pause begins (True) and ends (False).

        Raises:
            ModelError: That of the last try.
        """
        for retries in count():
            await self._wait_while_cooling(on_pause)
            try:
                return await one_try()
            except ModelError as error:
                self._cool_down(error)
                if not error.retryable or retries >= self._max_retries:
                    raise
                pause_seconds = self._pause_seconds(retries, error)
            on_pause(True)
            await self._clock.sleep(pause_seconds)
            on_pause(False)
        raise AssertionError  # count() does not end

    def _pause_seconds(self, retries: int, error: ModelError) -> float:
        ceiling = min(MAX_BACKOFF_SECONDS, BACKOFF_SECONDS * 2 ** min(retries, 30))
        return max(self._rng.uniform(0, ceiling), self._spread(error.retry_after_seconds or 0.0))

    def _spread(self, seconds: float) -> float:
        return seconds * (1 + self._rng.uniform(0, JITTER))

    def _cool_down(self, error: ModelError) -> None:
        seconds = error.retry_after_seconds or 0.0
        resume_at = self._clock.now() + seconds
        if seconds and resume_at > self._resume_at:
            self._resume_at, self._asked_seconds = resume_at, seconds

    async def _wait_while_cooling(self, on_pause: Callable[[bool], None]) -> None:
        while (remaining := self._resume_at - self._clock.now()) > 0:
            on_pause(True)
            await self._clock.sleep(remaining + self._rng.uniform(0, JITTER * self._asked_seconds))
            on_pause(False)
