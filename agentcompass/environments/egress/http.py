"""The client's side of a proxy connection in HTTP/1.1 (RFC 9112), and what its requests are for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
import h11
from anyio.abc import ByteStream

_MAX_HEAD_BYTES = 64 * 1024
_CHUNK_BYTES = 64 * 1024
_HEAD_SECONDS = 30.0
_IDLE_SECONDS = 300.0
_DISCARD_SECONDS = 5.0


class BadRequestError(Exception):
    """The request is not one that a proxy can serve."""


@dataclass(frozen=True, slots=True)
class Target:
    """
    Where a request is to go.

    Args:
        path: With the query; empty for a tunnel.
    """

    host: str
    port: int
    path: str

    @classmethod
    def of(cls, request: h11.Request) -> Target:
        """
        Read the target of a request.

        Raises:
            BadRequestError: It is none that a proxy is asked for.
        """
        text = request.target.decode("ascii", "replace")
        return cls._of_tunnel(text) if request.method == b"CONNECT" else cls._of_url(text)

    @classmethod
    def _of_tunnel(cls, text: str) -> Target:
        host, _, port = text.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise BadRequestError(f"{text!r} is no HOST:PORT to connect to")
        return cls(host, int(port), "")

    @classmethod
    def _of_url(cls, text: str) -> Target:
        try:
            url = urlsplit(text)
            host, port = url.hostname, url.port or 80
        except ValueError as error:
            raise BadRequestError(f"{text!r} is no URL: {error}") from error
        if url.scheme != "http" or not host:
            raise BadRequestError(f"{text!r} is no http:// URL; https goes through CONNECT")
        if url.username is not None or url.password is not None:
            raise BadRequestError("the URL names a user, which could pass for a host")
        return cls(host, port, (url.path or "/") + (f"?{url.query}" if url.query else ""))

    @property
    def authority(self) -> str:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 80 else f"{host}:{self.port}"

    def __str__(self) -> str:
        bare = self.host.strip("[]")
        return f"[{bare}]:{self.port}" if ":" in bare else f"{bare}:{self.port}"


class HttpConnection:
    """One side of an HTTP connection over a stream."""

    def __init__(self, stream: ByteStream, role: type[h11.CLIENT | h11.SERVER]) -> None:
        self.stream = stream
        self.http = h11.Connection(role, max_incomplete_event_size=_MAX_HEAD_BYTES)

    async def next_event(self, *, seconds: float = _IDLE_SECONDS) -> h11.Event | type[h11.PAUSED]:
        """Return what the other side sends next."""
        with anyio.fail_after(seconds):
            while (event := self.http.next_event()) is h11.NEED_DATA:
                if self.http.they_are_waiting_for_100_continue:
                    await self.send(h11.InformationalResponse(status_code=100, headers=[]))
                try:
                    self.http.receive_data(await self.stream.receive(_CHUNK_BYTES))
                except anyio.EndOfStream:
                    self.http.receive_data(b"")
        return event  # type: ignore[return-value]  # NEED_DATA has been dealt with

    async def send(self, event: h11.Event) -> None:
        """Send an event."""
        data = self.http.send(event)
        if data:
            with anyio.fail_after(_IDLE_SECONDS):
                await self.stream.send(data)


class ClientConnection(HttpConnection):
    """The connection of a program in the session."""

    def __init__(self, stream: ByteStream) -> None:
        super().__init__(stream, h11.SERVER)
        self._is_first = True

    async def next_request(self) -> h11.Request | None:
        """Return the next request; None when there will be none."""
        seconds = _HEAD_SECONDS if self._is_first else _IDLE_SECONDS
        self._is_first = False
        event = await self.next_event(seconds=seconds)
        return event if isinstance(event, h11.Request) else None

    async def answer(self, status: int, text: str) -> None:
        """Answer with a line of text, and end the connection."""
        body = f"{text}\n".encode("utf-8", "replace")
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        if status == 407:
            headers.append(("Proxy-Authenticate", 'Basic realm="agentcompass"'))
        await self.send(
            h11.Response(status_code=status, headers=headers, reason=text[:60].encode("ascii", "replace"))
        )
        await self.send(h11.Data(data=body))
        await self.send(h11.EndOfMessage())
        await self.finish()

    async def finish(self) -> None:
        """Say that no more will come, and take what the client still sends: closing on it would reset all."""
        with suppress(anyio.EndOfStream), anyio.move_on_after(_DISCARD_SECONDS):
            await self.stream.send_eof()
            while True:
                await self.stream.receive(_CHUNK_BYTES)
