"""Which failed trials are executed again, and after what pause."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from ..errors import ModelError, TrialError

BASE_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0
_MATCHED_CHARACTERS = 2000
"""A pattern of the user's sees no more of a message than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """
    The user's wish.

    Args:
        max_retries: Additional executions of an attempt.
        patterns: Class names, or regular expressions over ``"Class: message"``; None leaves the
            choice to the errors themselves.
    """

    max_retries: int
    patterns: tuple[str, ...] | None = None

    def wants(self, error: Exception, *, retries_done: int) -> bool:
        """Tell whether the failure deserves another execution."""
        return retries_done < self.max_retries and self.matches(error)

    def matches(self, error: Exception) -> bool:
        """Tell whether the failure is of a transient kind."""
        if self.patterns is None:
            return isinstance(error, TrialError) and error.retryable
        names = {cls.__name__ for cls in type(error).__mro__}
        text = f"{type(error).__name__}: {error}"[:_MATCHED_CHARACTERS]
        return any(pattern in names or re.search(pattern, text) for pattern in self.patterns)


def pause_seconds(error: Exception, *, retries_done: int) -> float:
    """
    Return how long to wait before the next execution: exponential with full jitter.

    Never shorter than what the endpoint asked for.
    """
    ceiling = min(MAX_PAUSE_SECONDS, BASE_PAUSE_SECONDS * 2.0**retries_done)
    jittered = random.uniform(ceiling / 2, ceiling)  # noqa: S311
    asked = error.retry_after_seconds if isinstance(error, ModelError) else None
    return max(jittered, (asked or 0.0) * random.uniform(1.0, 1.25))  # noqa: S311
