"""A benchmark of small programs. Its verifier runs each answer in a session of its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Literal

from agentcompass import Outcome, Session, Task, Verdict, VerifierError, benchmark

_WANTED = {"reverse": "prints its input line reversed", "sort": "prints the words of its input line in order"}
_SOLUTIONS = {"reverse": "print(input()[::-1])", "sort": "print(*sorted(input().split()))"}
_CASES = {"reverse": [("abc", "cba"), ("a b", "b a")], "sort": [("b a", "a b"), ("c", "c")]}


class ProgramsVerifier:
    """Feeds the hidden inputs to a program and compares what it prints."""

    environment: ClassVar[Literal["none", "reuse", "fresh"]] = "fresh"

    async def verify(self, task: Task, outcome: Outcome, session: Session | None) -> Verdict:
        """Score the share of right outputs; pass if all are right."""
        assert session is not None  # "fresh" promises one
        if not outcome.answer:
            return Verdict.passed(False, "there is no program")
        await session.write("program.py", outcome.answer.encode("utf-8", "replace"))
        right = 0
        for given, wanted in task.hidden["cases"]:
            result = await session.exec(
                ["python3", "program.py"], stdin=f"{given}\n".encode(), timeout_seconds=10
            )
            if result.exit_code == 127:  # the machine's fault, not the answer's
                raise VerifierError("there is no python3 in the session")
            right += result.exit_code == 0 and result.stdout.strip() == wanted
        share = right / len(task.hidden["cases"])
        return Verdict(score=share, success=share == 1, metrics={"cases_passed": right})


@benchmark("programs")
class Programs:
    """Programs of one line."""

    def load(self, data_dir: Path) -> Iterable[Task]:
        """Return the tasks."""
        return [
            Task(
                id=name,
                prompt=f"Write a Python program that {what}. Reply with the program only.",
                reference=_SOLUTIONS[name],
                hidden={"cases": _CASES[name]},
            )
            for name, what in _WANTED.items()
        ]

    def verifier(self) -> ProgramsVerifier:
        """Return what judges all tasks."""
        return ProgramsVerifier()
