"""What gets through a tunnel of the egress proxy."""

from __future__ import annotations

import ssl

import anyio
import pytest
from anyio.abc import SocketStream

from .test_egress import LOCAL, Outside, outside, read_all

pytestmark = pytest.mark.anyio


def client_hello(name: str | None) -> bytes:
    """Return the first bytes of a TLS connection to a server of that name."""
    context = ssl.create_default_context()
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def in_records(hello: bytes, size: int) -> bytes:
    """Spread a hello over records of that size."""
    content = hello[5:]
    parts = [content[at : at + size] for at in range(0, len(content), size)]
    return b"".join(hello[:3] + len(part).to_bytes(2, "big") + part for part in parts)


async def test_tunnel_for_the_host_that_was_asked_for() -> None:
    """In one piece, in many, spread over records, in other spelling."""
    hello = client_hello("allowed.test")
    spellings = [
        [hello],
        [hello[:3], hello[3:50], hello[50:]],
        [in_records(hello, 40)],
        [client_hello("ALLOWED.test")],
    ]
    async with outside(*LOCAL) as net:
        for pieces in spellings:
            assert (await net.tunnel("allowed.test", *pieces)).startswith(b"echo " + pieces[0][:3])
    assert net.denied == []


@pytest.mark.parametrize("name", ["other.test", None, "allowed.test.other.test"])
async def test_tunnel_to_another_server_is_cut(name: str | None) -> None:
    """Domain fronting: the name in the client hello is not the one that was checked."""
    async with outside(*LOCAL) as net:
        assert await net.tunnel("allowed.test", client_hello(name)) == b""
    assert net.requests == []
    assert net.denied == [f"allowed.test:{net.port} (TLS for {name or ''!r})"]


async def test_split_records_do_not_hide_the_name() -> None:
    """A hello that is spread over records is put together first."""
    async with outside(*LOCAL) as net:
        assert await net.tunnel("allowed.test", in_records(client_hello("other.test"), 20)) == b""
    assert net.requests == []


async def test_tunnel_to_an_address_needs_no_name() -> None:
    """A client names no server then; if it does, it is another one."""
    async with outside("127.0.0.1:PORT") as net:
        assert (await net.tunnel("127.0.0.1", client_hello(None))).startswith(b"echo ")
        assert await net.tunnel("127.0.0.1", client_hello("other.test")) == b""


async def test_what_is_not_tls_is_relayed() -> None:
    """The address was checked; the protocol is the client's business."""
    async with outside(*LOCAL) as net:
        assert await net.tunnel("allowed.test", b"SSH-2.0-x\r\n") == b"echo SSH-2.0-x\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n"],
        [b"G", b"ET / HTTP", b"/1.1\r\nHost: other.test\r\n\r\n"],
        [b"\r\n", b"get / HTTP/1.0\r\n\r\n"],
        [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
        [b"MY_0WN / HTTP/1.1\r\n\r\n"],
        [b"GET\t/\thttp/1.1\r\n\r\n"],
    ],
)
async def test_plain_http_in_a_tunnel_is_cut(pieces: list[bytes]) -> None:
    """Its requests could name any host that the server has."""
    async with outside(*LOCAL) as net:
        assert await net.tunnel("allowed.test", *pieces) == b""
    assert net.requests == []
    assert net.denied == [f"allowed.test:{net.port} (plain HTTP in a tunnel)"]


@pytest.mark.parametrize("data", [b"PING\r\n", b"EHLO me\r\n", b"\x00\x01binary", b"user name\n"])
async def test_other_protocols_get_through_a_tunnel(data: bytes) -> None:
    """What a client says first is passed on as it is."""
    async with outside(*LOCAL) as net:
        assert await net.tunnel("allowed.test", data) == b"echo " + data


async def test_tunnel_that_is_not_allowed() -> None:
    """Refused before anything is connected."""
    async with outside("allowed.test") as net:
        answer = await net.ask(f"CONNECT other.test:{net.port} HTTP/1.1", "Host: x")
    assert answer.startswith(b"HTTP/1.1 403")
    assert net.denied == [f"other.test:{net.port}"]


async def _greet(stream: SocketStream, seen: Outside) -> None:
    del seen
    await stream.send(b"220 ready\r\n")
    await stream.send(b"got " + await stream.receive())


async def _count_to_the_end(stream: SocketStream, seen: Outside) -> None:
    del seen
    await stream.send(f"{len(await read_all(stream))}".encode())


async def test_server_may_speak_first() -> None:
    """As those of mail do; the client's first words come after."""
    async with outside(*LOCAL, serve=_greet) as net, await net.open_tunnel() as stream:
        assert await stream.receive() == b"220 ready\r\n"
        await stream.send(b"EHLO me\r\n")
        assert await stream.receive() == b"got EHLO me\r\n"


@pytest.mark.parametrize("data", [b"", b"hello", b"\x00" + b"x" * 500_000])
async def test_end_of_one_direction_leaves_the_other_open(data: bytes) -> None:
    """A client that has said all still gets the answer."""
    async with outside(*LOCAL, serve=_count_to_the_end) as net, await net.open_tunnel() as stream:
        await stream.send(data)
        await stream.send_eof()
        assert await read_all(stream) == str(len(data)).encode()


async def test_first_bytes_may_come_with_the_request() -> None:
    """They are looked at like later ones."""
    async with outside(*LOCAL) as net:
        for name, expected in [("allowed.test", True), ("other.test", False)]:
            async with await net.connect() as stream:
                head = net.head(f"CONNECT allowed.test:{net.port} HTTP/1.1", "Host: x")
                await stream.send(head + client_hello(name))
                assert (b"echo" in await read_all(stream)) is expected
    assert len(net.requests) == 1


@pytest.mark.parametrize("start", [b"GET /", b"\x16\x03\x01\x40\x00\x01\x00\xff\xff"])
async def test_beginning_without_an_end_is_cut(start: bytes) -> None:
    """Neither a long line nor a long client hello gets through unread."""
    async with outside(*LOCAL) as net, await net.open_tunnel() as stream:
        with pytest.raises(anyio.BrokenResourceError):  # noqa: PT012
            while True:
                await stream.send(start + b"a" * 10_000)
                start = b""
    assert net.requests == []
    assert len(net.denied) == 1
