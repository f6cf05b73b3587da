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
    """Forward a request to a connected server; return whether the client can send another one."""
    server = HttpConnection(upstream, h11.CLIENT)
    headers = [(b"Host", target.authority.encode()), (b"Connection", b"close"), *_end_to_end(request.headers)]
    head = h11.Request(method=request.method, target=target.path, headers=headers)
    async with anyio.create_task_group() as both:
        both.start_soon(_forward_request, client, server, head)
        response = await _response(server)
        if response is not None:
            await _forward_response(client, server, response)
        both.cancel_scope.cancel()
    if response is None:
        await client.answer(502, f"{target} was connected to but gave no answer in HTTP")
        return False
    if client.http.our_state is not h11.DONE or client.http.their_state is not h11.DONE:
        await client.finish()  # the server did not wait for the whole body, or the client wants to close
        return False
    client.http.start_next_cycle()
    return True


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    pairs = [(bytes(name), bytes(value)) for name, value in headers]
    named = {
        word.strip().lower() for name, value in pairs if name == b"connection" for word in value.split(b",")
    }
    if any(name == b"transfer-encoding" for name, _ in pairs):
        named.add(b"content-length")  # the server might go by that one
    return [(name, value) for name, value in pairs if name not in _HOP_BY_HOP and name not in named]


async def _forward_request(client: ClientConnection, server: HttpConnection, head: h11.Request) -> None:
    event: h11.Event = head
    while True:
        try:
            await server.send(event)
        except anyio.BrokenResourceError:
            return  # it may have answered already
        if isinstance(event, h11.EndOfMessage):
            return
        received = await client.next_event()
        event = h11.Data(data=received.data) if isinstance(received, h11.Data) else h11.EndOfMessage()


async def _response(server: HttpConnection) -> h11.Response | None:
    """Wait for the head of the response; None if there will be none."""
    try:
        while isinstance(event := await server.next_event(), h11.InformationalResponse):
            pass  # they are for us: the client got its own
    except (h11.RemoteProtocolError, anyio.BrokenResourceError, TimeoutError):
        return None
    return event if isinstance(event, h11.Response) else None


async def _forward_response(client: ClientConnection, server: HttpConnection, response: h11.Response) -> None:
    headers = _end_to_end(response.headers)
    await client.send(h11.Response(status_code=response.status_code, reason=response.reason, headers=headers))
    while isinstance(data := await server.next_event(), h11.Data):
        await client.send(h11.Data(data=data.data))
    if isinstance(data, h11.EndOfMessage):
        await client.send(h11.EndOfMessage())
