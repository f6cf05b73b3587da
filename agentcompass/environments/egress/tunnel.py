"""Join a client to a server for a CONNECT request, provided that TLS is for the host that was asked for."""

from __future__ import annotations

import re

import anyio
import h11
from anyio.abc import ByteStream

from ...spec.network import literal_address, normal_host
from .http import ClientConnection, Target
from .tls import HANDSHAKE, MAX_HELLO_BYTES, HelloError, server_name

_LINE = rb"\s*[!#$%&'*+.^_`|~0-9A-Za-z-]+[ \t\v\f\r]"
_REQUEST = re.compile(_LINE + rb"[^\n]*HTTP/", re.IGNORECASE)
"""The first line of an HTTP request, as far as the most forgiving server would take it."""
_UNFINISHED_REQUEST = re.compile(rb"(?:%b[^\0\n]*|\s*[^\s\0-\x20\x7f-\xff]*)" % _LINE)
"""What may still become one."""
_CHUNK_BYTES = 64 * 1024
_HELLO_SECONDS = 30.0
_IDLE_SECONDS = 300.0
_SHOWN_CHARACTERS = 253


class HijackedTunnelError(Exception):
    """The tunnel was used for another host than the one that was checked."""


async def tunnel(client: ClientConnection, target: Target, upstream: ByteStream) -> None:
    """
    Relay both directions until both have ended, or nothing moves for some minutes.

    What begins like neither TLS nor HTTP is relayed as it is: the address has been checked. Plain HTTP has
    to go without a tunnel, because its requests can name any host that the server has.

    Raises:
        HijackedTunnelError: A TLS connection names another server, or there is plain HTTP.
    """
    await client.send(h11.Response(status_code=200, reason="Connection established", headers=[]))
    early, _ = client.http.trailing_data
    failure: HijackedTunnelError | None = None
    with anyio.move_on_after(_IDLE_SECONDS) as idle:
        async with anyio.create_task_group() as both:
            both.start_soon(_relay, upstream, client.stream, idle)
            try:
                first = await _first_bytes(client.stream, early)
                _check_first_bytes(first, target)
            except HijackedTunnelError as error:  # raised below: the task group would wrap it
                failure = error
                both.cancel_scope.cancel()
            else:
                await upstream.send(first)
                await _relay(client.stream, upstream, idle)
    if failure is not None:
        raise failure


async def _first_bytes(stream: ByteStream, early: bytes) -> bytes:
    """Receive what tells what this is: the whole client hello of TLS, else a line that could be a request."""
    data = early
    try:
        if not data:  # a server that speaks first may be waited for
            data = await stream.receive(_CHUNK_BYTES)
        with anyio.fail_after(_HELLO_SECONDS):
            while _is_undecided(data):
                if len(data) > MAX_HELLO_BYTES:
                    raise HijackedTunnelError("neither TLS nor a line of text")
                data += await stream.receive(_CHUNK_BYTES)
    except anyio.EndOfStream:
        pass
    return data


def _is_undecided(data: bytes) -> bool:
    if data[0] == HANDSHAKE:
        return _server_name(data) is None
    return _UNFINISHED_REQUEST.fullmatch(data) is not None


def _check_first_bytes(data: bytes, target: Target) -> None:
    if data and data[0] == HANDSHAKE:
        _check_hello(data, target)
    elif _REQUEST.match(data):
        raise HijackedTunnelError("plain HTTP in a tunnel")


def _server_name(data: bytes) -> str | None:
    try:
        return server_name(data)
    except HelloError as error:
        raise HijackedTunnelError(f"TLS: {error}") from error


def _check_hello(data: bytes, target: Target) -> None:
    named = _server_name(data)
    if named is None:
        raise HijackedTunnelError("TLS: incomplete client hello")
    host = normal_host(target.host)
    if named == "" and literal_address(host):
        return
    try:
        matches = normal_host(named) == host
    except ValueError:
        matches = False
    if not matches:
        raise HijackedTunnelError(f"TLS for {named[:_SHOWN_CHARACTERS]!r}")


async def _relay(source: ByteStream, sink: ByteStream, idle: anyio.CancelScope) -> None:
    """Copy until the source ends, then tell the sink."""
    try:
        while True:
            data = await source.receive(_CHUNK_BYTES)
            idle.deadline = anyio.current_time() + _IDLE_SECONDS
            await sink.send(data)
    except anyio.EndOfStream:
        await sink.send_eof()
