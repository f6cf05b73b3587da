"""The egress proxy lets out exactly what the policy allows, request by request."""

from __future__ import annotations

import base64
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address

import anyio
import anyio.lowlevel
import h11
import httpx
import pytest
from anyio.abc import SocketAttribute, SocketStream

from agentcompass.environments.egress import EgressProxy
from agentcompass.spec.network import Address, NetworkMode, NetworkPolicy

pytestmark = pytest.mark.anyio


@dataclass
class Outside:
    """A server and a proxy on this machine, and what each has seen."""

    port: int
    proxy_url: str
    requests: list[bytes] = field(default_factory=list)
    denied: list[str] = field(default_factory=list)
    lookups: list[str] = field(default_factory=list)

    async def ask(self, *lines: str) -> bytes:
        """Send the lines of one request with the right password, and return all that comes back."""
        async with await self.connect() as stream:
            await stream.send(self.head(*lines))
            await stream.send_eof()
            return await read_all(stream)

    def head(self, *lines: str) -> bytes:
        """Return the head of a request with the right password."""
        user, _, _ = self.proxy_url.removeprefix("http://").partition("@")
        password = f"Proxy-Authorization: Basic {base64.b64encode(user.encode()).decode()}"
        return "\r\n".join([lines[0], password, *lines[1:], "", ""]).encode()

    async def connect(self) -> SocketStream:
        """Connect to the proxy."""
        host, _, port = self.proxy_url.rpartition("@")[2].partition(":")
        return await anyio.connect_tcp(host, int(port))

    async def open_tunnel(self, host: str = "allowed.test") -> SocketStream:
        """Connect to the server through the proxy."""
        stream = await self.connect()
        await stream.send(self.head(f"CONNECT {host}:{self.port} HTTP/1.1", "Host: x"))
        established = b"HTTP/1.1 200 Connection established\r\n\r\n"
        assert await stream.receive(len(established)) == established
        return stream

    async def tunnel(self, host: str, *pieces: bytes) -> bytes:
        """Open a tunnel, send the pieces one by one, and return what the server says to them."""
        async with await self.open_tunnel(host) as stream:
            for piece in pieces:
                await stream.send(piece)
                await anyio.lowlevel.checkpoint()
            return await read_all(stream)


Serve = Callable[[SocketStream, Outside], Awaitable[None]]
"""What the server does with a connection."""


async def read_all(stream: SocketStream) -> bytes:
    """Read to the end, however the other side makes it."""
    data = b""
    try:
        while True:
            data += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return data


async def read_request(stream: SocketStream, seen: Outside) -> None:
    """Keep what a client sends: a whole request if it is HTTP, else the first piece."""
    data = await stream.receive()
    seen.requests.append(data)
    if b" HTTP/1.1\r\n" not in data:
        return
    http = h11.Connection(h11.SERVER)
    http.receive_data(data)
    while not isinstance(event := http.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            data = await stream.receive()
            seen.requests[-1] += data
            http.receive_data(data)


async def answer_or_echo(stream: SocketStream, seen: Outside) -> None:
    """Answer "ok" to HTTP, and repeat anything else."""
    await read_request(stream, seen)
    data = seen.requests[-1]
    is_http = b" HTTP/1.1\r\n" in data
    await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" if is_http else b"echo " + data)


def _listening() -> socket.socket:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    return listening


@asynccontextmanager
async def outside(
    *hosts: str,
    mode: NetworkMode = "allowlist",
    answers: Sequence[str] = ("127.0.0.1",),
    serve: Serve = answer_or_echo,
    exempt: Sequence[str] = (),
) -> AsyncIterator[Outside]:
    """
    Run a server and a proxy with these hosts in its list; ``PORT`` in them is the server's.

    Args:
        exempt: What is permitted besides.
        answers: What every name is resolved to.
    """
    server = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = server.extra(SocketAttribute.local_port)
    listening = _listening()
    policy = NetworkPolicy(mode=mode, hosts=tuple(host.replace("PORT", str(port)) for host in hosts))
    policy = policy.plus(*(host.replace("PORT", str(port)) for host in exempt)) if exempt else policy
    seen = Outside(port, "")

    async def resolve(host: str, port: int) -> Sequence[Address]:
        del port
        seen.lookups.append(host)
        return [ip_address(answer) for answer in answers]

    async def serve_one(stream: SocketStream) -> None:
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await serve(stream, seen)

    proxy = EgressProxy(policy, on_denied=seen.denied.append, resolve=resolve)
    seen.proxy_url = proxy.variables("127.0.0.1", listening.getsockname()[1])["HTTPS_PROXY"]
    async with server, anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, serve_one)
        tasks.start_soon(proxy.serve, listening)
        with anyio.fail_after(10):
            yield seen
        tasks.cancel_scope.cancel()


LOCAL = ("allowed.test", "127.0.0.1:PORT")
"""Names resolve to loopback here, which an allowlist must have by address."""


# --- plain HTTP -------------------------------------------------------------------------------------


async def test_real_client_gets_through() -> None:
    """httpx, with a body, over one connection for several requests."""
    async with outside(*LOCAL) as net, httpx.AsyncClient(proxy=net.proxy_url) as client:
        for _ in range(3):
            answer = await client.post(f"http://allowed.test:{net.port}/path?q=1", content=b"12345")
            assert (answer.status_code, answer.text) == (200, "ok")
    head = net.requests[0].split(b"\r\n")
    assert head[0] == b"POST /path?q=1 HTTP/1.1"
    assert f"Host: allowed.test:{net.port}".encode() in head
    assert not any(line.lower().startswith(b"proxy-") for line in head)
    assert net.denied == []


async def test_host_that_is_not_allowed_is_refused_by_name() -> None:
    """403 with host and port; reported once; the server sees nothing, and the name is not looked up."""
    async with outside("allowed.test") as net, httpx.AsyncClient(proxy=net.proxy_url) as client:
        for _ in range(2):
            answer = await client.get(f"http://other.test:{net.port}/")
            assert answer.status_code == 403
            assert f"does not allow other.test:{net.port}" in answer.text
    assert net.denied == [f"other.test:{net.port}"]
    assert (net.requests, net.lookups) == ([], [])


async def test_every_request_of_a_connection_is_checked() -> None:
    """A second request to another host, and one without the password, do not ride on the first."""
    async with outside(*LOCAL) as net:
        for second in [
            net.head("GET http://other.test/ HTTP/1.1", "Host: other.test"),
            f"GET http://allowed.test:{net.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
        ]:
            async with await net.connect() as stream:
                first = f"GET http://allowed.test:{net.port}/ HTTP/1.1"
                await stream.send(net.head(first, "Host: allowed.test") + second)
                answers = await read_all(stream)
            assert answers.startswith(b"HTTP/1.1 200")
            assert b"HTTP/1.1 403" in answers or b"HTTP/1.1 407" in answers
    assert len(net.requests) == 2


@pytest.mark.parametrize("header", ["", "Proxy-Authorization: Basic c2Vzc2lvbjp3cm9uZw=="])
async def test_password_is_needed(header: str) -> None:
    """Another session on the same network cannot use this one's proxy."""
    async with outside(*LOCAL) as net, await net.connect() as stream:
        lines = [f"GET http://allowed.test:{net.port}/ HTTP/1.1", "Host: x", *([header] if header else [])]
        await stream.send("\r\n".join([*lines, "", ""]).encode())
        answer = await read_all(stream)
    assert answer.startswith(b"HTTP/1.1 407")
    assert b"proxy-authenticate: basic" in answer.lower()
    assert net.requests == []


@pytest.mark.parametrize(
    "line",
    [
        "GET / HTTP/1.1",
        "GET ftp://allowed.test/ HTTP/1.1",
        "GET https://allowed.test/ HTTP/1.1",
        "GET http://allowed.test@other.test/ HTTP/1.1",
        "GET http:///path HTTP/1.1",
        "GET http://allowed.test:99999/ HTTP/1.1",
        "CONNECT allowed.test HTTP/1.1",
        "CONNECT allowed.test:0 HTTP/1.1",
        "CONNECT allowed.test:443:80 HTTP/1.1",
    ],
)
async def test_what_is_no_proxy_request(line: str) -> None:
    """400, and nothing leaves."""
    async with outside(*LOCAL) as net:
        assert (await net.ask(line, "Host: allowed.test")).startswith(b"HTTP/1.1 400")
    assert (net.requests, net.lookups) == ([], [])


async def test_host_header_does_not_decide() -> None:
    """The URL says where it goes, and the server is told that host."""
    async with outside(*LOCAL) as net:
        url = f"http://allowed.test:{net.port}/"
        answer = await net.ask(
            f"GET {url} HTTP/1.1", "Host: other.test", "Connection: close, X-Mine", "X-Mine: 1"
        )
        assert answer.startswith(b"HTTP/1.1 200")
        refused = await net.ask("GET http://other.test/ HTTP/1.1", "Host: allowed.test")
        assert refused.startswith(b"HTTP/1.1 403")
    [request] = net.requests
    assert b"other.test" not in request
    assert b"x-mine" not in request.lower()


@pytest.mark.parametrize(
    "headers",
    [["Content-Length: 5", "Content-Length: 6"], ["Content-Length: 5", "Transfer-Encoding: gzip"]],
)
async def test_ambiguous_length_does_not_get_through(headers: list[str]) -> None:
    """What two parsers could read as different requests is dropped."""
    async with outside(*LOCAL) as net:
        await net.ask(f"POST http://allowed.test:{net.port}/ HTTP/1.1", "Host: x", *headers)
    assert net.requests == []


async def test_endless_head_is_dropped() -> None:
    """A head has a limit."""
    async with outside(*LOCAL) as net, await net.connect() as stream:
        with pytest.raises(anyio.BrokenResourceError):  # noqa: PT012
            while True:
                await stream.send(b"GET http://x/" + b"a" * 10_000)


async def test_server_that_is_not_there() -> None:
    """502 with the target; a refusal of the server's is no refusal of ours."""
    with _listening() as closed:
        port = closed.getsockname()[1]
    async with outside("allowed.test", "127.0.0.1") as net:
        answer = await net.ask(f"GET http://allowed.test:{port}/ HTTP/1.1", "Host: x")
    assert answer.startswith(b"HTTP/1.1 502")
    assert net.denied == []


# --- addresses --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    ["127.0.0.1", "0.0.0.0", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fe80::1", "fd00:ec2::254",
     "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "::ffff:0:127.0.0.1", "2002:7f00:1::",
     "224.0.0.1", "100.100.100.200"],
)  # fmt: skip
async def test_allowed_name_cannot_lead_to_this_machine(answer: str) -> None:
    """Whoever controls a name must not reach loopback, metadata or link-local addresses by it."""
    async with outside("allowed.test", answers=[answer]) as net:
        reply = await net.ask(f"GET http://allowed.test:{net.port}/ HTTP/1.1", "Host: x")
    assert reply.startswith(b"HTTP/1.1 403")
    assert net.requests == []


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0", "0177.0.0.1", "[::1]", "[::ffff:7f00:1]"],
)
async def test_this_machine_is_refused_in_any_spelling(host: str) -> None:
    """Also under a denylist, which allows all else."""
    async with outside("other.test", mode="denylist") as net:
        reply = await net.ask(f"GET http://{host}:{net.port}/ HTTP/1.1", "Host: x")
    assert reply.startswith((b"HTTP/1.1 403", b"HTTP/1.1 502", b"HTTP/1.1 400"))
    assert net.requests == []


async def test_own_interface_address_is_refused() -> None:
    """This machine is no outside, whatever address it has."""
    own = _own_address()
    async with outside("allowed.test", answers=[own]) as net:
        assert (await net.ask("GET http://allowed.test/ HTTP/1.1", "Host: x")).startswith(b"HTTP/1.1 403")


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.2"
        return str(probe.getsockname()[0])


async def test_address_that_the_list_names_is_allowed() -> None:
    """Explicitly, e.g. for a model on this machine; only with that port."""
    async with outside("127.0.0.1:PORT") as net:
        assert (await net.ask(f"GET http://127.0.0.1:{net.port}/ HTTP/1.1", "Host: x")).startswith(
            b"HTTP/1.1 200"
        )
        assert (await net.ask("GET http://127.0.0.1:9/ HTTP/1.1", "Host: x")).startswith(b"HTTP/1.1 403")


async def test_localhost_is_allowed_by_that_name() -> None:
    """``localhost`` in the list means this machine."""
    async with outside("localhost:PORT") as net:
        assert (await net.ask(f"GET http://localhost:{net.port}/ HTTP/1.1", "Host: x")).startswith(
            b"HTTP/1.1 200"
        )


async def test_denied_range_holds_for_every_name_that_leads_into_it() -> None:
    """Names are resolved before a denylist decides."""
    async with outside("10.0.0.0/8", mode="denylist", answers=["10.1.2.3"]) as net:
        assert (await net.ask("GET http://any.test/ HTTP/1.1", "Host: x")).startswith(b"HTTP/1.1 403")
    assert net.denied == ["any.test:80"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_exempt_host_is_reached_under_a_denylist(host: str) -> None:
    """The model of an agent in the session, also on this machine; nothing else opens by it."""
    exempt = [f"{host}:PORT"]
    async with outside("evil.test", "127.0.0.0/8", mode="denylist", exempt=exempt) as net:
        assert (await net.ask(f"GET http://{host}:{net.port}/ HTTP/1.1", "Host: x")).startswith(
            b"HTTP/1.1 200"
        )
        for other in [f"{host}:9", "127.0.0.2", f"evil.test:{net.port}"]:
            assert (await net.ask(f"GET http://{other}/ HTTP/1.1", "Host: x")).startswith(b"HTTP/1.1 403")
    assert "evil.test" not in net.lookups


async def test_denied_name_is_not_looked_up() -> None:
    """And what is below it is allowed, unless the entry says ``*.``."""
    async with outside("evil.test", "*.bad.test", "127.0.0.0/8", mode="denylist") as net:
        for host in ["evil.test", "EVIL.test.", "a.bad.test", "a.b.bad.test"]:
            assert (await net.ask(f"GET http://{host}/ HTTP/1.1", "Host: x")).startswith(b"HTTP/1.1 403")
    assert net.lookups == []


async def test_name_is_resolved_once_and_that_address_used() -> None:
    """A name that would resolve to something else the second time gains nothing."""
    async with outside(*LOCAL) as net:
        await net.ask(f"GET http://allowed.test:{net.port}/ HTTP/1.1", "Host: x")
    assert net.lookups == ["allowed.test"]


# --- the proxy as a whole ---------------------------------------------------------------------------


async def test_broken_connections_do_not_end_the_proxy() -> None:
    """Clients that vanish or send garbage are their own trouble."""
    async with outside(*LOCAL) as net:
        for garbage in [b"", b"\x16\x03\x01\xff\xff", b"GET\r\n\r\n", b"\0" * 100]:
            async with await net.connect() as stream:
                await stream.send(garbage or b"G")
        assert await net.tunnel("allowed.test", b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00") == b""
        assert await net.tunnel("allowed.test", b"hi\n") == b"echo hi\n"


async def test_refusals_are_reported_up_to_a_limit() -> None:
    """A program that tries everything does not fill the record."""
    async with outside("allowed.test") as net:
        for number in range(103):
            await net.ask(f"GET http://n{number}.test/ HTTP/1.1", "Host: x")
    assert len(net.denied) == 101
    assert net.denied[-1] == "and more"


def test_variables_for_programs_of_the_session() -> None:
    """Both spellings; loopback is the session's own; each proxy has its own password."""
    policy = NetworkPolicy(mode="allowlist", hosts=("x.test",))
    first, second = (EgressProxy(policy, on_denied=print).variables("10.0.0.1", 80) for _ in range(2))
    assert first["HTTP_PROXY"] == first["https_proxy"]
    assert first["HTTP_PROXY"].endswith("@10.0.0.1:80")
    assert "127.0.0.1" in first["no_proxy"]
    assert first["HTTP_PROXY"] != second["HTTP_PROXY"]
