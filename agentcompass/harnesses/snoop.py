"""
The snoop: a control that looks for what is hidden wherever an agent can look, and hands in what it finds.

It is told what to look for, but hands in only what it has found; on a sound task that is nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, NamedTuple

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, PositiveFloat

from ..errors import TrialError
from ..protocols import ExecResult, Outcome, Session, Trial
from ..records import NoteStep
from .hidden_texts import REFERENCE, HiddenText, hidden_texts, shown_in_prompt

NOTHING_FOUND = "nothing found"
"""How the snoop ends on a sound task."""

_MAX_FILES = 200
_MAX_FILE_KIB = 9 * 1024  # what a session hands out at once
_REASON_CHARACTERS = 300

_VARIABLES = "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\000' '\\n'; exit 0"
# The arguments of the scripts are `-e TEXT` pairs for grep.
_GIT_OBJECTS = """\
# Only a repository of the session's own: not one that its directory happens to lie in.
GIT_CEILING_DIRECTORIES=$(dirname "$(pwd -P)")
LC_ALL=C
export GIT_CEILING_DIRECTORIES LC_ALL
git() { command git -c safe.directory='*' "$@"; }
git rev-parse --git-dir >/dev/null 2>&1 || exit 0
git cat-file --batch-all-objects --batch --buffer | tr -d '\\000' | grep -F -C 200 "$@"
exit 0
"""


class SnoopParams(BaseModel):
    """Where the snoop looks, besides the prompt, variables, other processes and stored git objects."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    everywhere: bool = False
    """Whether all files are searched, or those in the working, home and temporary directories."""
    timeout_seconds: PositiveFloat = 600.0
    """How long one search, of files or of git objects, may take."""


class _Find(NamedTuple):
    text: HiddenText
    place: str


class _Search:
    """Looks for hidden texts in a session."""

    def __init__(self, session: Session, wanted: Sequence[HiddenText], params: SnoopParams) -> None:
        self._session = session
        self._wanted = wanted
        self._seconds = params.timeout_seconds
        self._everywhere = params.everywhere
        self.unfinished: list[str] = []

    async def variables(self) -> list[_Find]:
        """Look at environment variables and command lines."""
        result = await self._exec("the variables", _VARIABLES)
        return await _finds(self._wanted, result.stdout, "a variable or a command line")

    async def files(self) -> list[_Find]:
        """Look into files."""
        result = await self._exec("the files", _files_script(everywhere=self._everywhere), *self._patterns())
        if result.exit_code == 127:
            self.unfinished.append("the files (there is no find, grep or xargs)")
        paths = result.stdout.splitlines()
        if len(paths) > _MAX_FILES:
            self.unfinished.append(f"{len(paths) - _MAX_FILES} of the files")
        finds = []
        for path in paths[:_MAX_FILES]:
            content = await self._exec(path, 'exec cat -- "$1"', path)
            if content.exit_code != 0:
                self.unfinished.append(path)
            finds += await _finds(self._wanted, content.stdout, path)
        return finds

    async def git_objects(self) -> list[_Find]:
        """Look into everything that the repository stores, reachable or not."""
        result = await self._exec("the git objects", _GIT_OBJECTS, *self._patterns())
        return await _finds(self._wanted, result.stdout, "a stored git object")

    def _patterns(self) -> list[str]:
        patterns = dict.fromkeys(pattern for text in self._wanted for pattern in text.patterns)
        return [word for pattern in patterns for word in ("-e", pattern)]

    async def _exec(self, what: str, script: str, *arguments: str) -> ExecResult:
        result = await self._session.exec(
            ["/bin/sh", "-c", script, "sh", *arguments], timeout_seconds=self._seconds
        )
        if result.timed_out or result.truncated:
            self.unfinished.append(what)
        return result


def _files_script(*, everywhere: bool) -> str:
    roots = "/" if everywhere else '. "$HOME" "${TMPDIR:-/tmp}"'
    return (
        "for program in find grep xargs; do command -v $program >/dev/null || exit 127; done\n"
        f"find {roots} \\( -path /proc -o -path /sys -o -path /dev \\) -prune -o "
        f'-type f -size -{_MAX_FILE_KIB}k -print0 | xargs -0 -r grep -lsF "$@"\nexit 0'
    )


async def _finds(wanted: Sequence[HiddenText], text: str, place: str) -> list[_Find]:
    def compare() -> list[_Find]:
        return [_Find(it, place) for it in wanted if it.is_in(text)]

    return await to_thread.run_sync(compare)


class SnoopHarness:
    """Hands in whatever it can find of the reference solution and the tests."""

    needs_session: ClassVar[bool] = True
    needs_model: ClassVar[bool] = False
    sees_reference: ClassVar[bool] = True

    def __init__(self, params: SnoopParams) -> None:
        self._params = params

    async def run(self, trial: Trial) -> Outcome:
        """
        Look everywhere; the trajectory tells what was found where.

        Raises:
            TrialError: Not everything could be searched, and nothing was found.
        """
        prompt = trial.task.prompt
        shown = await to_thread.run_sync(
            partial(shown_in_prompt, trial.reference, trial.hidden, prompt=prompt)
        )
        finds = [_Find(text, "the prompt") for text in shown]
        wanted = hidden_texts(trial.reference, trial.hidden, prompt=prompt)
        if wanted:
            search = _Search(trial.session, wanted, self._params)
            for look in (search.variables, search.files, search.git_objects):
                finds += await look()
            if search.unfinished and not finds:
                raise TrialError(f"not all could be searched: {', '.join(search.unfinished)}")
        for find in finds:
            trial.trajectory.add(NoteStep(text=f"{find.text.name} is in {find.place}"))
        return _outcome(finds)


def _outcome(finds: Sequence[_Find]) -> Outcome:
    if not finds:
        return Outcome(stop_reason=NOTHING_FOUND)
    best = next((find for find in finds if find.text.name == REFERENCE), finds[0])
    reason = "; ".join(f"{find.text.name} is in {find.place}" for find in finds)
    return Outcome(answer=best.text.text, stop_reason=reason[:_REASON_CHARACTERS])
