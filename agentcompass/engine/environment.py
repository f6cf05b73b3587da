"""Release what the sessions of a request shared."""

from __future__ import annotations

import anyio

from ..logs import current_log
from ..protocols import ClosableEnvironment, Environment

_CLOSE_SECONDS = 30.0


async def close_environment(environment: Environment, *, within_seconds: float = _CLOSE_SECONDS) -> None:
    """Close an environment if it can be closed, cancelled or not; what goes wrong is logged, not raised."""
    if not isinstance(environment, ClosableEnvironment):
        return
    error: Exception | None = None
    with anyio.move_on_after(within_seconds, shield=True) as closing:
        try:
            await environment.aclose()
        except Exception as raised:  # noqa: BLE001  # the results exist already
            error = raised
    if error is not None or closing.cancelled_caught:
        reason = str(error) if error else f"took longer than {within_seconds:g} s"
        current_log().warning("environment_close_failed", error=reason)
