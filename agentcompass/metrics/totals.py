"""What all trials of a run took, whether or not they count for its scores."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from operator import add

from ..records import Usage
from .trials import USAGE_COUNTS, TrialRow


class Totals:
    """Trials, usage and time, added up exactly, so that the order of the trials does not matter."""

    def __init__(self) -> None:
        self.trials = 0
        self.discarded_trials = 0
        self.duplicate_lines = 0
        self._counts = [0] * len(USAGE_COUNTS)
        self._costs_usd = array("d")
        self._agent_seconds = array("d")

    def add_task(self, trials: Sequence[TrialRow], *, lines: int) -> None:
        """
        Add the trials of a task.

        Args:
            trials: Each of them once.
            lines: How many lines of the journal they took.
        """
        self.trials += len(trials)
        self.duplicate_lines += lines - len(trials)
        for row in trials:
            self.discarded_trials += row.discarded
            self._counts = list(map(add, self._counts, row.counts))
            self._agent_seconds.append(row.agent_seconds)
            if row.cost_usd is not None:
                self._costs_usd.append(row.cost_usd)

    @property
    def agent_seconds(self) -> float:
        return math.fsum(self._agent_seconds)

    @property
    def usage(self) -> Usage:
        return Usage(
            **dict(zip(USAGE_COUNTS, self._counts, strict=True)),
            cost_usd=math.fsum(self._costs_usd) if self._costs_usd else None,
        )
