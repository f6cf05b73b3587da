"""A trial for harnesses that are tested without the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentcompass.protocols import Message, Model, Reply, Session, TaskView, Tool
from agentcompass.records import Step


class ListTrajectory:
    """Keeps the steps in a list."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def add(self, step: Step) -> None:
        self.steps.append(step)


class OneReplyModel:
    """Gives the same reply to everything and remembers what it was asked."""

    id = "one-reply"

    def __init__(self, reply: Reply) -> None:
        self.asked: list[Sequence[Message]] = []
        self._reply = reply

    async def complete(self, messages: Sequence[Message], *, tools: Sequence[Tool] = ()) -> Reply:
        self.asked.append(messages)
        return self._reply


@dataclass
class PlainTrial:
    """A trial made of what a test puts into it."""

    prompt: str = "the task"
    reference: str | None = None
    hidden: Mapping[str, Any] = field(default_factory=dict)
    given_session: Session | None = None
    given_model: Model | None = None
    attempt: int = 1
    seed: int = 0
    trajectory: ListTrajectory = field(default_factory=ListTrajectory)

    @property
    def task(self) -> TaskView:
        return TaskView(id="t", prompt=self.prompt)

    @property
    def session(self) -> Session:
        assert self.given_session is not None
        return self.given_session

    @property
    def model(self) -> Model:
        assert self.given_model is not None
        return self.given_model
