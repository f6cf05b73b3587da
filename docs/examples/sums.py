"""A benchmark of additions. Its answers are judged by a grader, in a worker process."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, PositiveInt

from agentcompass import Outcome, Task, Verdict, benchmark


class SumsParams(BaseModel):
    """Which additions are asked."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    tasks: PositiveInt = 20
    """How many there are."""
    largest: PositiveInt = 999
    """The largest number in them."""


class SumsGrader:
    """Compares the last number of an answer."""

    def grade(self, task: Task, outcome: Outcome) -> Verdict:
        """Pass an answer that ends with the right number."""
        numbers = re.findall(r"-?\d+", outcome.answer or "")
        right = str(task.hidden["sum"])
        success = numbers[-1:] == [right]
        return Verdict.passed(success, "" if success else f"expected {right}")


@benchmark("sums")
class Sums:
    """Additions of two numbers."""

    version = "1"  # change it whenever older results should no longer be continued

    def __init__(self, params: SumsParams) -> None:
        self._params = params

    def load(self, data_dir: Path) -> Iterator[Task]:
        """Make the tasks, the same ones every time."""
        numbers = random.Random(0)  # noqa: S311
        for index in range(self._params.tasks):
            left, right = (numbers.randint(0, self._params.largest) for _ in range(2))
            yield Task(
                id=f"sum-{index:03d}",
                prompt=f"What is {left} + {right}? Reply with the number.",
                category="carry" if left % 10 + right % 10 > 9 else "no carry",
                reference=str(left + right),
                hidden={"sum": left + right},
            )

    def verifier(self) -> SumsGrader:
        """Return what judges all tasks."""
        return SumsGrader()
