"""A benchmark of any size without data, for tests and speed measurements."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Literal

import anyio
from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveInt

from ..protocols import Outcome, Session, Task, Verdict

FAKE_ANSWER = "ok"


class FakeParams(BaseModel):
    """How many tasks there are and how long judging takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    tasks: PositiveInt = 3
    """How many tasks: ``t0000``, ``t0001``, ..."""
    verify_seconds: NonNegativeFloat = 0.0
    """How long the verifier waits for each answer."""


class FakeBenchmark:
    """Tasks whose right answer is "ok"."""

    def __init__(self, params: FakeParams) -> None:
        self._params = params

    def load(self, data_dir: Path) -> Iterable[Task]:
        """Make the tasks one by one."""
        prompt = f"Say {FAKE_ANSWER}."
        return (
            Task(id=f"t{index:04d}", prompt=prompt, reference=FAKE_ANSWER)
            for index in range(self._params.tasks)
        )

    def verifier(self) -> FakeVerifier:
        """Return the verifier of all tasks."""
        return FakeVerifier(self._params)


class FakeVerifier:
    """Passes the answer "ok"."""

    environment: ClassVar[Literal["none", "reuse", "fresh"]] = "none"

    def __init__(self, params: FakeParams) -> None:
        self._seconds = params.verify_seconds

    async def verify(self, task: Task, outcome: Outcome, session: Session | None) -> Verdict:
        """Compare the answer."""
        if self._seconds:
            await anyio.sleep(self._seconds)
        return Verdict.passed(outcome.answer == FAKE_ANSWER)
