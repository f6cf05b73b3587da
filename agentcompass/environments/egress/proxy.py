"""The proxy itself: plain HTTP requests and CONNECT tunnels of one session, each checked before it leaves."""

from __future__ import annotations

import base64
import hmac
import secrets
import socket
from collections.abc import Callable, Sequence

import anyio
import h11
from anyio.abc import ByteStream, SocketListener

from ...logs import current_log
from ...spec.network import Address, NetworkPolicy
from .forward import forward
from .guard import Guard, RefusedError, Resolver, UnresolvableError, resolve_host
from .http import BadRequestError, ClientConnection, Target
from .tunnel import HijackedTunnelError, tunnel

_MAX_CONNECTIONS = 256
_MAX_REPORTS = 100
_CONNECT_SECONDS = 20.0
_ACCEPT_PAUSE_SECONDS = 0.1
_USER = "session"
_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)
"""How the end of a connection shows, time-outs included."""


class UnreachableError(Exception):
    """No permitted address of the host could be connected to."""


class EgressProxy:
    """
    The proxy of one session; other sessions do not know its password.

    Args:
        policy: An allowlist or denylist.
        on_denied: Told each target that was refused, once, up to a limit.
        resolve: Looks names up.
    """

    def __init__(
        self, policy: NetworkPolicy, *, on_denied: Callable[[str], None], resolve: Resolver = resolve_host
    ) -> None:
        self._guard = Guard(policy, resolve)
        self._on_denied = on_denied
        self._reported: set[str] = set()
        self._password = secrets.token_urlsafe(24)
        self._limiter = anyio.CapacityLimiter(_MAX_CONNECTIONS)

    def variables(self, host: str, port: int) -> dict[str, str]:
        """
        Return the environment variables by which a session's programs find the proxy.

        Without ALL_PROXY: programs would send through it what is not HTTP. Loopback is the session's own.
        """
        url = f"http://{_USER}:{self._password}@{host}:{port}"
        values = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "NO_PROXY": "localhost,127.0.0.1,::1"}
        return {**values, **{name.lower(): value for name, value in values.items()}}

    async def serve(self, listening: socket.socket) -> None:
        """Serve connections to a listening socket, which is closed in the end, until cancelled."""
        async with (
            await SocketListener.from_socket(listening) as listener,
            anyio.create_task_group() as tasks,
        ):
            while True:
                try:
                    stream = await listener.accept()
                except (OSError, anyio.BrokenResourceError):
                    await anyio.sleep(_ACCEPT_PAUSE_SECONDS)  # out of file descriptors, or the client is gone
                else:
                    tasks.start_soon(self._serve_connection, stream)

    async def _serve_connection(self, stream: ByteStream) -> None:
        """Serve a connection to its end; whatever happens on it is the end of this one only."""
        try:
            async with stream:
                self._limiter.acquire_nowait()
                try:
                    await self._serve_requests(ClientConnection(stream))
                finally:
                    self._limiter.release()
        except* (*_BROKEN, h11.ProtocolError, anyio.WouldBlock):
            pass
        except* Exception as group:  # noqa: BLE001  # a bug must not end the session
            current_log().warning("egress_connection_failed", error=repr(group))

    async def _serve_requests(self, client: ClientConnection) -> None:
        """Serve the requests of a connection, one after another, each as if it were the first."""
        while (request := await client.next_request()) is not None:
            if not self._is_authorized(request):
                await client.answer(407, "the proxy needs the session's user and password")
                return
            try:
                target = Target.of(request)
            except BadRequestError as error:
                await client.answer(400, str(error))
                return
            if not await self._serve_request(client, request, target):
                return

    async def _serve_request(self, client: ClientConnection, request: h11.Request, target: Target) -> bool:
        """Serve a request; return whether the connection can take another."""
        try:
            addresses = await self._guard.addresses(target.host, target.port)
            upstream = await _connect(addresses, target.port)
        except ValueError:
            await client.answer(400, f"{target.host!r} is no host")
        except RefusedError:
            self._report(str(target))
            await client.answer(403, f"the network policy of this session does not allow {target}")
        except UnresolvableError as error:
            await client.answer(502, f"{target.host!r} cannot be resolved: {error}")
        except UnreachableError as error:
            await client.answer(502, f"{target} cannot be reached: {error}")
        else:
            async with upstream:
                if request.method != b"CONNECT":
                    return await forward(client, request, target, upstream)
                try:
                    await tunnel(client, target, upstream)
                except HijackedTunnelError as error:
                    self._report(f"{target} ({error})")
        return False

    def _is_authorized(self, request: h11.Request) -> bool:
        expected = b"Basic " + base64.b64encode(f"{_USER}:{self._password}".encode())
        given = [value for name, value in request.headers if name == b"proxy-authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], expected)

    def _report(self, target: str) -> None:
        if target in self._reported or len(self._reported) > _MAX_REPORTS:
            return
        self._reported.add(target)
        self._on_denied(target if len(self._reported) <= _MAX_REPORTS else "and more")


async def _connect(addresses: Sequence[Address], port: int) -> ByteStream:
    """Connect to the first address that answers."""
    reason = "no answer"
    with anyio.move_on_after(_CONNECT_SECONDS):
        for address in addresses:
            try:
                return await anyio.connect_tcp(str(address), port)
            except OSError as error:
                reason = str(error.__cause__ or error)
    raise UnreachableError(reason)
