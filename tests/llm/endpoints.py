"""What the tests of the model client share: a clock that does not wait, short ways to a mock endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio.lowlevel

from agentcompass.llm.client import ModelClient, open_model
from agentcompass.llm.endpoint import Endpoint
from agentcompass.llm.mock_bodies import chat_completion
from agentcompass.llm.mock_server import Handler, MockReply, MockRequest, MockServer, serve
from agentcompass.protocols import Message, Reply, Tool
from agentcompass.records import NO_USAGE, Usage

WALL_SECONDS = 1_700_000_000.0
"""When the fake clock starts: 2023-11-14 22:13:20 UTC."""
HELLO = (Message(role="user", content="hello"),)


class FakeClock:
    """Sleeping takes no time, but is noted and moves the clock."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return WALL_SECONDS + self.seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds
        await anyio.lowlevel.checkpoint()


@dataclass
class Calls:
    """What ``on_call`` was told."""

    usages: list[Usage] = field(default_factory=list)

    @property
    def total(self) -> Usage:
        return sum(self.usages, NO_USAGE)


@dataclass
class Setup:
    """An open model, its mock endpoint and its clock."""

    model: ModelClient
    server: MockServer
    clock: FakeClock
    calls: Calls = field(default_factory=Calls)

    async def ask(self, messages: Sequence[Message] = HELLO, tools: Sequence[Tool] = ()) -> Reply:
        return await self.model.complete(messages, tools=tools, on_call=self.calls.usages.append)


@asynccontextmanager
async def open_setup(
    handler: Handler, *, path: str = "", root: str = "/v1", **fields: Any
) -> AsyncIterator[Setup]:
    """Start an endpoint and open a model on it."""
    clock = FakeClock()
    async with serve(handler) as server:
        settings = {
            "model_id": "mock-1",
            "protocol": "openai-chat",
            "base_url": server.url.removesuffix("/v1") + root + path,
        }
        endpoint = Endpoint(**(settings | fields))
        async with open_model(endpoint, clock=clock, rng=Random(1)) as model:
            yield Setup(model, server, clock)


def always(*, body: object = None, **fields: Any) -> Handler:
    """Answer every request alike."""
    reply = MockReply(body=chat_completion() if body is None else body, **fields)
    return lambda _request: reply


def one_by_one(replies: Iterable[MockReply]) -> Callable[[MockRequest], MockReply]:
    """Answer the requests with these replies in order, and then well."""
    waiting = iter(replies)
    return lambda _request: next(waiting, MockReply(body=chat_completion()))


def with_message(message: object, finish_reason: object = "stop") -> dict[str, Any]:
    """Build a reply body round a message that may be malformed."""
    body = chat_completion()
    body["choices"] = [{"index": 0, "message": message, "finish_reason": finish_reason}]
    return body
