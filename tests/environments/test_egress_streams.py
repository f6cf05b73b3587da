"""Bodies on their way through the egress proxy, and what becomes of it when something breaks."""

from __future__ import annotations

import gc
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address

import anyio
import anyio.lowlevel
import httpx
import pytest
from anyio.abc import SocketStream

from agentcompass.environments.egress import EgressProxy
from agentcompass.environments.egress.guard import Guard
from agentcompass.spec.network import Address, NetworkPolicy

from .test_egress import LOCAL, Outside, Serve, outside, read_all, read_request

pytestmark = pytest.mark.anyio


def answering(answer: bytes) -> Serve:
    """Return a server that gives every request this answer."""

    async def serve(stream: SocketStream, seen: Outside) -> None:
        await read_request(stream, seen)
        await stream.send(answer)

    return serve


# --- plain HTTP -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "answer", "text"),
    [
        (
            "GET",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            "abc",
        ),
        ("GET", b"HTTP/1.1 200 OK\r\n\r\nuntil the end", "until the end"),
        ("GET", b"HTTP/1.0 200 OK\r\n\r\nold", "old"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", ""),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", ""),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", ""),
        ("GET", b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok"),
    ],
)
async def test_each_form_of_response(method: str, answer: bytes, text: str) -> None:
    """The end of each is found, so that the connection serves the next request too."""
    async with (
        outside(*LOCAL, serve=answering(answer)) as net,
        httpx.AsyncClient(proxy=net.proxy_url, limits=httpx.Limits(max_connections=1)) as client,
    ):
        for _ in range(2):
            response = await client.request(method, f"http://allowed.test:{net.port}/")
            assert response.text == text
    assert len(net.requests) == 2


async def test_large_bodies_arrive_whole() -> None:
    """Chunked on the way there, of known length on the way back."""
    size = 3_000_000

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(size // 100_000):
            yield b"x" * 100_000

    head = f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode()
    async with (
        outside(*LOCAL, serve=answering(head + b"y" * size)) as net,
        httpx.AsyncClient(proxy=net.proxy_url) as client,
    ):
        answer = await client.post(f"http://allowed.test:{net.port}/", content=pieces())
    assert answer.content == b"y" * size
    assert net.requests[0].count(b"x") >= size


async def test_client_that_waits_for_leave_to_send() -> None:
    """The proxy gives it: ``Expect`` is for the next machine only."""
    async with outside(*LOCAL) as net, await net.connect() as stream:
        line = f"POST http://allowed.test:{net.port}/ HTTP/1.1"
        await stream.send(net.head(line, "Host: x", "Content-Length: 5", "Expect: 100-continue"))
        assert (await stream.receive()).startswith(b"HTTP/1.1 100 ")
        await stream.send(b"12345")
        assert (await stream.receive()).startswith(b"HTTP/1.1 200 ")
    assert net.requests[0].endswith(b"\r\n\r\n12345")


async def test_only_one_length_is_passed_on() -> None:
    """A server that goes by the other one would see a second request, to any of its hosts."""
    smuggled = b"0\r\n\r\nGET / HTTP/1.1\r\nHost: other.test\r\n\r\n"
    async with outside(*LOCAL) as net, await net.connect() as stream:
        line = f"POST http://allowed.test:{net.port}/ HTTP/1.1"
        head = net.head(line, "Host: x", "Transfer-Encoding: chunked", f"Content-Length: {len(smuggled)}")
        await stream.send(head + smuggled)
        await stream.send_eof()
        await read_all(stream)
    assert len(net.requests) == 1
    assert b"content-length" not in net.requests[0].lower()
    assert b"other.test" not in net.requests[0]


async def test_refusal_reaches_a_client_that_is_still_sending() -> None:
    """Closing the connection at once would reset it, and the reason would be lost."""
    async with outside("allowed.test") as net, httpx.AsyncClient(proxy=net.proxy_url) as client:
        answer = await client.post("http://other.test/", content=b"x" * 5_000_000)
    assert answer.status_code == 403


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 200"])
async def test_server_that_gives_no_answer(answer: bytes) -> None:
    """502 that says so, rather than an empty reply."""
    async with outside(*LOCAL, serve=answering(answer)) as net:
        reply = await net.ask(f"GET http://allowed.test:{net.port}/ HTTP/1.1", "Host: x")
    assert reply.startswith(b"HTTP/1.1 502")
    assert b"gave no answer in HTTP" in reply


async def test_response_that_breaks_off_does_not_look_whole() -> None:
    """The client must see that bytes are missing."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"
    async with (
        outside(*LOCAL, serve=answering(answer)) as net,
        httpx.AsyncClient(proxy=net.proxy_url) as client,
    ):
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(f"http://allowed.test:{net.port}/")


# --- the proxy as a whole ---------------------------------------------------------------------------


async def test_cancelled_proxy_leaves_nothing_open() -> None:
    """Tunnels, requests under way and the listening socket are closed; warnings about leaks are errors."""

    async def stay_silent(stream: SocketStream, seen: Outside) -> None:
        await read_request(stream, seen)
        await anyio.sleep_forever()

    async with outside(*LOCAL, serve=stay_silent) as net:
        tunnel, request = await net.open_tunnel(), await net.connect()
        await request.send(net.head(f"GET http://allowed.test:{net.port}/ HTTP/1.1", "Host: x"))
        await anyio.wait_all_tasks_blocked()
    async with tunnel, request:
        assert await read_all(tunnel) == await read_all(request) == b""
    with pytest.raises(OSError, match=r"."):
        await net.connect()
    gc.collect()


async def test_connections_have_a_limit() -> None:
    """One too many is closed at once, and those that are open go on."""
    async with outside(*LOCAL) as net:
        opened = [await net.connect() for _ in range(256)]
        async with await net.connect() as one_too_many:
            assert await read_all(one_too_many) == b""
        await opened[0].send(net.head(f"GET http://allowed.test:{net.port}/ HTTP/1.1", "Host: x"))
        assert (await opened[0].receive()).startswith(b"HTTP/1.1 200")
        for stream in opened:
            await stream.aclose()


@contextmanager
def no_file_descriptors() -> Iterator[None]:
    """Let nothing be opened."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = [os.dup(0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (used[0] + 1, limits[1]))
    with suppress(OSError):
        while True:  # fills the gaps
            used.append(os.dup(0))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in used:
            os.close(descriptor)


async def test_proxy_outlives_a_want_of_file_descriptors() -> None:
    """A connection that cannot be accepted waits until it can."""
    async with outside(*LOCAL) as net:
        await net.ask(f"GET http://allowed.test:{net.port}/ HTTP/1.1", "Host: x")
        host, _, port = net.proxy_url.rpartition("@")[2].partition(":")
        with socket.socket() as waiting:
            waiting.setblocking(False)
            with no_file_descriptors():
                waiting.connect_ex((host, int(port)))
                for _ in range(10):  # rounds of the event loop, in which the proxy tries to accept
                    await anyio.lowlevel.checkpoint()
        answer = await net.ask(f"GET http://allowed.test:{net.port}/ HTTP/1.1", "Host: x")
        assert answer.startswith(b"HTTP/1.1 200")


async def test_address_that_cannot_be_examined_is_not_allowed() -> None:
    """Whether it is this machine's must be known, not guessed."""

    async def resolve(host: str, port: int) -> Sequence[Address]:
        del host, port
        return [ip_address("192.0.2.1")]

    guard = Guard(NetworkPolicy(mode="allowlist", hosts=("allowed.test",)), resolve)
    with no_file_descriptors(), pytest.raises(OSError, match="Too many open files"):
        await guard.addresses("allowed.test", 80)
    assert await guard.addresses("allowed.test", 80) == [ip_address("192.0.2.1")]


async def test_address_with_a_scope_is_no_host() -> None:
    """It would be another address than the one of the metadata service, and lead there."""
    async with outside("other.test", mode="denylist") as net:
        for host in ("[fd00:ec2::254%1]", "[fd00:ec2::254%25lo]"):
            reply = await net.ask(f"GET http://{host}/ HTTP/1.1", "Host: x")
            assert reply.startswith(b"HTTP/1.1 400")


async def test_name_without_address_and_default_resolver() -> None:
    """502, which is no refusal; names are looked up as this machine does it."""
    denied: list[str] = []
    proxy = EgressProxy(NetworkPolicy(mode="denylist", hosts=("x.test",)), on_denied=denied.append)
    listening = socket.create_server(("127.0.0.1", 0))
    net = Outside(0, proxy.variables(*listening.getsockname())["HTTP_PROXY"])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(proxy.serve, listening)
        refused = await net.ask("GET http://localhost:9/ HTTP/1.1", "Host: x")
        unknown = await net.ask(f"GET http://{'a' * 64}.test/ HTTP/1.1", "Host: x")
        tasks.cancel_scope.cancel()
    assert refused.startswith(b"HTTP/1.1 403")
    assert unknown.startswith(b"HTTP/1.1 400")
    assert denied == ["localhost:9"]
