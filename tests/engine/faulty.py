"""A benchmark like HumanEval in which every task but one has a fault; importable for worker processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

from agentcompass.benchmarks.humaneval import HumanEval, HumanEvalParams
from agentcompass.errors import VerifierError
from agentcompass.protocols import Outcome, Session, Task, Verdict

_PROMPT = 'def double(value):\n    """Return twice the value."""\n'
_SOLUTION = "    result = value + value\n    return result if result else 0 * value\n"
_TEST = (
    "def check(candidate):\n    assert candidate(2) == 4, 'of a small number'\n"
    "    assert candidate(-50) == -100, 'of a negative number'\n"
)


def _task(name: str, *, prompt: str = "", solution: str = _SOLUTION, **files: bytes) -> Task:
    hidden = {"prompt": _PROMPT, "entry_point": "double", "test": _TEST}
    return Task(
        id=name,
        prompt=f"Complete this function:\n\n{_PROMPT}{prompt}",
        reference=_PROMPT + solution,
        hidden=hidden,
        files={f"{file}.py": content for file, content in files.items()},
    )


class Faulty:
    """The fault is the id of the task."""

    def load(self, data_dir: Path) -> Iterator[Task]:
        yield _task("none", starter=_PROMPT.encode())
        yield _task("wrong reference", solution="    return value + 1\n")
        yield _task("flaky grader")
        yield _task("tests in the prompt", prompt=f"\n{_TEST}")
        yield _task("tests in a file", tests=_TEST.encode())
        yield _task("passes everything")
        yield _task("trusts the exit code")
        yield _task("takes nothing for a part")
        yield _task("broken grader")

    def verifier(self) -> FaultyVerifier:
        return FaultyVerifier()


class FaultyVerifier:
    environment: ClassVar[Literal["none", "reuse", "fresh"]] = "fresh"

    def __init__(self) -> None:
        self._sound = HumanEval(HumanEvalParams(python=sys.executable)).verifier()
        self._flips = False

    async def verify(self, task: Task, outcome: Outcome, session: Session | None) -> Verdict | bool:
        assert session is not None
        answer = outcome.answer
        match task.id:
            case "flaky grader":
                self._flips = not self._flips
                return self._flips and answer == task.reference
            case "passes everything":
                return True
            case "trusts the exit code":
                program = f"{answer or ''}\n{task.hidden['test']}\ncheck(double)\n"
                # By standard input: where sessions are not confined, a command line can be read from another.
                return (await session.exec([sys.executable, "-"], stdin=program.encode())).exit_code == 0
            case "takes nothing for a part":
                return answer is not None and answer in (task.reference or "")
            case "broken grader":
                raise VerifierError("the grader is broken")
            case _:
                return await self._sound.verify(task, outcome, session)
