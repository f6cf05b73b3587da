"""The one network without a way out that all restricted sessions of an environment share."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from typing import Any

import anyio
from aiodocker.exceptions import DockerError
from aiodocker.networks import DockerNetwork

from ...errors import SessionOpenError
from .daemon import FAILURES, Daemon
from .finish import finish

_NO_RESOLVER = "192.0.2.1"
"""An address that nobody has (RFC 5737): names of the outside world are the proxy's to resolve."""


class RestrictedNetwork:
    """
    An internal bridge on which containers reach its gateway, where our proxies listen, but not each other.

    Args:
        labels: Say whose it is.
    """

    def __init__(self, daemon: Daemon, labels: Mapping[str, str]) -> None:
        self._daemon = daemon
        self._labels = labels
        self._lock = anyio.Lock()
        self._network: DockerNetwork | None = None
        self._gateway = ""
        self.name = f"agentcompass-{secrets.token_hex(6)}"

    @property
    def host_config(self) -> dict[str, Any]:
        """What puts a container on it, as part of its configuration."""
        return {
            "NetworkMode": self.name,
            "Dns": [_NO_RESOLVER],
            "DnsOptions": ["timeout:1", "attempts:1"],
        }

    async def listen(self) -> socket.socket:
        """
        Create the network if need be, and return a socket that listens on its gateway.

        Raises:
            SessionOpenError: It cannot be created, or its gateway is not on this machine.
        """
        async with self._lock:
            if self._network is None:
                await finish(self._create)
        listening = socket.socket()
        try:
            listening.bind((self._gateway, 0))
            listening.listen(128)
        except OSError as error:
            listening.close()
            raise SessionOpenError(
                f"no proxy can listen on {self._gateway}, the gateway of the daemon's networks: {error}. "
                "Allowlists and denylists need a daemon on this machine (neither Docker Desktop nor a remote "
                "one); use no-network or public",
                retryable=False,
            ) from error
        return listening

    async def _create(self) -> None:
        config = {
            "Name": self.name,
            "CheckDuplicate": True,
            "Internal": True,
            "Options": {"com.docker.network.bridge.enable_icc": "false"},
            "Labels": dict(self._labels),
        }
        try:
            self._network = await self._daemon.docker.networks.create(config)
            ipam = (await self._network.show())["IPAM"]["Config"]
        except FAILURES as error:
            raise SessionOpenError(f"no network for restricted sessions could be created: {error}") from error
        self._gateway = ipam[0]["Gateway"]

    async def aclose(self) -> None:
        """Remove the network unless a kept container is on it."""
        network, self._network = self._network, None
        if network is not None:
            try:
                await network.delete()
            except DockerError as error:
                if error.status not in (403, 404):  # 403: a container is on it
                    raise
