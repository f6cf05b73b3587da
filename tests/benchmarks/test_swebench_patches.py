"""Predictions: found among what agents hand in, and kept byte by byte."""

from __future__ import annotations

import pytest

from agentcompass.benchmarks.swebench.patches import (
    created_files,
    prediction,
    target_files,
    touches_git_directory,
)
from agentcompass.protocols import PATCH_ARTIFACT, Outcome

PATCH = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x\n+y\n"


@pytest.mark.parametrize(
    "answer",
    [
        PATCH,
        PATCH.rstrip("\n"),
        f"Done.\n\n```diff\n{PATCH}```\n",
        f"```diff\nold\n```\nbetter:\n~~~~patch\n{PATCH}~~~~",
    ],
)
def test_patch_is_found_in_an_answer(answer: str) -> None:
    """Bare or fenced; the last block counts, and a final newline is added where it is missing."""
    assert prediction(Outcome(answer=answer)) == PATCH.encode()


@pytest.mark.parametrize("ending", [" \n \n", "\r\n", "\\ No newline at end of file\n", "-- \n2.39.5\n\n"])
def test_nothing_is_stripped(ending: str) -> None:
    """Blank context lines, carriage returns and trailers are part of the patch."""
    assert prediction(Outcome(answer=PATCH + ending)) == (PATCH + ending).encode()


def test_artifact_comes_before_the_answer() -> None:
    """Bytes that a harness hands in are taken as they are, also if they are no text."""
    outcome = Outcome(answer="text", artifacts={PATCH_ARTIFACT: b"\xff\xfe\n"})
    assert prediction(outcome) == b"\xff\xfe\n"


@pytest.mark.parametrize("answer", [None, "", " \n\n", "```diff\n\n```"])
def test_blank_is_empty(answer: str | None) -> None:
    """A patch of nothing but blanks is no prediction."""
    assert prediction(Outcome(answer=answer)) == b""


@pytest.mark.parametrize(
    "header",
    [
        "+++ b/.git/hooks/pre-commit",
        "--- a/sub/.git/config",
        "diff --git a/x b/.git",
        'rename to ".git/config"',
        "+++ b/.GIT/config\t2021-01-01",
        "+++ .git/config",
        "+++ b/git~1/config",
    ],
)
def test_files_of_the_git_directory_are_seen(header: str) -> None:
    """However a header names them."""
    assert touches_git_directory(f"{header}\n".encode())


@pytest.mark.parametrize(
    "line", ["+++ b/.github/x.yml", "+++ b/.gitignore", "+++ b/a.git/x", "+path = '.git/x'"]
)
def test_other_files_may_speak_of_git(line: str) -> None:
    """Names that only begin so, and content."""
    assert not touches_git_directory(f"{line}\n".encode())


def test_files_of_a_test_patch() -> None:
    """Changed ones and new ones are told apart; deleted ones are neither."""
    patch = (
        f"{PATCH}diff --git a/n.py b/n.py\nnew file mode 100644\n--- /dev/null\n+++ b/n.py\n"
        "@@ -0,0 +1 @@\n+x\n"
        "diff --git a/d.py b/d.py\ndeleted file mode 100644\n--- a/d.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    )
    assert created_files(patch) == ["n.py"]
    assert target_files(patch) == ["a.py", "n.py"]
