"""Join a client to a server for a CONNECT request, provided that TLS is for the host that was asked for."""

from __future__ import annotations

from ipaddress import ip_address

import anyio
import h11
from anyio.abc import ByteStream

from ...spec.network import normal_host
from .http import ClientConnection, Target
from .tls import HANDSHAKE, MAX_HELLO_BYTES, HelloError, server_name

_CHUNK_BYTES = 64 * 1024
_HELLO_SECONDS = 30.0
_IDLE_SECONDS = 300.0


class HijackedTunnelError(Exception):
    """The tunnel was used for another host than the one that was checked."""


async def tunnel(client: ClientConnection, target: Target, upstream: ByteStream) -> None:
    """
    Relay both directions until both have ended, or nothing moves for some minutes.

    What does not begin like TLS is relayed as it is: the address has been checked.

    Raises:
        HijackedTunnelError: A TLS connection names another server.
    """
    await client.send(h11.Response(status_code=200, reason="Connection established", headers=[]))
    early, _ = client.http.trailing_data
    failure: HijackedTunnelError | None = None
    with anyio.move_on_after(_IDLE_SECONDS) as idle:
        async with anyio.create_task_group() as both:
            both.start_soon(_relay, upstream, client.stream, idle)
            try:
                first = await _first_bytes(client.stream, early)
                _check_hello(first, target)
            except HijackedTunnelError as error:  # raised below: the task group would wrap it
                failure = error
                both.cancel_scope.cancel()
            else:
                await upstream.send(first)
                await _relay(client.stream, upstream, idle)
    if failure is not None:
        raise failure


async def _first_bytes(stream: ByteStream, early: bytes) -> bytes:
    """Receive what tells whether this is TLS, and the whole client hello if it is; empty at the end."""
    data = early
    try:
        if not data:
            data = await stream.receive(_CHUNK_BYTES)
        with anyio.fail_after(_HELLO_SECONDS):
            while data[0] == HANDSHAKE and len(data) < MAX_HELLO_BYTES and server_name(data) is None:
                data += await stream.receive(_CHUNK_BYTES)
    except anyio.EndOfStream:
        pass
    except HelloError as error:
        raise HijackedTunnelError(f"TLS: {error}") from error
    return data


def _check_hello(data: bytes, target: Target) -> None:
    if not data or data[0] != HANDSHAKE:
        return
    named = server_name(data)
    if named is None:
        raise HijackedTunnelError("TLS: incomplete client hello")
    host = normal_host(target.host)
    try:
        ip_address(host)
        is_address = True
    except ValueError:
        is_address = False
    if named == "" and is_address:
        return
    try:
        matches = normal_host(named) == host
    except ValueError:
        matches = False
    if not matches:
        raise HijackedTunnelError(f"TLS for {named!r}")


async def _relay(source: ByteStream, sink: ByteStream, idle: anyio.CancelScope) -> None:
    """Copy until the source ends, then tell the sink."""
    try:
        while True:
            data = await source.receive(_CHUNK_BYTES)
            idle.deadline = anyio.current_time() + _IDLE_SECONDS
            await sink.send(data)
    except anyio.EndOfStream:
        await sink.send_eof()
