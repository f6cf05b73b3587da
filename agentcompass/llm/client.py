"""The model client: typed calls to an endpoint, metered one by one, retried where that can help."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from importlib import import_module

import anyio
from anyio import to_thread

from ..clock import Clock, SystemClock
from ..errors import ModelError, ModelUnavailableError, UnknownComponentError
from ..protocols import Message, Reply, Tool
from ..records import NO_USAGE, Usage
from .anthropic import ANTHROPIC
from .endpoint import Endpoint
from .openai_chat import OPENAI_CHAT
from .openai_responses import OPENAI_RESPONSES
from .retry import Pacing
from .scripted import open_scripted
from .wire import FAILED_CALL, Answer, Prepare, Try

_HTTP_PROTOCOLS = {protocol.id: protocol for protocol in (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC)}
PROTOCOL_IDS = frozenset({"scripted", *_HTTP_PROTOCOLS})
"""The API protocols that there are."""


class ModelClient:
    """Calls one endpoint; made by ``open_model``."""

    def __init__(self, endpoint: Endpoint, prepare: Prepare, pacing: Pacing) -> None:
        self._endpoint = endpoint
        self._prepare = prepare
        self._pacing = pacing

    @property
    def id(self) -> str:
        """The model's id, as the endpoint knows it."""
        return self._endpoint.model_id

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        on_call: Callable[[Usage], None],
        on_pause: Callable[[bool], None] = lambda _pausing: None,
    ) -> Reply:
        """
        Ask for one completion; transient failures are retried.

        Args:
            on_call: Told what each try cost, also that of tries which failed, brought a malformed reply
                or were cancelled.
            on_pause: Told True when it pauses before another try, and False when the pause is over.

        Raises:
            ModelError: One of its subclasses, when the retries are used up or none can help.
        """
        spent = NO_USAGE
        ask = self._prepare(messages, tools)

        def meter(usage: Usage) -> None:
            nonlocal spent
            spent += usage
            on_call(usage)

        reply = await self._pacing.run(lambda: self._try(ask, meter), on_pause=on_pause)
        return replace(reply, usage=spent)

    async def _try(self, ask: Try, meter: Callable[[Usage], None]) -> Reply:
        answer: Answer | None = None
        try:
            with anyio.move_on_after(self._endpoint.total_timeout_seconds):
                answer = await ask()
        finally:
            # Before anybody looks whether the reply is any good: it was billed either way.
            meter(self._endpoint.priced(answer.usage if answer else FAILED_CALL))
        if answer is None:
            seconds = self._endpoint.total_timeout_seconds
            raise ModelUnavailableError(f"no complete reply from {self.id!r} within {seconds:g} s")
        match answer.result:
            case ModelError() as failure:
                raise failure
            case reply:
                return reply


def open_model(
    endpoint: Endpoint, *, clock: Clock | None = None, rng: random.Random | None = None
) -> AbstractAsyncContextManager[ModelClient]:
    """
    Open a model for the life of a run; its connections close with the context.

    Args:
        clock: Paces the retries; the system's by default.
        rng: Spreads the retries.

    Raises:
        ConfigError: The endpoint is described wrong; nothing was sent.
    """
    return _open(endpoint, clock or SystemClock(), rng or random.Random())  # noqa: S311  # not for secrets


@asynccontextmanager
async def _open(endpoint: Endpoint, clock: Clock, rng: random.Random) -> AsyncIterator[ModelClient]:
    pacing = Pacing(max_retries=endpoint.max_retries, clock=clock, rng=rng)
    async with await _calls(endpoint, clock) as prepare:
        yield ModelClient(endpoint, prepare, pacing)


async def _calls(endpoint: Endpoint, clock: Clock) -> AbstractAsyncContextManager[Prepare]:
    if endpoint.protocol == "scripted":
        return open_scripted(endpoint, clock=clock)
    protocol = _HTTP_PROTOCOLS.get(endpoint.protocol)
    if protocol is None:
        raise UnknownComponentError("model API protocol", endpoint.protocol, PROTOCOL_IDS)
    # An HTTP stack takes longer to import than an event loop may stand still.
    await to_thread.run_sync(import_module, f"{__package__}.http_calls")
    from .http_calls import open_http

    return open_http(endpoint, protocol, clock=clock)
