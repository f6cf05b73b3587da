"""The prediction among what an agent handed in, byte by byte as it was."""

from __future__ import annotations

import re

from ...protocols import PATCH_ARTIFACT, Outcome

_FENCED = re.compile(r"^(```+|~~~+)(?:diff|patch)[^\n]*\n(.*?)^\1", re.MULTILINE | re.DOTALL)
_DIFF_START = ("diff ", "--- ", "Index: ", "From ", "index ")
_HEADER = re.compile(
    rb"^(?:diff --git|---|\+\+\+|rename from|rename to|copy from|copy to)[ \t].*$", re.MULTILINE
)
_IN_GIT_DIRECTORY = re.compile(rb"[ \t\"/](?:\.git|git~1)(?:[/\"\s]|$)", re.IGNORECASE)
_CREATED = re.compile(r"^--- /dev/null\n\+\+\+ b/([^\t\n]+)", re.MULTILINE)
_TARGET = re.compile(r"^\+\+\+ b/([^\t\n]+)", re.MULTILINE)


def prediction(outcome: Outcome) -> bytes:
    """
    Return the patch that an agent handed in; empty if there is none.

    It is the artifact, else the answer's text (the last block fenced as a diff, if the answer is no bare
    patch). Nothing is stripped or converted; only a missing final newline, without which no tool takes a
    patch, is added.
    """
    patch = outcome.artifacts.get(PATCH_ARTIFACT)
    if patch is None:
        patch = _from_text(outcome.answer or "").encode("utf-8", "surrogateescape")
    if not patch.strip():
        return b""
    return patch if patch.endswith(b"\n") else patch + b"\n"


def _from_text(answer: str) -> str:
    if answer.lstrip().startswith(_DIFF_START):
        return answer
    blocks = _FENCED.findall(answer)
    return blocks[-1][1] if blocks else answer


def touches_git_directory(patch: bytes) -> bool:
    """Tell whether a patch names a file in ``.git``: hooks and settings there would run in the grading."""
    return any(_IN_GIT_DIRECTORY.search(line) for line in _HEADER.findall(patch))


def created_files(patch: str) -> list[str]:
    """Return the files that a patch of the data set creates."""
    return _CREATED.findall(patch)


def target_files(patch: str) -> list[str]:
    """Return the files that a patch of the data set changes or creates."""
    return _TARGET.findall(patch)
