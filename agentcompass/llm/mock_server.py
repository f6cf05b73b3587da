"""
A small endpoint for tests, measurements and examples; it speaks our API protocols and can misbehave.

In a process: ``async with serve(handler) as server``. As its own process, printing its URL:
``python -m agentcompass.llm.mock_server --port 0 --answer TEXT --latency-seconds 0.2``.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal

import anyio
import msgspec
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from .mock_bodies import body_for

Behaviour = Literal["reply", "silence", "headers_then_silence", "drip", "cut_body", "disconnect"]
"""
Whether the reply is sent as it is, not at all, without its body, byte by byte, or not to its end;
``silence`` and ``headers_then_silence`` last until the client hangs up.
"""

_MAX_HEADER_BYTES = 65_536
_KEPT_REQUESTS = 10_000
_DRIP_SECONDS = 0.005
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


@dataclass(frozen=True, slots=True, kw_only=True)
class MockRequest:
    """A request as received; ``connection`` counts the connections from 1."""

    path: str
    headers: Mapping[str, str]
    body: Any
    connection: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MockReply:
    """
    What to answer.

    Args:
        body: Bytes are sent as they are, anything else as JSON.
        latency_seconds: How long to wait first.
    """

    body: object = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    latency_seconds: float = 0.0
    behaviour: Behaviour = "reply"


Handler = Callable[[MockRequest], MockReply | Awaitable[MockReply]]


class MockServer:
    """
    A running mock endpoint.

    Args:
        url: What to give as the base URL.
    """

    def __init__(self, handler: Handler, url: str) -> None:
        self.url = url
        self.requests: deque[MockRequest] = deque(maxlen=_KEPT_REQUESTS)
        self.connections = 0
        """How many there have been."""
        self.open_connections = 0
        self._handler = handler

    async def handle(self, stream: SocketStream) -> None:
        """Serve one connection until either side ends it."""
        self.connections += 1
        self.open_connections += 1
        try:
            async with stream:
                await self._serve_requests(stream, self.connections)
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
            pass  # the client went away
        finally:
            self.open_connections -= 1

    async def _serve_requests(self, stream: ByteStream, connection: int) -> None:
        reader = BufferedByteReceiveStream(stream)
        alive = True
        while alive:
            request = await _read_request(reader, connection)
            self.requests.append(request)
            reply = self._handler(request)
            if inspect.isawaitable(reply):
                reply = await reply
            alive = await _send_reply(stream, reply)


@asynccontextmanager
async def serve(handler: Handler, *, port: int = 0) -> AsyncIterator[MockServer]:
    """Listen on the loopback interface; port 0 takes a free one."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610  # not Django's extra()
    server = MockServer(handler, f"http://127.0.0.1:{port}/v1")
    async with listener, anyio.create_task_group() as connections:
        connections.start_soon(listener.serve, server.handle)
        yield server
        connections.cancel_scope.cancel()


async def _read_request(reader: BufferedByteReceiveStream, connection: int) -> MockRequest:
    head = (await reader.receive_until(b"\r\n\r\n", _MAX_HEADER_BYTES)).decode("latin-1")
    request_line, *lines = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    content = await reader.receive_exactly(int(headers.get("content-length", "0")))
    body = msgspec.json.decode(content) if content else None
    return MockRequest(path=request_line.split(" ")[1], headers=headers, body=body, connection=connection)


async def _send_reply(stream: ByteStream, reply: MockReply) -> bool:
    """Send a reply; tell whether the connection can be used again."""
    if reply.latency_seconds:
        await anyio.sleep(reply.latency_seconds)
    body = reply.body if isinstance(reply.body, bytes) else msgspec.json.encode(reply.body)
    # An empty body would be complete with its headers.
    head = _head(reply, len(body) or int(reply.behaviour == "headers_then_silence"))
    match reply.behaviour:
        case "reply":
            await stream.send(head + body)
            return True
        case "drip":
            await stream.send(head)
            for byte in body:
                await anyio.sleep(_DRIP_SECONDS)
                await stream.send(bytes([byte]))
            return True
        case "cut_body":
            await stream.send(head + body[: len(body) // 2])
        case "headers_then_silence":
            await stream.send(head)
            await stream.receive()
        case "silence":
            await stream.receive()
        case "disconnect":
            pass
    return False


def _head(reply: MockReply, length: int) -> bytes:
    headers = {"Content-Type": "application/json", "Content-Length": str(length), **reply.headers}
    lines = [f"HTTP/1.1 {reply.status} {_PHRASES.get(reply.status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _serve_forever(port: int, answer: str, latency_seconds: float) -> None:
    def handle(request: MockRequest) -> MockReply:
        return MockReply(body=body_for(request.path, answer), latency_seconds=latency_seconds)

    async with serve(handle, port=port) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


def main() -> None:
    """Serve one answer until stopped."""
    parser = argparse.ArgumentParser(prog="python -m agentcompass.llm.mock_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--answer", default="ok", help="the text of every reply")
    parser.add_argument("--latency-seconds", type=float, default=0.0, help="how long each reply takes")
    options = parser.parse_args()
    with suppress(KeyboardInterrupt):
        anyio.run(_serve_forever, options.port, options.answer, options.latency_seconds)


if __name__ == "__main__":
    main()
