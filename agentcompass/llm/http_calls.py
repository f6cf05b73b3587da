"""Model calls over HTTP, whatever API protocol the endpoint speaks."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx

from .._version import __version__
from ..clock import Clock
from ..errors import ConfigError, ModelError, ModelUnavailableError
from ..protocols import Message, Tool
from .endpoint import Endpoint
from .failure import refusal
from .transport import Transport, open_transport
from .wire import FAILED_CALL, Answer, ApiProtocol, Prepare, Source, Try

_MAX_REPLY_BYTES = 64 * 1024 * 1024
_VERSIONED = re.compile(r"/v\d[^/]*$")
_COMMON_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": f"agentcompass/{__version__}",
}


@asynccontextmanager
async def open_http(endpoint: Endpoint, protocol: ApiProtocol, *, clock: Clock) -> AsyncIterator[Prepare]:
    """
    Open the pool of connections to an endpoint; it closes with the context.

    Raises:
        ConfigError: The base URL, the key or the params cannot be used.
    """
    url = _request_url(endpoint.base_url, protocol)
    key = _usable_key(endpoint)
    _check_params(endpoint, protocol)
    async with open_transport(url) as transport:
        yield _HttpCalls(endpoint, protocol, transport, url=url, key=key, clock=clock).prepare


class _HttpCalls:
    def __init__(
        self,
        endpoint: Endpoint,
        protocol: ApiProtocol,
        transport: Transport,
        *,
        url: httpx.URL,
        key: str,
        clock: Clock,
    ) -> None:
        self._endpoint = endpoint
        self._protocol = protocol
        self._transport = transport
        self._url = url
        self._clock = clock
        secrets = [text for text in (key, url.query.decode()) if text]
        self._source = Source(host=url.netloc.decode(), secrets=secrets)
        self._headers = httpx.Headers({**_COMMON_HEADERS, **protocol.headers(key)})
        idle, connect = endpoint.idle_timeout_seconds, endpoint.connect_timeout_seconds
        self._extensions = {"timeout": {"connect": connect, "pool": connect, "read": idle, "write": idle}}

    def prepare(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Try:
        body = self._protocol.encode(self._endpoint, messages, tools)

        async def one_try() -> Answer:
            try:
                return await self._exchange(body)
            except self._transport.errors as error:
                raise self._unavailable(error) from (None if _quotes_url(error) else error)

        return one_try

    async def _exchange(self, body: bytes) -> Answer:
        request = httpx.Request(
            "POST", self._url, headers=self._headers, content=body, extensions=self._extensions
        )
        response = await self._transport.http.handle_async_request(request)
        try:
            content = await self._read(response.stream)
        finally:
            await response.aclose()
        if "content-encoding" in response.headers:  # compressed though we did not ask for it
            content = httpx.Response(200, headers=response.headers, content=content).content
        if 200 <= response.status_code < 300:
            return self._protocol.decode(content, self._source)
        return Answer(usage=FAILED_CALL, result=self._refusal(response, content))

    async def _read(self, stream: object) -> bytes:
        assert isinstance(stream, httpx.AsyncByteStream)
        content, size = bytearray(), 0
        async for chunk in stream:
            size += len(chunk)
            if size <= _MAX_REPLY_BYTES:  # else read on to its end: a half-read stream cannot be left cleanly
                content += chunk
        if size > _MAX_REPLY_BYTES:
            raise ModelUnavailableError(
                f"{self._source.host} sent a reply of {size} bytes, too large to keep"
            )
        return bytes(content)

    def _refusal(self, response: httpx.Response, content: bytes) -> ModelError:
        return refusal(
            response.status_code,
            response.headers,
            content,
            source=self._source,
            wall_seconds=self._clock.wall(),
        )

    def _unavailable(self, error: Exception) -> ModelUnavailableError:
        host = self._source.host
        if isinstance(error, httpx.ReadTimeout):
            seconds = self._endpoint.idle_timeout_seconds
            return ModelUnavailableError(f"{host} sent nothing for {seconds:g} s")
        reason = "" if _quotes_url(error) else self._source.quote(str(error))
        reason = reason or type(error).__name__
        return ModelUnavailableError(f"the exchange with {host} broke: {reason}")


def _quotes_url(error: Exception) -> bool:
    """Tell whether an error's text must be hidden: the URL in it may hold secrets, encoded anew."""
    return "://" in str(error)


def _request_url(base_url: str, protocol: ApiProtocol) -> httpx.URL:
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL:
        raise ConfigError("the base URL of the model is no valid URL") from None
    if url.userinfo:
        raise ConfigError("the base URL of the model holds credentials; give them as the API key instead")
    if url.scheme not in {"http", "https"} or not url.host:
        raise ConfigError("the base URL of the model must start with http:// or https://")
    base = url.path.rstrip("/")
    version = "" if _VERSIONED.search(base) else protocol.version
    return url.copy_with(path=base + version + protocol.path, fragment=None)


def _usable_key(endpoint: Endpoint) -> str:
    key = endpoint.api_key.get_secret_value() if endpoint.api_key else ""
    if not (key.isascii() and key.isprintable()) or key != key.strip():
        raise ConfigError(
            f"the API key for {endpoint.model_id!r} holds characters that no header can carry"
            " (a space or a line break at its end?)"
        )
    return key


def _check_params(endpoint: Endpoint, protocol: ApiProtocol) -> None:
    if protocol.reserved in endpoint.params:
        raise ConfigError(f"the model params may not hold {protocol.reserved!r}: that comes from the harness")
    if endpoint.params.get("stream"):
        raise ConfigError("the model params may not ask for 'stream'; replies are read as a whole")
    try:
        protocol.encode(endpoint, (), ())
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the model params cannot be sent as JSON: {error}") from error
