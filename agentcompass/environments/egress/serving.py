"""Serve the proxy of one session for as long as the session is open."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from ...protocols import SessionPlan
from ..background import background
from .proxy import EgressProxy


@asynccontextmanager
async def egress(plan: SessionPlan, listening: socket.socket) -> AsyncIterator[Mapping[str, str]]:
    """
    Serve a session's proxy on a listening socket, which is closed in the end; what it refuses is noted.

    Yields:
        The environment variables by which the session's programs find it.
    """
    proxy = EgressProxy(plan.network, on_denied=lambda target: plan.note(f"network: refused {target}"))
    host, port = listening.getsockname()
    with listening:  # also if the proxy never gets to serve it
        async with background(proxy.serve, listening):
            yield proxy.variables(host, port)
