"""The chat harness: ask the model once and hand in its reply."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from ..protocols import Message, Outcome, Trial


class ChatParams(BaseModel):
    """How the model is asked."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    system_prompt: str = ""
    """Sent before the task's prompt as a system message; empty for none."""


class ChatHarness:
    """One model call per attempt, no tools."""

    needs_session: ClassVar[bool] = False
    needs_model: ClassVar[bool] = True
    sees_reference: ClassVar[bool] = False
    max_model_calls: ClassVar[int] = 1

    def __init__(self, params: ChatParams) -> None:
        self._system_prompt = params.system_prompt

    async def run(self, trial: Trial) -> Outcome:
        """Hand in the text of the model's reply; reasoning that the endpoint gives apart is no part of it."""
        messages = [Message(role="user", content=trial.task.prompt)]
        if self._system_prompt:
            messages.insert(0, Message(role="system", content=self._system_prompt))
        reply = await trial.model.complete(messages)
        return Outcome(answer=reply.text, stop_reason=reply.stop_reason)
