"""
The ``scripted`` protocol: answers from a file or a function, without a network.

A script is a JSONL file of ``ScriptLine``. For a call, the lines whose ``match`` is contained in the last
user message are used (the longest match wins), else those without ``match``. Among them the line of the
conversation's turn answers, and the last one goes on answering. A line with ``fault`` fails one try of the
turn whose answer follows it. All this depends on nothing but the conversation, so that concurrent trials
do not disturb each other.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import Annotated, Literal

import anyio
import msgspec
from anyio import CapacityLimiter, to_thread

from ..clock import Clock
from ..errors import (
    ConfigError,
    ModelAuthError,
    ModelError,
    ModelReplyError,
    ModelRequestError,
    ModelUnavailableError,
    RateLimitedError,
)
from ..protocols import Message, Reply, StopReason, Tool
from ..records import NO_USAGE, ToolCall, Usage
from .endpoint import Endpoint
from .wire import FAILED_CALL, Answer, Prepare, Try

Fault = Literal["rate_limit", "unavailable", "auth", "malformed", "hang"]
ScriptFunction = Callable[[Sequence[Message]], str | Reply | Awaitable[str | Reply]]
"""Answers a conversation; may raise a ``ModelError``, and may block unless it is async."""

_MAX_THREADS = 40
_ERRORS: dict[Fault, type[ModelError]] = {
    "rate_limit": RateLimitedError,
    "unavailable": ModelUnavailableError,
    "auth": ModelAuthError,
    "malformed": ModelReplyError,
}


class ScriptedCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call; ``arguments`` may be any text, valid JSON or not."""

    name: str
    arguments: str = "{}"
    id: str = ""


class ScriptLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a script."""

    match: str = ""
    """Text that the last user message must contain; empty for any."""
    turn: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The 1-based turn it answers; by default the one after the previous line with the same ``match``."""
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    stop_reason: StopReason | None = None
    """By default ``tool_calls`` if there are any, else ``stop``."""
    usage: Usage = NO_USAGE
    latency_seconds: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """By default the ``latency_seconds`` of the model's params, else none."""
    fault: Fault | None = None


Turns = dict[int, list[ScriptLine]]
"""By turn: what its first, second ... try gets; the last one repeats."""


@asynccontextmanager
async def open_scripted(endpoint: Endpoint, *, clock: Clock) -> AsyncIterator[Prepare]:
    """
    Make ``params["script"]``, a path or a function, answer the calls.

    Raises:
        ConfigError: There is no script, or it cannot be read.
    """
    script = endpoint.params.get("script")
    latency_seconds = _latency_seconds(endpoint)
    if callable(script):
        yield _FunctionCalls(script, latency_seconds=latency_seconds, clock=clock).prepare
    elif isinstance(script, str | Path):
        turns = await to_thread.run_sync(_read_script, Path(script))
        yield _FileCalls(turns, name=str(script), latency_seconds=latency_seconds, clock=clock).prepare
    else:
        raise ConfigError(
            "a scripted model needs params with 'script': the path of a JSONL file or a function"
        )


def _latency_seconds(endpoint: Endpoint) -> float:
    value = endpoint.params.get("latency_seconds", 0.0)
    if not isinstance(value, int | float) or not value >= 0:
        raise ConfigError(f"latency_seconds of a scripted model must be a number from 0, not {value!r}")
    return float(value)


# --- a function -----------------------------------------------------------------------------------


class _FunctionCalls:
    def __init__(self, function: ScriptFunction, *, latency_seconds: float, clock: Clock) -> None:
        self._function = function
        self._is_async = _is_async(function)
        self._latency_seconds = latency_seconds
        self._clock = clock
        self._threads = CapacityLimiter(_MAX_THREADS)

    def prepare(self, messages: Sequence[Message], _tools: Sequence[Tool]) -> Try:
        async def one_try() -> Answer:
            await self._clock.sleep(self._latency_seconds)
            try:
                said = await self._ask(messages)
            except ModelError as error:
                return Answer(usage=FAILED_CALL, result=error)
            return _answer(Reply(text=said) if isinstance(said, str) else said)

        return one_try

    async def _ask(self, messages: Sequence[Message]) -> str | Reply:
        if self._is_async:
            said = self._function(messages)
        else:  # in a tuple, because trio's threads refuse to hand over an awaitable
            (said,) = await to_thread.run_sync(
                lambda: (self._function(messages),), abandon_on_cancel=True, limiter=self._threads
            )
        return await said if isinstance(said, Awaitable) else said


def _is_async(function: ScriptFunction) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _answer(reply: Reply) -> Answer:
    return Answer(usage=msgspec.structs.replace(reply.usage, calls=1, failed_calls=0), result=reply)


# --- a file ---------------------------------------------------------------------------------------


class _FileCalls:
    def __init__(
        self, turns_by_match: dict[str, Turns], *, name: str, latency_seconds: float, clock: Clock
    ) -> None:
        self._turns_by_match = turns_by_match
        self._name = name
        self._latency_seconds = latency_seconds
        self._clock = clock

    def prepare(self, messages: Sequence[Message], _tools: Sequence[Tool]) -> Try:
        lines = self._find(messages)
        tries = chain(lines, repeat(lines[-1]))

        async def one_try() -> Answer:
            return await self._serve(next(tries))

        return one_try

    def _find(self, messages: Sequence[Message]) -> list[ScriptLine]:
        asked = next((message.content for message in reversed(messages) if message.role == "user"), "")
        turn = 1 + sum(message.role == "assistant" for message in messages)
        for match, turns in self._turns_by_match.items():
            if match in asked and (fitting := [number for number in turns if number <= turn]):
                return turns[max(fitting)]
        raise ModelRequestError(f"no line of {self._name} fits turn {turn} of {asked[:100]!r}")

    async def _serve(self, line: ScriptLine) -> Answer:
        latency = line.latency_seconds
        await self._clock.sleep(self._latency_seconds if latency is None else latency)
        match line.fault:
            case None:
                return _answer(_reply(line))
            case "hang":
                await anyio.sleep_forever()
                raise AssertionError  # sleep_forever() only ends by cancellation
            case fault:
                usage = msgspec.structs.replace(line.usage, calls=1, failed_calls=1)
                return Answer(usage=usage, result=_ERRORS[fault](f"{self._name} says {fault}"))


def _reply(line: ScriptLine) -> Reply:
    calls = tuple(
        ToolCall(id=call.id or f"call_{index}", name=call.name, arguments=call.arguments)
        for index, call in enumerate(line.tool_calls)
    )
    return Reply(
        text=line.text,
        reasoning=line.reasoning,
        tool_calls=calls,
        stop_reason=line.stop_reason or ("tool_calls" if calls else "stop"),
        usage=line.usage,
    )


def _read_script(path: Path) -> dict[str, Turns]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the script of the model: {error}") from error
    lines_by_match: defaultdict[str, list[ScriptLine]] = defaultdict(list)
    for number, text in enumerate(content.splitlines(), 1):
        if text.strip():
            line = _read_line(text, f"{path}, line {number}")
            lines_by_match[line.match].append(line)
    if not lines_by_match:
        raise ConfigError(f"the script {path} has no lines")
    longest_first = sorted(lines_by_match, key=len, reverse=True)
    return {match: _turns(lines_by_match[match]) for match in longest_first}


def _read_line(text: bytes, place: str) -> ScriptLine:
    try:
        return msgspec.json.decode(text, type=ScriptLine)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{place}: {error}") from error


def _turns(lines: Sequence[ScriptLine]) -> Turns:
    turns: defaultdict[int, list[ScriptLine]] = defaultdict(list)
    turn = 1
    for line in lines:
        turn = line.turn or turn
        turns[turn].append(line)
        if line.fault is None:
            turn += 1
    return dict(turns)
