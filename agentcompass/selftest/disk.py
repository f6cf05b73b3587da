"""A disk for the store that fails at a chosen operation, in a chosen way."""

from __future__ import annotations

import errno
import os
import threading
import time
from dataclasses import dataclass
from typing import Literal

from ..store.files import SYSTEM_FILES

Manner = Literal["once", "for_good", "torn", "slow", "hang", "crash"]
"""
How an operation fails: with an error and never again, with an error from then on (nothing on the disk
changes any more), after half of a write and from then on, late, never to return, or as the process's end.
"""

CRASHED = 97
"""Exit code of a process that crashed on purpose."""
_SLOW_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """
    What goes wrong.

    Args:
        at: The operation that fails, counted from 1.
        operation: Count only operations of this name; empty for all.
        error: The errno, where the manner has one.
    """

    manner: Manner
    at: int
    operation: str = ""
    error: int = errno.ENOSPC

    def __str__(self) -> str:
        code = errno.errorcode[self.error] if self.manner in {"once", "for_good", "torn"} else ""
        return " ".join(filter(None, [code, self.manner, "at", self.operation or "operation", str(self.at)]))


class FaultyDisk:
    """
    The machine's disk with one fault, or with none.

    Args:
        fault: None to see which operations there are.
    """

    def __init__(self, fault: Fault | None = None) -> None:
        self.operations: list[str] = []
        """The names of all operations so far."""
        self.hangs = threading.Event()
        """Set once an operation hangs."""
        self._fault = fault
        self._counted = 0
        self._is_released = threading.Event()

    def release(self) -> None:
        """Let what hangs go on."""
        self._is_released.set()

    # --- the operations ---------------------------------------------------------------------------

    def make_dirs(self, path: str) -> None:
        self._meet("make_dirs")
        SYSTEM_FILES.make_dirs(path)

    def open(self, path: str, flags: int) -> int:
        self._meet("open")
        return SYSTEM_FILES.open(path, flags)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        try:
            self._meet("write")
        except OSError:
            if self._fault is not None and self._fault.manner == "torn" and self._is_first:
                SYSTEM_FILES.write(descriptor, memoryview(data)[: len(data) // 2])
            raise
        return SYSTEM_FILES.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self._meet("sync")
        SYSTEM_FILES.sync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        self._meet("truncate")
        SYSTEM_FILES.truncate(descriptor, size)

    def close(self, descriptor: int) -> None:
        SYSTEM_FILES.close(descriptor)  # a descriptor is gone even if closing it reports an error
        self._meet("close")

    def rename(self, source: str, target: str) -> None:
        self._meet("rename")
        SYSTEM_FILES.rename(source, target)

    def sync_dir(self, path: str) -> None:
        self._meet("sync_dir")
        SYSTEM_FILES.sync_dir(path)

    # --- the fault --------------------------------------------------------------------------------

    @property
    def _is_first(self) -> bool:
        return self._fault is not None and self._counted == self._fault.at

    def _meet(self, operation: str) -> None:
        """Count an operation and fail it if it is its turn."""
        self.operations.append(operation)
        fault = self._fault
        if fault is None:
            return
        self._counted += fault.operation in {"", operation}
        if self._counted < fault.at or (not self._is_first and fault.manner in {"once", "hang"}):
            return
        match fault.manner:
            case "slow":
                time.sleep(_SLOW_SECONDS)
            case "hang":
                self.hangs.set()
                self._is_released.wait()
            case "crash":
                os._exit(CRASHED)
            case "once" | "for_good" | "torn":
                raise OSError(fault.error, os.strerror(fault.error))
