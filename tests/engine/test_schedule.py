"""Slots go to the first request that can use them, and requests load shortly before their turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskGroup

from agentcompass.engine.limits import ProviderGates
from agentcompass.engine.schedule import LOADED_AHEAD, Lane, Place, Schedule

pytestmark = pytest.mark.anyio


async def settle() -> None:
    """Let everybody run who can."""
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


@contextmanager
def places(schedule: Schedule, *settings: dict[str, object]) -> Iterator[list[Place]]:
    """Have places in this order, all loaded but for those that have to wait."""
    with ExitStack() as stack:
        made = []
        for order, own in enumerate(settings):
            values = {"provider": "local", "cap": None, "weight": None, "lane": None, **own}
            made.append(stack.enter_context(schedule.place(order=order, **values)))  # type: ignore[arg-type]
        yield made


class Feeder:
    """Takes slots for a place, one after another, until it is told to stop."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.borrowers: list[object] = []

    async def run(self, count: int) -> None:
        for _ in range(count):
            borrower = object()
            await self.place.take(borrower)
            self.borrowers.append(borrower)
        self.place.end()

    def free(self) -> None:
        self.place.free(self.borrowers.pop(0))


def start(group: TaskGroup, place: Place, count: int) -> Feeder:
    feeder = Feeder(place)
    group.start_soon(feeder.run, count)
    return feeder


async def test_free_slots_go_to_the_first_request_then_to_the_next() -> None:
    """The second one gets what the first one leaves, and no slot idles at its tail."""
    schedule = Schedule(3)
    with places(schedule, {}, {}) as (first, second):
        async with anyio.create_task_group() as group:
            one = start(group, first, 2)
            await settle()
            two = start(group, second, 4)
            await settle()
            assert (len(one.borrowers), len(two.borrowers)) == (2, 1)
            one.free()
            one.free()
            await settle()
            assert len(two.borrowers) == 3
            two.free()
            await settle()
            assert len(two.borrowers) == 3
    assert schedule.statistics().task_concurrency == 3


async def test_earlier_request_has_precedence_for_every_free_slot() -> None:
    """Whoever waited longer, the one that was declared first goes on."""
    schedule = Schedule(1)
    with places(schedule, {}, {}) as (first, second):
        async with anyio.create_task_group() as group:
            one = start(group, first, 2)
            await settle()
            two = start(group, second, 1)
            await settle()
            one.free()
            await settle()
            assert (len(one.borrowers), len(two.borrowers)) == (1, 0)
            one.free()
            await settle()
            assert len(two.borrowers) == 1


async def test_cap_of_a_request_leaves_slots_to_others() -> None:
    """A request with a cap never exceeds it, and what it cannot use is used."""
    schedule = Schedule(5)
    with places(schedule, {"cap": 1}, {"cap": 1}, {}) as made:
        async with anyio.create_task_group() as group:
            feeders = [start(group, place, 4) for place in made]
            await settle()
            assert [len(feeder.borrowers) for feeder in feeders] == [1, 1, 3]
            group.cancel_scope.cancel()


async def test_requests_with_a_weight_share_in_proportion() -> None:
    """3:1 stays 3:1 while both have work, also as slots come back one by one."""
    schedule = Schedule(8)
    with places(schedule, {"weight": 3.0}, {"weight": 1.0}) as (heavy, light):
        async with anyio.create_task_group() as group:
            one, two = start(group, heavy, 100), start(group, light, 100)
            await settle()
            for _ in range(40):
                (one if one.borrowers else two).free()
                await settle()
                (two if two.borrowers else one).free()
                await settle()
            assert (len(one.borrowers), len(two.borrowers)) == (6, 2)
            group.cancel_scope.cancel()


async def test_waiting_for_one_provider_blocks_no_other() -> None:
    """Attempts that would only wait for a session leave their task slots to requests of other providers."""
    schedule, gates = Schedule(8), ProviderGates()
    with gates.sessions.setting(2):
        lane = Lane(gates, schedule.grant)
        with places(schedule, {"provider": "docker", "lane": lane}, {}) as (docker, local):
            async with anyio.create_task_group() as group:
                one = start(group, docker, 50)
                await settle()
                two = start(group, local, 50)
                await settle()
                assert (len(one.borrowers), len(two.borrowers)) == (1, 7)
                lane.leave(one.borrowers[0])  # it has its session
                two.free()
                await settle()
                assert len(one.borrowers) == 2
                group.cancel_scope.cancel()


async def test_few_requests_are_loaded_ahead() -> None:
    """A thousand requests do not hold their tasks in memory at once; each that is done lets one more load."""
    schedule = Schedule(2)
    with places(schedule, *({} for _ in range(1000))) as made:
        loaded = [place for place in made if place.admitted.is_set()]
        assert loaded == made[:LOADED_AHEAD]
        made[0].end()
        assert made[LOADED_AHEAD].admitted.is_set()
        assert not made[LOADED_AHEAD + 1].admitted.is_set()


async def test_requests_of_other_providers_load_at_once() -> None:
    """Each provider has its own queue."""
    with places(Schedule(2), {}, {}, {}, {"provider": "docker"}) as made:
        assert [place.admitted.is_set() for place in made] == [True, True, False, True]


async def test_later_request_waits_while_an_earlier_one_loads() -> None:
    """The order of declaration does not depend on who loads faster."""
    schedule = Schedule(2)
    with places(schedule, {}, {}) as (slow, fast):
        async with anyio.create_task_group() as group:
            two = start(group, fast, 1)
            await settle()
            assert two.borrowers == []
            one = start(group, slow, 5)
            await settle()
            assert (len(one.borrowers), len(two.borrowers)) == (2, 0)
            group.cancel_scope.cancel()


async def test_pause_starts_nothing_and_resume_goes_on() -> None:
    """What is live keeps its slots meanwhile."""
    schedule = Schedule(2)
    with places(schedule, {}) as (only,):
        async with anyio.create_task_group() as group:
            feeder = start(group, only, 3)
            await settle()
            schedule.pause()
            feeder.free()
            await settle()
            assert (len(feeder.borrowers), schedule.statistics().paused) == (1, True)
            schedule.resume()
            await settle()
            assert len(feeder.borrowers) == 2


async def test_total_can_be_changed() -> None:
    """More slots are handed out at once; fewer are waited for."""
    schedule = Schedule(1)
    with places(schedule, {}) as (only,):
        async with anyio.create_task_group() as group:
            feeder = start(group, only, 5)
            await settle()
            schedule.set_total(3)
            await settle()
            assert len(feeder.borrowers) == 3
            schedule.set_total(1)
            feeder.free()
            feeder.free()
            await settle()
            assert len(feeder.borrowers) == 1
            group.cancel_scope.cancel()


async def test_cancelled_waiter_keeps_no_slot() -> None:
    """Cancelled at the same time as the slot is granted."""
    schedule = Schedule(1)
    with places(schedule, {}, {}) as (first, second):
        holder = object()
        await first.take(holder)
        async with anyio.create_task_group() as group:
            late = start(group, first, 1)
            await settle()
            schedule.free(holder)  # granted now
            group.cancel_scope.cancel()
        assert schedule.statistics().working == len(late.borrowers)
        for borrower in late.borrowers:
            schedule.free(borrower)
        with anyio.fail_after(1):
            await second.take(object())
