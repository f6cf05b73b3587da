"""Harnesses without an agent, for tests and speed measurements."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from ..protocols import Outcome, Trial


class InstantParams(BaseModel):
    """What the instant harness says."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    answer: str | None = "ok"
    """The answer to every task."""


class InstantHarness:
    """Hands in the same answer at once."""

    needs_session: ClassVar[bool] = False
    needs_model: ClassVar[bool] = False
    sees_reference: ClassVar[bool] = False

    def __init__(self, params: InstantParams) -> None:
        self._outcome = Outcome(answer=params.answer, stop_reason="done")

    async def run(self, trial: Trial) -> Outcome:
        """Hand in the answer."""
        return self._outcome


class CallableHarness:
    """Does what a function does; it may hang, raise, record steps or swallow cancellations."""

    needs_session: ClassVar[bool] = False
    needs_model: ClassVar[bool] = False
    sees_reference: ClassVar[bool] = False

    def __init__(self, run: Callable[[Trial], Awaitable[Outcome]]) -> None:
        self._run = run

    async def run(self, trial: Trial) -> Outcome:
        """Call the function."""
        return await self._run(trial)
