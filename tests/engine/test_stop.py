"""How long what must still be finished may take."""

from __future__ import annotations

import anyio
import pytest
import trio.testing

from agentcompass.engine.stop import GRACE_SECONDS, HASTY_GRACE_SECONDS, StopControl

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize(
        "anyio_backend", [("trio", {"clock": trio.testing.MockClock(autojump_threshold=0)})], ids=["trio"]
    ),
]


async def _seconds_under_shield(stop: StopControl) -> float:
    """Hang under a shield and tell how long that lasted."""
    before = anyio.current_time()
    with stop.shield():
        await anyio.sleep_forever()
    return anyio.current_time() - before


async def test_what_hangs_ends_a_grace_period_after_the_deadline(anyio_backend: object) -> None:
    """A deadline of the work bounds the finishing as well, whether that began before or after it."""
    stop = StopControl()
    with stop.work(deadline=anyio.current_time() + 20):
        assert await _seconds_under_shield(stop) == pytest.approx(20 + GRACE_SECONDS)
    assert await _seconds_under_shield(stop) == pytest.approx(GRACE_SECONDS)


async def test_what_hangs_ends_a_grace_period_after_a_stop(anyio_backend: object) -> None:
    """A stop bounds the finishing, and a second one shortens it."""
    stop = StopControl()
    stop.request()
    assert await _seconds_under_shield(stop) == pytest.approx(GRACE_SECONDS)
    stop.request()
    assert await _seconds_under_shield(stop) == pytest.approx(HASTY_GRACE_SECONDS)


async def test_nothing_is_hurried_without_reason(anyio_backend: object) -> None:
    """Without a stop and without a deadline a slow disk is waited for."""
    stop = StopControl()
    with anyio.move_on_after(100_000), stop.shield() as finishing:
        with anyio.move_on_after(10_000):
            await anyio.sleep_forever()
    assert not finishing.cancelled_caught
