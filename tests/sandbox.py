"""Tests that need Docker or bubblewrap: skipped where it is not there, unless it has to be."""

from __future__ import annotations

import os
from functools import cache
from typing import NoReturn

import pytest

from agentcompass.environments.bubblewrap import Bubblewrap, UnusableError, find_bubblewrap

REQUIRED = "AGENTCOMPASS_REQUIRE_SANDBOXES"
"""The environment variable with which CI says that such tests must not be skipped."""


def skip(reason: str) -> NoReturn:
    """Skip a test, or fail it where skipping is not allowed."""
    if os.environ.get(REQUIRED):
        pytest.fail(f"{REQUIRED} is set, but: {reason}")
    pytest.skip(reason)


@cache
def _found() -> Bubblewrap | str:
    try:
        return find_bubblewrap()
    except UnusableError as error:
        return str(error)


def need_bubblewrap(*, overlays: bool = False) -> None:
    """
    Skip unless bubblewrap works; blocks.

    Args:
        overlays: It must be new enough for root file systems.
    """
    found = _found()
    if isinstance(found, str):
        skip(found)
    elif overlays and not found.has_overlays:
        skip(f"bubblewrap {found.version} has no overlays")
