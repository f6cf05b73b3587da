"""Benchmarks with graders of every temper; importable, since graders run in worker processes."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import anyio
from pydantic import BaseModel, ConfigDict

from agentcompass.errors import VerifierError
from agentcompass.protocols import ImageBuild, Outcome, Session, Task, Verdict

VALUES: dict[str, Any] = {
    "nan": math.nan,
    "inf": math.inf,
    "text nan": "NaN",
    "none": None,
    "text": "0.5",
    "too large": 1.5,
    "nan metric": Verdict(score=1.0, metrics={"a": math.nan}),
    "true": True,
    "half": 0.5,
    "one": 1,
}


class JudgeParams(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    value: str = "true"


class OneTask:
    """One task, judged as the subclass-free classes below say."""

    def __init__(self, params: JudgeParams) -> None:
        self.params = params

    def load(self, data_dir: Path) -> Iterator[Task]:
        yield Task(id="one", prompt="p", reference="CANARY-REFERENCE", hidden={"tests": "CANARY-TESTS"})

    def verifier(self) -> ValueGrader:
        return ValueGrader(self.params.value)


class ValueGrader:
    def __init__(self, value: str) -> None:
        self._value = value

    def grade(self, task: Task, outcome: Outcome) -> Any:
        return VALUES[self._value]


class Catastrophic(OneTask):
    def verifier(self) -> Any:
        return CatastrophicGrader()


class CatastrophicGrader:
    def grade(self, task: Task, outcome: Outcome) -> bool:
        return re.search("(a+)+$", "a" * 60 + "b") is not None


class Crashing(OneTask):
    def verifier(self) -> Any:
        return CrashingGrader()


class CrashingGrader:
    def grade(self, task: Task, outcome: Outcome) -> bool:
        raise FileNotFoundError("reward.txt")


class SlowLoading(OneTask):
    def load(self, data_dir: Path) -> Iterator[Task]:
        time.sleep(60)
        return super().load(data_dir)


class InSession(OneTask):
    def verifier(self) -> Any:
        return InSessionVerifier()


class InSessionVerifier:
    environment: ClassVar[Literal["none", "reuse", "fresh"]] = "reuse"

    async def verify(self, task: Task, outcome: Outcome, session: Session | None) -> bool:
        assert session is not None
        return await session.read("result.txt") == b"done"


class FreshSession(OneTask):
    def verifier(self) -> Any:
        return FreshSessionVerifier()


class FreshSessionVerifier:
    environment: ClassVar[Literal["none", "reuse", "fresh"]] = "fresh"

    async def verify(self, task: Task, outcome: Outcome, session: Session | None) -> bool:
        return session is not None


class Built(FreshSession):
    """Its image is built from the directory that ``value`` names."""

    def load(self, data_dir: Path) -> Iterator[Task]:
        yield Task(id="one", prompt="p", build=ImageBuild(context=Path(self.params.value)))


class Hanging(OneTask):
    def verifier(self) -> Any:
        return HangingVerifier()


class HangingVerifier:
    environment: ClassVar[Literal["none", "reuse", "fresh"]] = "none"

    async def verify(self, task: Task, outcome: Outcome, session: Session | None) -> bool:
        await anyio.sleep_forever()
        return True


class Examined(OneTask):
    """The agent's work is examined in a session, then graded; ``value`` is reuse or fresh."""

    def verifier(self) -> Any:
        return ReusingExaminer() if self.params.value == "reuse" else FreshExaminer()

    async def prepare(self, task: Task, session: Session) -> None:
        await session.write("prepared.txt", b"yes")

    async def fetch(self, task: Task, outcome: Outcome | None, session: Session) -> Outcome | None:
        prepared = await session.read("prepared.txt")
        return Outcome(answer=outcome.answer if outcome else None, artifacts={"fetched": prepared})


class FreshExaminer:
    environment: ClassVar[Literal["reuse", "fresh"]] = "fresh"

    def needs_session(self, task: Task, outcome: Outcome) -> bool:
        return bool(outcome.answer)

    async def examine(self, task: Task, outcome: Outcome, session: Session) -> Outcome:
        if outcome.answer == "break the examiner":
            raise VerifierError("the tests cannot be run")
        if outcome.answer == "hang the examiner":
            await anyio.sleep_forever()
        evidence = (outcome.answer or "").encode()
        return Outcome(answer=outcome.answer, artifacts={**outcome.artifacts, "evidence": evidence})

    def grade(self, task: Task, outcome: Outcome) -> Verdict:
        evidence = outcome.artifacts.get("evidence", b"")
        if evidence == b"break the grader":
            raise VerifierError("the log cannot be read")
        return Verdict.passed(evidence == b"right", pid=os.getpid())


class ReusingExaminer(FreshExaminer):
    environment: ClassVar[Literal["reuse", "fresh"]] = "reuse"
