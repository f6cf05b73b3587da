"""The connection to a Docker daemon."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiodocker
import aiohttp
import anyio
from aiodocker.exceptions import DockerError
from anyio import to_thread
from yarl import URL

from ...errors import ConfigError
from .credentials import read_config

ANSWER_SECONDS = 10.0
_SOCKETS = (Path("/run/docker.sock"), Path("/var/run/docker.sock"), Path.home() / ".docker/run/docker.sock")
FAILURES = (DockerError, aiohttp.ClientError, ConnectionError)
"""What a call of the daemon may raise."""


class Daemon:
    """
    A client of the daemon, without a limit on connections: each running command holds one.

    Args:
        docker: Of this event loop.
    """

    def __init__(self, docker: aiodocker.Docker) -> None:
        self.docker = docker
        # aiodocker offers no parameter for it; a kill must not wait for a connection.
        docker.connector._limit = 0  # noqa: SLF001

    @classmethod
    async def connect(cls, host: str) -> Daemon:
        """
        Connect and see that the daemon answers.

        Args:
            host: Where it listens; empty for the usual places.

        Raises:
            ConfigError: It does not; the message tells the way out.
        """
        _require_asyncio()
        try:
            url = host or await to_thread.run_sync(_usual_url)
            daemon = cls(aiodocker.Docker(url=url or None))
        except (AssertionError, ValueError, DockerError) as error:  # no socket, or a broken context
            raise ConfigError(_unreachable(host, "no socket of a daemon was found")) from error
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                await daemon.docker.version()
        except (*FAILURES, TimeoutError) as error:
            await daemon.aclose()
            reason = str(error) or f"no answer within {ANSWER_SECONDS:g} s"
            raise ConfigError(_unreachable(host, reason)) from error
        except BaseException:  # cancellation: the client must not stay open
            with anyio.CancelScope(shield=True):
                await daemon.aclose()
            raise
        return daemon

    async def aclose(self) -> None:
        """Close all connections."""
        await self.docker.close()

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        data: Any = None,
        content_type: str = "application/json",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """
        Call what aiodocker has no streaming method for.

        Args:
            params: Query parameters, quoted already.

        Raises:
            DockerError: The daemon refused.
            aiohttp.ClientError: The connection broke.
        """
        query = "&".join(f"{name}={value}" for name, value in (params or {}).items())
        url = URL(f"{self.docker.docker_host}/{self.docker.api_version}/{path}?{query}", encoded=True)
        headers = {"Content-Type": content_type, "Accept-Encoding": "identity"}  # gzip takes far longer
        async with self.docker.session.request(method, url, data=data, headers=headers) as response:
            if response.status >= 400:
                raise DockerError(response.status, _message(await response.read()))
            yield response


def _require_asyncio() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigError(
            "environment 'docker' needs the asyncio event loop; from trio, call run_evaluation or launch in "
            "a thread"
        ) from None


def _usual_url() -> str:
    """Return where the daemon listens; empty where a Docker context says it, which aiodocker reads."""
    context = read_config().get("currentContext") or "default"
    if os.environ.get("DOCKER_CONTEXT", context) != "default":
        return ""
    sockets = (path for path in _SOCKETS if path.is_socket())
    return os.environ.get("DOCKER_HOST") or next((f"unix://{path}" for path in sockets), "")


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace")


def _unreachable(host: str, reason: str) -> str:
    where = f" at {host}" if host else ""
    return (
        f"environment 'docker': the Docker daemon{where} cannot be used: {reason}. Is it installed and "
        "running (docker info)? May this user reach its socket (group docker)? Is DOCKER_HOST right?"
    )
