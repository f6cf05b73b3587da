"""What is known of a test run besides its log: written by the examiner, read by the grader, kept on disk."""

from __future__ import annotations

from typing import Literal

import msgspec

TEST_LOG = "test_output.txt"
CONTROL_LOG = "control_output.txt"
EVIDENCE = "evaluation.json"
ALL_EVIDENCE = frozenset({TEST_LOG, CONTROL_LOG, EVIDENCE})

Applied = Literal["apply", "reject", "fuzz", "none"]
"""The way in which the prediction could be applied: git, git with rejects, patch with fuzz, or none."""
Control = Literal["off", "impossible", "unfinished", "done"]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """How a prediction was tested."""

    applied: Applied = "none"
    apply_message: str = ""
    exit_code: int | None = None
    """Of the test command; None if it did not end."""
    timed_out: bool = False
    out_of_memory: bool = False
    disk_full: bool = False
    """After the tests."""
    forged_marks: int = 0
    """How often the code printed a mark of the evaluation script."""
    test_seconds: float = 0.0
    control: Control = "off"


def encode_evidence(evidence: Evidence) -> bytes:
    """Return the evidence as JSON."""
    return msgspec.json.format(msgspec.json.encode(evidence), indent=2)


def decode_evidence(data: bytes) -> Evidence:
    """Read evidence."""
    return msgspec.json.decode(data, type=Evidence)
