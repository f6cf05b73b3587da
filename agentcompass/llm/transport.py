"""The pool of connections to one endpoint, chosen for the running event loop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module

import httpx
from anyio import move_on_after, to_thread
from anyio.lowlevel import current_token

from .proxy import proxy_for

_KEEPALIVE_SECONDS = 4.0  # uvicorn-based servers hang up after 5 s; a call on such a connection would fail
_CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Transport:
    """
    Sends requests.

    Args:
        http: Used without a client round it: cookies, redirects, authentication flows and logging are not
            wanted, and would cost a third of the CPU time of a call.
        errors: What it raises when an exchange fails.
    """

    http: httpx.AsyncBaseTransport
    errors: tuple[type[Exception], ...]


@asynccontextmanager
async def open_transport(url: httpx.URL) -> AsyncIterator[Transport]:
    """Open the pool for a URL, without a limit of connections; it closes with the context."""
    tls = await to_thread.run_sync(_tls_context, url)
    if _on_asyncio():
        await to_thread.run_sync(import_module, "httpx_aiohttp")  # slow at first
        transport = _aiohttp_transport(tls, proxy_for(url))
    else:
        transport = _httpx_transport(tls, proxy_for(url))
    try:
        yield transport
    finally:
        with move_on_after(_CLOSE_SECONDS, shield=True):
            await transport.http.aclose()


def _on_asyncio() -> bool:
    return isinstance(current_token().native_token, asyncio.AbstractEventLoop)


def _httpx_transport(tls: ssl.SSLContext, proxy: httpx.URL | None) -> Transport:
    limits = httpx.Limits(
        max_connections=None, max_keepalive_connections=None, keepalive_expiry=_KEEPALIVE_SECONDS
    )
    pool = httpx.AsyncHTTPTransport(verify=tls, limits=limits, proxy=proxy)
    return Transport(pool, (httpx.HTTPError, OSError))


def _aiohttp_transport(tls: ssl.SSLContext, proxy: httpx.URL | None) -> Transport:
    import aiohttp
    from httpx_aiohttp import AiohttpTransport

    # Our own session: the transport's would stop at 100 connections when told that there is no limit.
    connector = aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=_KEEPALIVE_SECONDS)
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=None if proxy is None else str(proxy),
    )
    pool = AiohttpTransport(verify=tls, client=session)
    # It translates most of aiohttp's errors, but not, for one, a reply that is no HTTP.
    return Transport(pool, (httpx.HTTPError, aiohttp.ClientError, OSError))


def _tls_context(url: httpx.URL) -> ssl.SSLContext:
    if url.scheme == "https":
        return httpx.create_ssl_context()  # reads the certificate store
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # not used; trusts nobody
