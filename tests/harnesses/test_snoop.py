"""The snoop finds what is hidden wherever it lies, and nothing where nothing lies."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from agentcompass.environments.local import LocalEnvironment, LocalParams
from agentcompass.errors import TrialError
from agentcompass.harnesses.snoop import NOTHING_FOUND, SnoopHarness, SnoopParams
from agentcompass.protocols import Outcome, Session, SessionPlan
from agentcompass.records import NoteStep

from .test_hidden_texts import HIDDEN, PROMPT, REFERENCE, TESTS
from .trial import PlainTrial

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def session(**params: Any) -> AsyncIterator[Session]:
    plan = SessionPlan(run_id="test", label="snoop")
    async with LocalEnvironment(LocalParams(**params)).open(plan) as opened:
        yield opened


def trial_in(opened: Session, prompt: str = PROMPT) -> PlainTrial:
    return PlainTrial(prompt=prompt, reference=REFERENCE, hidden=HIDDEN, given_session=opened)


async def snoop(opened: Session, prompt: str = PROMPT) -> Outcome:
    return await SnoopHarness(SnoopParams()).run(trial_in(opened, prompt))


async def test_snoop_finds_nothing_where_nothing_lies() -> None:
    """Not in an ordinary session with the function to complete in it, nor in its own search."""
    async with session() as opened:
        await opened.write("solution.py", HIDDEN["prompt"].encode())
        assert await snoop(opened) == Outcome(stop_reason=NOTHING_FOUND)


async def test_snoop_hands_in_the_solution_of_a_file() -> None:
    """Also from a hidden file at home, among other fields as JSON; the trajectory says where."""
    async with session() as opened:
        await opened.exec('cat >"$HOME/.task.json"', stdin=json.dumps([HIDDEN, {"x": REFERENCE}]).encode())
        trial = trial_in(opened)
        outcome = await SnoopHarness(SnoopParams()).run(trial)
    assert outcome.answer == REFERENCE
    notes = [step.text for step in trial.trajectory.steps if isinstance(step, NoteStep)]
    assert [note.partition(" is in ")[0] for note in notes] == ["reference", "test"]
    assert all(note.endswith("/.task.json") for note in notes)


async def test_snoop_hands_in_tests_of_the_prompt() -> None:
    """Where the solution cannot be had."""
    async with session() as opened:
        outcome = await snoop(opened, PROMPT + TESTS)
    assert (outcome.answer, outcome.stop_reason) == (TESTS, "test is in the prompt")


async def test_snoop_reads_variables() -> None:
    """An environment variable is as readable as a file."""
    async with session(env={"TASK": TESTS}) as opened:
        outcome = await snoop(opened)
    assert outcome.stop_reason == "test is in a variable or a command line"


async def test_snoop_reads_what_git_stores() -> None:
    """Also objects that no commit leads to."""
    async with session() as opened:
        made = await opened.exec("git init -q && git hash-object -w --stdin", stdin=TESTS.encode())
        assert made.exit_code == 0
        assert (await snoop(opened)).stop_reason == "test is in a stored git object"


async def test_repository_around_the_session_is_not_searched(tmp_path: Path) -> None:
    """It is somebody's own, and an agent that is kept in its session cannot see it."""
    command = "git init -q && git hash-object -w --stdin"
    await to_thread.run_sync(
        lambda: subprocess.run(command, shell=True, cwd=tmp_path, input=TESTS.encode(), check=True)
    )
    async with session(root_dir=tmp_path, isolation="none") as opened:
        assert (await snoop(opened)).stop_reason == NOTHING_FOUND


async def test_search_that_is_cut_short_is_no_all_clear() -> None:
    """What was not looked at is missing data."""
    async with session(env={"PATH": "slow:/usr/bin:/bin"}) as opened:
        await opened.write("slow/find", b"#!/bin/sh\nsleep 60\n", executable=True)
        slow = SnoopHarness(SnoopParams(timeout_seconds=0.15))
        with pytest.raises(TrialError, match=r"not all could be searched: .*the files"):
            await slow.run(trial_in(opened))


async def test_machine_without_tools_is_no_all_clear() -> None:
    """Neither is one that cannot be searched."""
    async with session(env={"PATH": "/nowhere"}) as opened:
        with pytest.raises(TrialError, match="there is no find"):
            await snoop(opened)
