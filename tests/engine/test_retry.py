"""Which failures deserve another execution, and how long to wait for it."""

from __future__ import annotations

import pytest

from agentcompass.engine.retry import MAX_PAUSE_SECONDS, RetryPolicy, pause_seconds
from agentcompass.errors import (
    HarnessError,
    ModelAuthError,
    ModelUnavailableError,
    RateLimitedError,
    SessionOpenError,
)


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_retries_are_additional_executions(allowed: int) -> None:
    """N retries mean N further executions: none for 0."""
    policy = RetryPolicy(max_retries=allowed)
    done = 0
    while policy.wants(ModelUnavailableError("x"), retries_done=done):
        done += 1
    assert done == allowed


def test_default_follows_the_errors() -> None:
    """Without patterns, retryable errors are retried and others are not."""
    policy = RetryPolicy(max_retries=1)
    assert policy.matches(SessionOpenError("x"))
    assert not policy.matches(ModelAuthError("x"))
    assert not policy.matches(HarnessError("x"))
    assert not policy.matches(ValueError("x"))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("RateLimitedError", True),
        ("ModelError", True),
        ("HarnessError", False),
        ("Limited.*quota", True),
        ("^RateLimitedError: over quota$", True),
        ("^quota", False),
    ],
)
def test_patterns_match_class_names_and_text(pattern: str, expected: bool) -> None:
    """A pattern is the name of the class or a base class, or is searched in "Class: message"."""
    policy = RetryPolicy(max_retries=1, patterns=(pattern,))
    assert policy.matches(RateLimitedError("over quota")) is expected


def test_empty_pattern_list_retries_nothing() -> None:
    """An explicit empty list switches retries off."""
    assert not RetryPolicy(max_retries=3, patterns=()).matches(SessionOpenError("x"))


def test_pauses_grow_and_spread() -> None:
    """Pauses double up to a minute, and no two are alike."""
    pauses = [pause_seconds(SessionOpenError("x"), retries_done=number) for number in range(12)]
    assert 0.5 <= pauses[0] <= 1
    assert MAX_PAUSE_SECONDS / 2 <= pauses[-1] <= MAX_PAUSE_SECONDS
    assert len(set(pauses)) == len(pauses)


def test_pause_is_never_shorter_than_asked() -> None:
    """What the endpoint asked for is the least."""
    error = RateLimitedError("x", retry_after_seconds=30)
    assert all(30 <= pause_seconds(error, retries_done=0) <= 37.5 for _ in range(100))
