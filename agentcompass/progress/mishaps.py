"""Errors of what only watches a run: they are counted and reported, and the run goes on."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType


class Mishaps:
    """
    A block whose errors are kept from the run; used again and again.

    Cancellation and the like pass.

    Args:
        report: Is told the first error.
    """

    def __init__(self, report: Callable[[Exception], None]) -> None:
        self.count = 0
        self._report = report

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.count += 1
        if self.count == 1:
            self._report(error)
        return True
