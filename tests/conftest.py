"""Fixtures that every test gets: both event loops, and a guard against blocking them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import settings

# CI tries the same examples each time: a newly found one must not block an unrelated change.
settings.register_profile("default-here", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("default-here")

_IN_CONTAINERS = ("tests/docker/", "tests/swebench/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What happens in containers is long, and tells little about the Python that runs it."""
    for item in items:
        if item.nodeid.startswith(_IN_CONTAINERS) or "[docker-" in item.nodeid:
            item.add_marker(pytest.mark.once)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run each async test on both backends; parametrize ``anyio_backend`` where only one fits."""
    backend: str = request.param
    return backend


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what tests cache out of the user's cache, and the user's configuration out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("AGENTCOMPASS_CONFIG", "")
        yield


@pytest.fixture(autouse=True)
def guard_event_loop() -> Iterator[BlockBuster]:
    """Fail a test that blocks the event loop."""
    with blockbuster_ctx("agentcompass") as guard:
        yield guard
