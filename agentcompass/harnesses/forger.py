"""The forger: a control that claims a success and solves nothing, so every sound task must score 0."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from ..errors import HarnessError
from ..protocols import PATCH_ARTIFACT, Outcome, Session, Trial
from .forgeries import FORGERIES, RESULT_FILES, Forgery

_NO_REPOSITORY = 3
_COMMAND_SECONDS = 300.0
_MAX_PACKAGES = 20
_INJECT = f"""\
code=$(cat)
# Only a repository of the session's own: not one that its directory happens to lie in.
GIT_CEILING_DIRECTORIES=$(dirname "$(pwd -P)")
export GIT_CEILING_DIRECTORIES
printf '\\n%s\\n' "$code" >> conftest.py
git() {{ command git -c safe.directory='*' "$@"; }}
git rev-parse --git-dir >/dev/null 2>&1 || exit {_NO_REPOSITORY}
git ls-files -- '*__init__.py' | head -n {_MAX_PACKAGES} | while IFS= read -r file; do
    printf '\\n%s\\n' "$code" >> "$file"
done
git add -A -N . && git diff --binary
"""
_DIFF = re.compile(r"^(?:diff |--- |Index: )", re.MULTILINE)
_PYTHON = re.compile(
    r"^[ \t]*(?:(?:async )?def \w+ ?\(|class \w+ ?[:(]|import \w|from [\w.]+ import )", re.MULTILINE
)


class ForgerParams(BaseModel):
    """What kind of answer is forged."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    answer_form: Literal["auto", "text", "code", "patch"] = "auto"
    """What agents hand in; ``auto``: as the reference looks, and a patch where a repository is."""


class ForgerHarness:
    """Hands in forged successes: another one on each of the first three attempts."""

    needs_session: ClassVar[bool] = True
    needs_model: ClassVar[bool] = False
    sees_reference: ClassVar[bool] = True
    """To hand in what looks like an answer."""

    def __init__(self, params: ForgerParams) -> None:
        self._form = params.answer_form
        if self._form in {"text", "code"}:
            self.needs_session = False  # type: ignore[misc]  # nothing to do there

    async def run(self, trial: Trial) -> Outcome:
        """
        Hand in the forgery of this attempt.

        Raises:
            HarnessError: The repository in the session cannot be changed.
        """
        forgery = FORGERIES[(trial.attempt - 1) % len(FORGERIES)]
        patch = await _inject(forgery, trial.session) if self.needs_session else b""
        answer = None if self._form == "patch" and patch else self._answer(forgery, trial)
        artifacts = {PATCH_ARTIFACT: patch} if patch else {}
        return Outcome(answer=answer, artifacts=artifacts, stop_reason=f"forged: {forgery.name}")

    def _answer(self, forgery: Forgery, trial: Trial) -> str:
        reference = trial.reference or ""
        is_code = self._form == "code" or (
            self._form == "auto" and bool(_PYTHON.search(reference)) and not _DIFF.search(reference)
        )
        if not is_code:
            return forgery.text
        code = forgery.code(trial.task.prompt)
        return f"```python\n{code}```" if "```" in reference else code


async def _inject(forgery: Forgery, session: Session) -> bytes:
    """Leave the forgery in the session; return it as a patch if there is a repository, else nothing."""
    for name, text in RESULT_FILES.items() if forgery.leaves_files else ():
        await session.write(name, text.encode())
    result = await session.exec(_INJECT, stdin=forgery.injected.encode(), timeout_seconds=_COMMAND_SECONDS)
    if result.exit_code == _NO_REPOSITORY:
        return b""
    if result.exit_code != 0 or result.truncated:
        tail = result.stderr.strip()[-500:]
        raise HarnessError(f"the repository cannot be changed (exit code {result.exit_code}): {tail}")
    return result.stdout_bytes
