"""What the exit code of a command says about the run that it carried out."""

from __future__ import annotations

from ..records import RunStatus

EXIT_CODES = {
    RunStatus.COMPLETED: 0,
    RunStatus.FAILED: 1,
    RunStatus.PARTIAL: 3,
    RunStatus.TIMED_OUT: 4,
    RunStatus.CANCELLED: 5,
}
"""2 is for wrong input, and 128 + N for the signal N that stopped it."""


def exit_code(status: RunStatus, signal_number: int | None) -> int:
    """Return the exit code of a run that ended like that."""
    return EXIT_CODES[status] if signal_number is None else 128 + signal_number
