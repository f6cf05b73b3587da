"""When calls are tried again, and how long they wait first."""

from __future__ import annotations

from random import Random

import anyio
import pytest

from agentcompass.errors import ModelAuthError, ModelError, ModelUnavailableError, RateLimitedError
from agentcompass.llm.mock_server import MockReply
from agentcompass.llm.retry import Pacing
from agentcompass.protocols import Reply

from .endpoints import FakeClock, always, one_by_one, open_setup

pytestmark = pytest.mark.anyio

BUSY = MockReply(status=503)
LIMITED = MockReply(status=429, headers={"Retry-After": "2"})


@pytest.mark.parametrize("max_retries", range(4))
@pytest.mark.parametrize("failures", range(4))
async def test_call_succeeds_iff_its_retries_cover_the_failures(failures: int, max_retries: int) -> None:
    """N retries mean min(failures, N) + 1 requests, each of them metered."""
    async with open_setup(one_by_one([BUSY] * failures), max_retries=max_retries) as setup:
        if failures <= max_retries:
            reply = await setup.ask()
            assert reply.usage == setup.calls.total
        else:
            with pytest.raises(ModelUnavailableError):
                await setup.ask()
        assert len(setup.server.requests) == min(failures, max_retries) + 1
    assert setup.calls.total.calls == len(setup.server.requests)
    assert setup.calls.total.failed_calls == min(failures, max_retries + 1)


async def test_hopeless_failure_is_not_tried_again() -> None:
    """A wrong key stays wrong."""
    async with open_setup(always(status=401), max_retries=3) as setup:
        with pytest.raises(ModelAuthError):
            await setup.ask()
        assert len(setup.server.requests) == 1
    assert setup.clock.slept == []


async def test_malformed_replies_are_tried_again_and_billed() -> None:
    """The usage of the good reply covers the billed malformed ones before it."""
    malformed = MockReply(body={"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1}})
    async with open_setup(one_by_one([malformed] * 2)) as setup:
        reply = await setup.ask()
    assert reply.text == "ok"
    assert (reply.usage.calls, reply.usage.failed_calls) == (3, 2)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (24, 7)


async def test_pauses_grow_up_to_a_limit() -> None:
    """Pauses are drawn from a window that doubles, and are never longer than a minute."""
    clock = FakeClock()
    pacing = Pacing(max_retries=200, clock=clock, rng=Random(7))
    with pytest.raises(ModelUnavailableError):
        await pacing.run(fails)
    assert len(clock.slept) == 200
    assert all(pause <= min(60, 0.5 * 2**n) for n, pause in enumerate(clock.slept))
    assert max(clock.slept) > 50


async def fails() -> Reply:
    raise ModelUnavailableError("down")


async def test_asked_pause_is_kept_and_spread() -> None:
    """Calls that were refused together return neither early nor together."""
    returns = [await seconds_until_return(seed) for seed in range(40)]
    assert min(returns) >= 2
    assert max(returns) <= 2 * 1.25
    assert max(returns) - min(returns) >= 0.2 * 2


async def seconds_until_return(seed: int) -> float:
    clock = FakeClock()
    pacing = Pacing(max_retries=1, clock=clock, rng=Random(seed))
    refusals = iter([RateLimitedError("busy", retry_after_seconds=2.0)])

    async def refused_once() -> Reply:
        for refusal in refusals:
            raise refusal
        return Reply(text=f"{clock.now()}")

    return float((await pacing.run(refused_once)).text)


async def test_pause_of_zero_falls_back_to_our_own() -> None:
    """Otherwise everybody would return at once."""
    clock = FakeClock()
    pacing = Pacing(max_retries=30, clock=clock, rng=Random(1))

    async def refused() -> Reply:
        raise RateLimitedError("busy", retry_after_seconds=0.0)

    with pytest.raises(RateLimitedError):
        await pacing.run(refused)
    assert len(set(clock.slept)) == 30
    assert min(clock.slept) > 0


async def test_asked_pause_holds_for_the_other_calls_too() -> None:
    """A call that starts while the endpoint wants quiet waits it out, and costs no request before."""
    async with open_setup(one_by_one([LIMITED]), max_retries=0) as setup:
        with pytest.raises(RateLimitedError):
            await setup.ask()
        assert setup.clock.slept == []
        await setup.ask()
        assert 2 <= sum(setup.clock.slept) <= 2.5
        await setup.ask()
        assert 2 <= sum(setup.clock.slept) <= 2.5


async def test_many_calls_wait_out_one_pause_each_at_its_own_time() -> None:
    """The first refusal holds all later calls back, and their returns are spread."""
    clock = StoppedClock()
    pacing = Pacing(max_retries=0, clock=clock, rng=Random(3))

    async def refused() -> Reply:
        raise RateLimitedError("busy", retry_after_seconds=10.0)

    with pytest.raises(RateLimitedError):
        await pacing.run(refused)
    async with anyio.create_task_group() as group:
        for _ in range(40):
            group.start_soon(pacing.run, refused)
        await anyio.wait_all_tasks_blocked()
        assert len(clock.asked) == 40
        assert min(clock.asked) >= 10
        assert max(clock.asked) - min(clock.asked) >= 2
        group.cancel_scope.cancel()


class StoppedClock(FakeClock):
    """Nobody who sleeps wakes up."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        await anyio.sleep_forever()


async def test_pause_of_the_endpoint_is_told_in_the_error() -> None:
    """Whoever retries the trial may want to know."""
    async with open_setup(always(status=429, headers={"Retry-After": "2"}), max_retries=0) as setup:
        with pytest.raises(ModelError) as caught:
            await setup.ask()
    assert caught.value.retry_after_seconds == 2
