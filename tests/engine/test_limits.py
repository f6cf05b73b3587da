"""Provider slots and open rates hold across event loops, and a cancelled waiter leaves no trace."""

from __future__ import annotations

import math
import threading

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread

from agentcompass.clock import ManualClock
from agentcompass.engine.limits import SharedLimiter, TokenBucket, open_provider_settings

pytestmark = pytest.mark.anyio


async def wait_until_waiting(limiter: SharedLimiter, count: int) -> None:
    """Wait for a state of the limiter."""
    with anyio.fail_after(5):
        while limiter.statistics().waiting != count:
            await anyio.lowlevel.checkpoint()


async def test_no_setting_is_no_limit() -> None:
    """Without a live setting everyone gets a slot at once."""
    limiter = SharedLimiter()
    async with limiter.slot(), limiter.slot(), limiter.slot():
        assert limiter.statistics().borrowed == 3
        assert limiter.statistics().total == math.inf
    assert limiter.statistics().borrowed == 0


async def test_strictest_live_setting_holds() -> None:
    """Two orchestrations with different settings share the smaller one while both live."""
    limiter = SharedLimiter()
    with limiter.setting(5):
        with limiter.setting(1):
            assert limiter.statistics().total == 1
        assert limiter.statistics().total == 5


async def test_waiters_are_served_in_order() -> None:
    """Slots go to those who wait longest."""
    limiter = SharedLimiter()
    served: list[int] = []

    async def take(number: int) -> None:
        async with limiter.slot():
            served.append(number)

    with limiter.setting(1):
        async with anyio.create_task_group() as group, limiter.slot():
            for number in range(3):
                group.start_soon(take, number)
                await wait_until_waiting(limiter, number + 1)
    assert served == [0, 1, 2]


async def test_cancelled_waiter_leaves_the_queue() -> None:
    """A waiter that is cancelled neither keeps a slot nor a place."""
    limiter = SharedLimiter()

    async def take() -> None:
        async with limiter.slot():
            pytest.fail("must not get a slot")

    with limiter.setting(1):
        async with limiter.slot(), anyio.create_task_group() as group:
            group.start_soon(take)
            await wait_until_waiting(limiter, 1)
            group.cancel_scope.cancel()
        assert limiter.statistics().waiting == 0
        assert limiter.statistics().borrowed == 0


async def test_slot_granted_to_a_cancelled_waiter_goes_on() -> None:
    """When a slot is granted and its waiter cancelled in the same instant, the slot is free again."""
    limiter = SharedLimiter()
    with limiter.setting(1):
        async with anyio.create_task_group() as group:
            async with limiter.slot():
                group.start_soon(limiter.slot().__aenter__)
                await wait_until_waiting(limiter, 1)
            group.cancel_scope.cancel()
        assert limiter.statistics().borrowed == 0


async def test_limit_holds_across_threads(anyio_backend: str) -> None:
    """Event loops in two threads together never hold more than the limit."""
    limiter = SharedLimiter()
    peak, live, lock = 0, 0, threading.Lock()

    async def use() -> None:
        nonlocal peak, live
        for _ in range(50):
            async with limiter.slot():
                with lock:
                    live += 1
                    peak = max(peak, live)
                await anyio.lowlevel.checkpoint()
                with lock:
                    live -= 1

    async def several() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(use)

    with limiter.setting(2):
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(to_thread.run_sync, lambda: anyio.run(several, backend=anyio_backend))
    assert peak == 2
    assert limiter.statistics().borrowed == 0


async def test_tokens_come_at_the_rate() -> None:
    """Ten tokens at 10/s take 0.9 s: the first at once, the others 0.1 s apart."""
    bucket, clock = TokenBucket(), ManualClock(jumping=True)
    with bucket.setting(10):
        for _ in range(10):
            await bucket.wait(clock)
    assert clock.now() - 1000 == pytest.approx(0.9)


async def test_unset_bucket_never_waits() -> None:
    """A rate of 0 is off."""
    bucket, clock = TokenBucket(), ManualClock()
    for _ in range(100):
        await bucket.wait(clock)
    assert clock.slept == []


async def test_cancelled_waiter_gives_its_token_back() -> None:
    """The next one who asks gets the slot in time that a cancelled waiter had reserved."""
    bucket, clock = TokenBucket(), ManualClock()
    with bucket.setting(1):
        await bucket.wait(clock)
        async with anyio.create_task_group() as group:
            group.start_soon(bucket.wait, clock)
            while not clock.sleeping():
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        async with anyio.create_task_group() as group:
            group.start_soon(bucket.wait, clock)
            while len(clock.slept) < 2:
                await anyio.lowlevel.checkpoint()
            clock.advance(1)
    assert clock.slept == [pytest.approx(1.0), pytest.approx(1.0)]


async def test_default_rates_by_provider(anyio_backend: str) -> None:
    """Local and docker open without pacing; other providers ten times a second."""
    for provider, expected in [("local", 0), ("docker", 0), (f"cloud-{anyio_backend}", 1)]:
        with open_provider_settings(limits={}, open_qps={}) as settings:
            gates = settings.gates(provider)
            clock = ManualClock(jumping=True)
            await gates.opens.wait(clock)
            await gates.opens.wait(clock)
            assert len(clock.slept) == expected
