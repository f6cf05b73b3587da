"""Local sessions, and a way to be nobody in particular, so that permissions mean something to root."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agentcompass.environments.local import LocalEnvironment, LocalParams
from agentcompass.environments.local_session import LocalSession
from agentcompass.protocols import SessionPlan

NOBODY = 65534
PLAN = SessionPlan(run_id="run", label="task 1")


@pytest.fixture
def root_dir(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


@pytest.fixture
def environment(root_dir: Path) -> LocalEnvironment:
    return LocalEnvironment(LocalParams(root_dir=root_dir, isolation="none"))


@pytest.fixture
async def session(environment: LocalEnvironment) -> AsyncIterator[LocalSession]:
    async with environment.open(PLAN) as opened:
        yield opened


@pytest.fixture
def unprivileged_dir() -> Iterator[Path]:
    """A directory whose owner, without privileges, is who this process is during the test."""
    path = Path(tempfile.mkdtemp())
    if os.getuid() == 0:
        os.chown(path, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield path
    finally:
        if os.getresuid()[2] == 0:
            os.setresuid(0, 0, 0)
        shutil.rmtree(path, ignore_errors=True)
