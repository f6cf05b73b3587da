"""The outage breaker: it opens on a run of like failures, probes, and gives up."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from agentcompass.clock import ManualClock
from agentcompass.engine.outage import FAILURES_IN_A_ROW, FIRST_PAUSE_SECONDS, OutageBreaker
from agentcompass.errors import ModelUnavailableError, OutageError, SessionOpenError

pytestmark = pytest.mark.anyio


class Watched:
    """A breaker with a manual clock and what it told."""

    def __init__(self, *, give_up_seconds: float = 1000) -> None:
        self.clock = ManualClock()
        self.told: list[bool] = []
        self.breaker = OutageBreaker(
            self.clock,
            give_up_seconds=give_up_seconds,
            on_change=lambda down, _error: self.told.append(down),
        )

    def fail(self, times: int = FAILURES_IN_A_ROW) -> None:
        for _ in range(times):
            self.breaker.note_failure(ModelUnavailableError("down"))


@pytest.fixture
def watched() -> Watched:
    return Watched()


async def test_stays_closed_below_the_threshold(watched: Watched) -> None:
    """Nine failures in a row admit the next trial at once."""
    watched.fail(FAILURES_IN_A_ROW - 1)
    await watched.breaker.wait_admission()
    assert watched.told == []


async def test_success_between_starts_the_count_again(watched: Watched) -> None:
    """Failures with a success between are no outage."""
    watched.fail(FAILURES_IN_A_ROW - 1)
    watched.breaker.note_success()
    watched.fail(FAILURES_IN_A_ROW - 1)
    assert not watched.breaker.statistics().down


async def test_other_error_class_starts_the_count_again(watched: Watched) -> None:
    """Failures of different kinds are no outage."""
    watched.fail(FAILURES_IN_A_ROW - 1)
    watched.breaker.note_failure(SessionOpenError("no"))
    watched.fail(FAILURES_IN_A_ROW - 1)
    assert not watched.breaker.statistics().down


async def test_admits_one_probe_after_the_pause(watched: Watched) -> None:
    """While down exactly one trial at a time gets through, after the pause."""
    admitted: list[int] = []

    async def trial(number: int) -> None:
        await watched.breaker.wait_admission()
        admitted.append(number)

    watched.fail()
    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(trial, number)
        while watched.clock.sleeping() < 3:
            await anyio.lowlevel.checkpoint()
        assert admitted == []
        watched.clock.advance(FIRST_PAUSE_SECONDS)
        while not admitted:
            await anyio.lowlevel.checkpoint()
        assert watched.breaker.statistics().probing
        watched.breaker.note_success()
    assert sorted(admitted) == [0, 1, 2]
    assert watched.told == [True, False]


async def test_failed_probe_doubles_the_pause(watched: Watched) -> None:
    """Probes come at growing intervals."""
    watched.fail()
    watched.clock.advance(FIRST_PAUSE_SECONDS)
    await watched.breaker.wait_admission()
    watched.fail(1)
    async with anyio.create_task_group() as group:
        group.start_soon(watched.breaker.wait_admission)
        while not watched.clock.sleeping():
            await anyio.lowlevel.checkpoint()
        assert watched.clock.slept == [FIRST_PAUSE_SECONDS * 2]
        watched.clock.advance(FIRST_PAUSE_SECONDS * 2)


async def test_gives_up_after_the_limit() -> None:
    """An outage that lasts too long ends the request with an error that names the last failure."""
    watched = Watched(give_up_seconds=60)
    watched.fail()
    watched.clock.advance(61)
    with pytest.raises(OutageError, match="ModelUnavailableError: down"):
        await watched.breaker.wait_admission()


async def test_cancelled_probe_lets_another_one_through(watched: Watched) -> None:
    """A probe that ends without a result does not block the others for ever."""
    watched.fail()
    watched.clock.advance(FIRST_PAUSE_SECONDS)
    await watched.breaker.wait_admission()
    watched.breaker.note_abandoned()
    with anyio.fail_after(1):
        await watched.breaker.wait_admission()
