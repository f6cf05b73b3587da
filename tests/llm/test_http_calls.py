"""Connections: timeouts, broken exchanges, reuse and closing, against real sockets."""

from __future__ import annotations

import base64
import gzip
import socket
from collections.abc import Callable
from typing import Any

import anyio.lowlevel
import msgspec
import pytest

from agentcompass.errors import ModelUnavailableError
from agentcompass.llm.client import open_model
from agentcompass.llm.endpoint import Endpoint
from agentcompass.llm.mock_bodies import chat_completion
from agentcompass.llm.mock_server import MockReply, MockRequest, serve
from agentcompass.records import Usage

from .endpoints import HELLO, Setup, always, one_by_one, open_setup

pytestmark = pytest.mark.anyio

QUICK: dict[str, Any] = {"idle_timeout_seconds": 0.05, "max_retries": 0}


@pytest.mark.parametrize("behaviour", ["silence", "headers_then_silence"])
async def test_silence_ends_at_the_idle_limit(behaviour: str) -> None:
    """Whether or not headers came first, a silent connection is given up and closed."""
    async with open_setup(always(behaviour=behaviour), **QUICK) as setup:
        with anyio.fail_after(5), pytest.raises(ModelUnavailableError, match=r"sent nothing for 0\.05 s"):
            await setup.ask()
        await closed(setup)
    assert setup.calls.usages == [Usage(calls=1, failed_calls=1)]


@pytest.mark.slow
async def test_silent_try_is_followed_by_another() -> None:
    """A dead connection costs a try, not the call."""
    handler = one_by_one([MockReply(behaviour="silence"), MockReply(behaviour="headers_then_silence")])
    async with open_setup(handler, idle_timeout_seconds=0.25, max_retries=2) as setup:
        reply = await setup.ask()
    assert (reply.text, reply.usage.calls, reply.usage.failed_calls) == ("ok", 3, 2)


@pytest.mark.slow
async def test_slow_but_steady_reply_is_not_idle() -> None:
    """The idle limit is about silence, not about the length of a reply."""
    async with open_setup(always(behaviour="drip"), idle_timeout_seconds=0.5, max_retries=0) as setup:
        assert (await setup.ask()).text == "ok"


async def test_endless_drip_ends_at_the_total_limit() -> None:
    """Bytes that trickle in cannot keep a try alive for ever."""
    async with open_setup(always(behaviour="drip"), total_timeout_seconds=0.1, max_retries=0) as setup:
        with anyio.fail_after(5), pytest.raises(ModelUnavailableError, match=r"within 0\.1 s"):
            await setup.ask()
        await closed(setup)


@pytest.mark.parametrize("behaviour", ["disconnect", "cut_body"])
async def test_broken_exchange_is_tried_again(behaviour: str) -> None:
    """A peer that hangs up, before or within its reply, is unavailable for the moment."""
    broken = MockReply(body=chat_completion("half"), behaviour=behaviour)  # type: ignore[arg-type]
    async with open_setup(one_by_one([broken]), max_retries=1) as setup:
        assert (await setup.ask()).text == "ok"
    async with open_setup(one_by_one([broken]), max_retries=0) as setup:
        with pytest.raises(ModelUnavailableError, match="broke"):
            await setup.ask()


async def test_peer_that_does_not_speak_http_is_unavailable() -> None:
    """Whatever a socket sends, the error is one of ours."""

    async def babble(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"220 mail.example ESMTP\r\n\r\n")

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, babble)
        with pytest.raises(ModelUnavailableError):
            await ask_once(f"http://127.0.0.1:{port}")
        group.cancel_scope.cancel()


async def test_closed_port_is_unavailable() -> None:
    """Nobody listens: worth a retry, as servers restart."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ModelUnavailableError, match="broke"):
            await ask_once(f"http://127.0.0.1:{unused.getsockname()[1]}/v1")


async def ask_once(base_url: str) -> None:
    endpoint = Endpoint(model_id="m", protocol="openai-chat", base_url=base_url, max_retries=0)
    async with open_model(endpoint) as model:
        await model.complete(HELLO, on_call=lambda _usage: None)


async def test_compressed_reply_is_read() -> None:
    """Endpoints behind a proxy often compress."""
    body = gzip.compress(msgspec.json.encode(chat_completion("small")))
    async with open_setup(always(body=body, headers={"Content-Encoding": "gzip"})) as setup:
        assert (await setup.ask()).text == "small"


async def test_reply_with_broken_compression_is_unavailable() -> None:
    """What cannot be unpacked is a broken exchange."""
    async with open_setup(always(body=b"junk", headers={"Content-Encoding": "gzip"}), max_retries=0) as setup:
        with pytest.raises(ModelUnavailableError):
            await setup.ask()


@pytest.mark.slow
async def test_flood_is_not_kept_in_memory() -> None:
    """A reply beyond any sensible size is refused; the connection survives it."""
    flood = MockReply(body=b" " * (64 * 1024 * 1024 + 1))
    async with open_setup(one_by_one([flood]), max_retries=0) as setup:
        with pytest.raises(ModelUnavailableError, match="too large"):
            await setup.ask()
        await setup.ask()
        assert setup.server.connections == 1


async def test_calls_one_after_another_share_a_connection() -> None:
    """Failed calls whose reply was read do not cost the connection either."""
    async with open_setup(one_by_one([MockReply(), MockReply(status=500, body=b"no")])) as setup:
        for _ in range(5):
            await setup.ask()
        assert len(setup.server.requests) == 7
        assert setup.server.connections == 1


@pytest.mark.slow
async def test_two_hundred_calls_run_at_once() -> None:
    """No pool limit holds calls back: all are in flight before the first is answered."""
    all_here = anyio.Event()

    async def answer_when_all_are_here(_request: MockRequest) -> MockReply:
        if len(setup.server.requests) == 200:
            all_here.set()
        await all_here.wait()
        return MockReply(body=chat_completion())

    async with open_setup(answer_when_all_are_here) as setup:
        with anyio.fail_after(15):
            async with anyio.create_task_group() as group:
                for _ in range(200):
                    group.start_soon(setup.ask)
    assert setup.calls.total == Usage(calls=200, input_tokens=2000, output_tokens=1000)


@pytest.mark.parametrize("behaviour", ["silence", "headers_then_silence"])
async def test_cancelled_call_closes_its_connection_and_is_metered(behaviour: str) -> None:
    """Nothing of a cancelled call stays behind, and it counts as a failed call."""
    async with open_setup(always(behaviour=behaviour)) as setup:
        async with anyio.create_task_group() as group:
            group.start_soon(setup.ask)
            await until(lambda: setup.server.requests)
            group.cancel_scope.cancel()
        await closed(setup)
    assert setup.calls.usages == [Usage(calls=1, failed_calls=1)]


async def test_cancelled_run_closes_all_connections() -> None:
    """Leaving the model by cancellation closes idle and busy connections."""
    async with serve(always(behaviour="silence")) as server:
        async with anyio.create_task_group() as group:
            group.start_soon(ask_once, server.url)
            await until(lambda: server.requests)
            group.cancel_scope.cancel()
        await until(lambda: not server.open_connections)


async def closed(setup: Setup) -> None:
    """Wait until the server sees no connection any more."""
    await until(lambda: not setup.server.open_connections)


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(5):
        while not condition():  # sockets have no event to wait for
            await anyio.lowlevel.checkpoint()


async def test_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint elsewhere is asked through the proxy that the environment names."""
    async with serve(always()) as proxy:
        address = proxy.url.removesuffix("/v1").replace("://", "://user:p%40ss@")
        monkeypatch.setenv("http_proxy", address)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        await ask_once("http://model.test/v1")
        assert proxy.requests[0].path == "http://model.test/v1/chat/completions"
        token = base64.b64encode(b"user:p@ss").decode()
        assert proxy.requests[0].headers["proxy-authorization"] == f"Basic {token}"


async def test_this_machine_is_never_asked_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local endpoint works though the environment names a proxy."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with open_setup(always(), max_retries=0) as setup:
        assert (await setup.ask()).text == "ok"
