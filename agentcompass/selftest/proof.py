"""What a proof of ``agentcompass selftest`` is: something that must hold, and a way to try to break it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """
    Where and how hard a proof works.

    Args:
        folder: An empty directory of its own, removed afterwards.
        torture: Whether to try everything instead of a sample.
        docker: Whether sessions in containers take part.
        seed: Of every random choice.
    """

    folder: Path
    torture: bool = False
    docker: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """
    A promise and the function that tries to break it.

    Args:
        name: One word or a few with underscores.
        promise: What holds, as users would say it.
        prove: Blocks; returns how many checks held.
    """

    name: str
    promise: str
    prove: Callable[[Place], int]


class BrokenPromiseError(Exception):
    """A promise does not hold; the text says what was tried, what happened, and what should have."""
