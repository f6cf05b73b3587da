"""What every API protocol has in common: how a call is prepared, and what comes back from one try."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ..errors import ModelError
from ..protocols import Message, Reply, Tool
from ..records import Usage
from .endpoint import Endpoint

_QUOTE_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one try cost, and the reply or the reason why there is none."""

    usage: Usage
    result: Reply | ModelError


def answer(usage: Usage, result: Reply | ModelError) -> Answer:
    """Say what a try came to, when its tokens are known."""
    if isinstance(result, ModelError):
        usage = msgspec.structs.replace(usage, failed_calls=1)
    return Answer(usage=usage, result=result)


FAILED_CALL = Usage(calls=1, failed_calls=1)
"""A try that brought nothing and whose tokens nobody told."""

Try = Callable[[], Awaitable[Answer]]
"""One try of a prepared call; may be called again."""

Prepare = Callable[[Sequence[Message], Sequence[Tool]], Try]
"""Do once what all tries of a call have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """
    Whom an error text speaks of.

    Args:
        host: Host and port of the endpoint; the rest of its URL may hold secrets.
        secrets: What must never show up in an error text.
    """

    host: str
    secrets: Sequence[str] = ()

    def quote(self, text: str) -> str:
        """Return what somebody else said, on one line, shortened and without secrets."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        text = " ".join(text.split())
        return text if len(text) <= _QUOTE_CHARS else text[:_QUOTE_CHARS] + "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiProtocol:
    """
    An HTTP API for chat models, as pure functions.

    Args:
        path: Appended to the base URL.
        version: Put between the two, unless the base URL ends in a version such as ``/v1``.
        reserved: The parameters that users may not give: the conversation.
        headers: Builds the headers of every request from the key.
        encode: Builds a request body.
        decode: Reads the body of a reply with a good status.
    """

    id: str
    path: str
    version: str = ""
    reserved: str = "messages"
    headers: Callable[[str], Mapping[str, str]]
    encode: Callable[[Endpoint, Sequence[Message], Sequence[Tool]], bytes]
    decode: Callable[[bytes, Source], Answer]
