"""Forward one plain HTTP request and its response, bodies streamed."""

from __future__ import annotations

from collections.abc import Iterable

import anyio
import h11
from anyio.abc import ByteStream

from .http import ClientConnection, HttpConnection, Target

_HOP_BY_HOP = frozenset(
    b"connection expect host keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"upgrade".split()
)
"""Headers that are for the next machine only (RFC 9110 section 7.6.1), and the host, which the URL tells."""


async def forward(
    client: ClientConnection, request: h11.Request, target: Target, upstream: ByteStream
) -> bool:
    """Forward a request to a connected server; return whether the client may send another one."""
    server = HttpConnection(upstream, h11.CLIENT)
    headers = [(b"Host", target.authority.encode()), (b"Connection", b"close"), *_end_to_end(request.headers)]
    await server.send(h11.Request(method=request.method, target=target.path, headers=headers))
    async with anyio.create_task_group() as both:
        both.start_soon(_forward_body, client, server)
        await _forward_response(client, server)
        both.cancel_scope.cancel()
    if client.http.our_state is not h11.DONE or client.http.their_state is not h11.DONE:
        return False  # the server answered before it had the whole body, or the client wants to close
    client.http.start_next_cycle()
    return True


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    pairs = [(bytes(name), bytes(value)) for name, value in headers]
    named = {
        word.strip().lower() for name, value in pairs if name == b"connection" for word in value.split(b",")
    }
    return [(name, value) for name, value in pairs if name not in _HOP_BY_HOP and name not in named]


async def _forward_body(client: ClientConnection, server: HttpConnection) -> None:
    while isinstance(event := await client.next_event(), h11.Data):
        await server.send(h11.Data(data=event.data))
    if isinstance(event, h11.EndOfMessage):
        await server.send(h11.EndOfMessage())


async def _forward_response(client: ClientConnection, server: HttpConnection) -> None:
    while isinstance(event := await server.next_event(), h11.InformationalResponse):
        pass  # they are for us: the client got its own
    if not isinstance(event, h11.Response):
        await client.answer(502, "the server closed the connection without an answer")
        return
    await client.send(
        h11.Response(status_code=event.status_code, reason=event.reason, headers=_end_to_end(event.headers))
    )
    while isinstance(data := await server.next_event(), h11.Data):
        await client.send(h11.Data(data=data.data))
    if isinstance(data, h11.EndOfMessage):
        await client.send(h11.EndOfMessage())
