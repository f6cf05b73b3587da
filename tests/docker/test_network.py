"""What containers reach under each policy; all servers are on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from aiodocker import Docker

from agentcompass.protocols import Session
from agentcompass.spec.network import NetworkPolicy

from .environments import RUN_ID, containers_of, docker_environment, plan

pytestmark = [pytest.mark.anyio, pytest.mark.once]

NO_NETWORK = NetworkPolicy(mode="no-network")


class _Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer anything."""
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # of the base class
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    """Serve HTTP on loopback of this machine; return its host and port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hello) as started:
        thread = threading.Thread(target=started.serve_forever)
        thread.start()
        yield f"127.0.0.1:{started.server_port}"
        started.shutdown()
        thread.join()


_FETCH = r"""
rest=${http_proxy#http://}
password=$(printf %s "${rest%@*}" | base64 -w 0)
address=${rest##*@}
printf 'GET %s HTTP/1.0\r\nProxy-Authorization: Basic %s\r\n\r\n' "$1" "$password" |
    nc -w 3 "${address%:*}" "${address#*:}" | tail -n 1
"""
"""A program that honours http_proxy; the one of a static busybox crashes."""


async def _fetch(session: Session, url: str) -> str:
    return (await session.exec(["/bin/sh", "-c", _FETCH, "sh", url])).stdout


async def test_no_network_is_none(busybox_image: str) -> None:
    """Nothing but loopback, which works."""
    async with docker_environment(image=busybox_image) as environment:
        await environment.check([NO_NETWORK])
        async with environment.open(plan(network=NO_NETWORK)) as session:
            interfaces = (await session.exec("cat /proc/net/dev | tail -n +3 | cut -d: -f1")).stdout
            routes = (await session.exec("cat /proc/net/route | wc -l")).stdout
    assert "eth" not in interfaces
    assert routes.strip() == "1"


async def test_allowlist_lets_through_what_it_names(busybox_image: str, server: str) -> None:
    """By the proxy in the environment; what is refused is noted."""
    notes: list[str] = []
    policy = NetworkPolicy(mode="allowlist", hosts=(server,))
    async with docker_environment(image=busybox_image) as environment:
        await environment.check([policy])
        async with environment.open(plan(network=policy, note=notes.append)) as session:
            assert await _fetch(session, f"http://{server}/") == "hello"
            assert "does not allow other.test:80" in await _fetch(session, "http://other.test/")
            direct = await session.exec("nc -w 2 192.0.2.1 80 </dev/null")
    assert direct.exit_code != 0
    assert notes == ["network: refused other.test:80"]


async def test_denylist_refuses_what_it_names(busybox_image: str, server: str) -> None:
    """And this machine stays out of reach, whatever is listed."""
    notes: list[str] = []
    policy = NetworkPolicy(mode="denylist", hosts=("evil.test",))
    async with (
        docker_environment(image=busybox_image) as environment,
        environment.open(plan(network=policy, note=notes.append)) as session,
    ):
        assert "does not allow" in await _fetch(session, "http://evil.test/")
        assert "does not allow" in await _fetch(session, f"http://{server}/")
    assert notes == ["network: refused evil.test:80", f"network: refused {server}"]


async def test_sessions_share_a_network_but_do_not_reach_each_other(
    busybox_image: str, server: str, docker_client: Docker
) -> None:
    """Neither directly nor through the other's proxy; the network goes with the environment."""
    policy = NetworkPolicy(mode="allowlist", hosts=("other.test",))
    open_policy = NetworkPolicy(mode="allowlist", hosts=(server,))
    async with (
        docker_environment(image=busybox_image) as environment,
        environment.open(plan(f"first-{RUN_ID}", network=policy)) as first,
        environment.open(plan(f"second-{RUN_ID}", network=open_policy)) as second,
    ):
        names = [
            *await containers_of(docker_client, f"first-{RUN_ID}"),
            *await containers_of(docker_client, f"second-{RUN_ID}"),
        ]
        networks = [
            (await docker_client.containers.container(name).show())["NetworkSettings"]["Networks"]
            for name in names
        ]
        assert networks[0].keys() == networks[1].keys()
        [connection] = networks[1].values()
        await second.exec("nc -l -p 8080 -e echo hi &")
        assert (await first.exec(f"nc -w 2 {connection['IPAddress']} 8080 </dev/null")).stdout == ""
        proxy = (await second.exec("echo ${http_proxy#*@}")).stdout.strip()
        fetch = ["/bin/sh", "-c", _FETCH, "sh", f"http://{server}/"]
        stolen = await first.exec(fetch, env={"http_proxy": f"http://session:guess@{proxy}"})
        assert "needs the session's user and password" in stolen.stdout
        assert await _fetch(second, f"http://{server}/") == "hello"


async def test_names_do_not_leave_a_restricted_session(busybox_image: str) -> None:
    """Docker's resolver has nobody to ask: a lookup cannot carry data out."""
    policy = NetworkPolicy(mode="allowlist", hosts=("allowed.test",))
    async with (
        docker_environment(image=busybox_image) as environment,
        environment.open(plan(network=policy)) as session,
    ):
        resolver = await session.exec("cat /etc/resolv.conf")
        looked_up = await session.exec("nslookup secret.allowed.test", timeout_seconds=2)
    assert "127.0.0.11" in resolver.stdout
    assert looked_up.exit_code != 0
