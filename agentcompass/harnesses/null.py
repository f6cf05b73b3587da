"""The null harness: a control that does nothing, so every sound task must score 0."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from ..protocols import Outcome, Trial


class NullParams(BaseModel):
    """The null harness has no settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NullHarness:
    """Hands in no answer."""

    needs_session: ClassVar[bool] = False
    needs_model: ClassVar[bool] = False
    sees_reference: ClassVar[bool] = False

    def __init__(self, params: NullParams) -> None:
        pass

    async def run(self, trial: Trial) -> Outcome:
        """Do nothing."""
        return Outcome(stop_reason="done")
