"""The snoop searches the whole of a container, with no more tools than busybox has."""

from __future__ import annotations

import pytest

from agentcompass.harnesses.snoop import NOTHING_FOUND, SnoopHarness, SnoopParams

from ..harnesses.test_hidden_texts import HIDDEN, PROMPT, REFERENCE, TESTS
from ..harnesses.trial import PlainTrial
from .environments import docker_environment, plan

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.once]


@pytest.mark.parametrize(
    ("path", "reason"), [("/srv/data/rows", "test is in /srv/data/rows"), ("", NOTHING_FOUND)]
)
async def test_container_is_searched_everywhere(busybox_image: str, path: str, reason: str) -> None:
    """A file far from the working directory is found, and nothing where there is none."""
    async with docker_environment(image=busybox_image) as environment, environment.open(plan()) as session:
        if path:
            await session.write(path, TESTS.encode())
        trial = PlainTrial(prompt=PROMPT, reference=REFERENCE, hidden=HIDDEN, given_session=session)
        assert (await SnoopHarness(SnoopParams(everywhere=True)).run(trial)).stop_reason == reason
