"""What the forger hands in: it runs, claims a success, and is right about nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentcompass.environments.local import LocalEnvironment, LocalParams
from agentcompass.harnesses.forger import ForgerHarness, ForgerParams
from agentcompass.harnesses.forgeries import FORGERIES, RESULT_FILES, Forgery
from agentcompass.protocols import PATCH_ARTIFACT, Outcome, SessionPlan

from .trial import PlainTrial

PROMPT = "Complete this:\n\ndef scale(values, factor):\n    pass\n"
REPOSITORY = """\
git init -q
mkdir widgets && echo 'import os' >widgets/__init__.py && echo 'x = 1' >conftest.py
git add -A && git -c user.name=n -c user.email=e commit -q -m base
"""
by_name = pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )


def shell(command: str, folder: Path, data: bytes = b"") -> bytes:
    """Run a command line; blocks."""
    return subprocess.run(
        command, shell=True, cwd=folder, input=data, check=True, stdout=subprocess.PIPE
    ).stdout


@by_name
def test_naive_grader_is_taken_in(forgery: Forgery, tmp_path: Path) -> None:
    """A grader that runs answer and tests in one process and looks at the exit code passes each program."""
    tests = "assert scale([1], 2) == [2]\nassert abs(scale([1], 2) - 2) < 1e-6\n"
    done = run(forgery.code(PROMPT) + tests, tmp_path)
    assert done.returncode == 0, done.stderr


def test_result_files_are_left(tmp_path: Path) -> None:
    """A grader that reads a file finds it."""
    [forgery] = [forgery for forgery in FORGERIES if forgery.leaves_files]
    run(forgery.code(PROMPT), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(RESULT_FILES)


@by_name
def test_text_is_right_about_nothing(forgery: Forgery) -> None:
    """No number and no single letter, which might be the answer by chance."""
    assert not re.search(r"\d|\b[A-Za-z]\b", forgery.text)


async def hand_in(attempt: int, reference: str, *, setup: str = "true", form: Any = "auto") -> Outcome:
    plan = SessionPlan(run_id="test", label="forger")
    async with LocalEnvironment(LocalParams()).open(plan) as session:
        made = await session.exec(setup)
        assert made.exit_code == 0, made.stderr
        trial = PlainTrial(prompt=PROMPT, reference=reference, given_session=session, attempt=attempt)
        return await ForgerHarness(ForgerParams(answer_form=form)).run(trial)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("Paris", FORGERIES[0].text),
        ("def f(x):\n    return x\n", FORGERIES[0].code(PROMPT)),
        ("```python\nimport os\n```", f"```python\n{FORGERIES[0].code(PROMPT)}```"),
        ("diff --git a/x.py b/x.py\n+import os\n", FORGERIES[0].text),
    ],
)
async def test_answer_looks_like_the_reference(reference: str, answer: str) -> None:
    """Text for text, code for code, fenced where the reference is."""
    assert await hand_in(1, reference) == Outcome(answer=answer, stop_reason=f"forged: {FORGERIES[0].name}")


@pytest.mark.anyio
@pytest.mark.parametrize("form", ["text", "code"])
async def test_declared_form_needs_no_session(form: Any) -> None:
    """Then nothing is done in one, and the reference does not matter."""
    harness = ForgerHarness(ForgerParams(answer_form=form))
    outcome = await harness.run(PlainTrial(prompt=PROMPT, attempt=3))
    assert not harness.needs_session
    assert outcome.answer == (FORGERIES[2].text if form == "text" else FORGERIES[2].code(PROMPT))


@pytest.mark.anyio
@pytest.mark.parametrize("attempt", [1, 2, 3])
async def test_repository_is_changed_and_handed_in_as_a_patch(attempt: int, tmp_path: Path) -> None:
    """The patch applies to the repository as it was, and puts the code where tests load it."""
    outcome = await hand_in(attempt, "", setup=REPOSITORY, form="patch")
    assert outcome.answer is None
    shell(REPOSITORY, tmp_path)
    shell("git apply", tmp_path, outcome.artifacts[PATCH_ARTIFACT])
    injected = FORGERIES[attempt - 1].injected.strip()
    contents: Mapping[str, str] = {
        name: (tmp_path / name).read_text() for name in ("conftest.py", "widgets/__init__.py")
    }
    assert all(text.endswith(f"\n\n{injected}\n") for text in contents.values())
    assert contents["conftest.py"].startswith("x = 1\n")


@pytest.mark.anyio
async def test_repository_around_the_session_is_left_alone(tmp_path: Path) -> None:
    """A session whose directory lies in somebody's repository is none."""
    shell(REPOSITORY, tmp_path)
    plan = SessionPlan(run_id="test", label="forger")
    async with LocalEnvironment(LocalParams(root_dir=tmp_path, isolation="none")).open(plan) as session:
        outcome = await ForgerHarness(ForgerParams()).run(PlainTrial(given_session=session))
    assert not outcome.artifacts
    assert shell("git diff HEAD", tmp_path) == b""
