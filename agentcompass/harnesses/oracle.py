"""The oracle: a control that hands in the reference solution, so every sound task must score 1."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from ..errors import HarnessError
from ..protocols import Outcome, Trial


class OracleParams(BaseModel):
    """The oracle has no settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OracleHarness:
    """Hands in the reference solution."""

    needs_session: ClassVar[bool] = False
    needs_model: ClassVar[bool] = False
    sees_reference: ClassVar[bool] = True

    def __init__(self, params: OracleParams) -> None:
        pass

    async def run(self, trial: Trial) -> Outcome:
        """
        Hand in the reference solution.

        Raises:
            HarnessError: The task has none.
        """
        if trial.reference is None:
            raise HarnessError(
                f"task {trial.task.id!r} has no reference solution, so the oracle has nothing to hand in"
            )
        return Outcome(answer=trial.reference, stop_reason="done")
