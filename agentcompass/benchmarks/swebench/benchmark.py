"""The benchmarks of the SWE-bench family: rows become tasks, sessions are set up, predictions fetched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from anyio import to_thread

from ..._version import InstalledVersion
from ...errors import (
    ConfigError,
    HarnessError,
    SessionError,
    SessionFileNotFoundError,
    TransferError,
    nearest,
)
from ...protocols import PATCH_ARTIFACT, Outcome, Session, Task
from ..hub import HubFile, fetch
from .examiner import SweBenchExaminer
from .official import WORKDIR, plan_tests
from .params import SweBenchParams
from .published import LITE, MULTILINGUAL, VERIFIED
from .rows import Row, read_rows
from .scripts import take_apart, work_tree_command

PATCH_FILE = "/tmp/solution.patch"  # noqa: S108  # in the session; outside of the work tree
_GRADING_SECONDS = 1800.0
"""For everything around the tests: applying, the control run, parsing."""
_SET_UP_SECONDS = 900.0

_PROMPT = """\
The directory {workdir} holds the source code of {repo}, as it was when the following issue was open. Change
the source so that the issue is resolved.

<issue>
{problem}
</issue>

Hidden tests will check the result, so leave the existing tests as they are. When you are done, save your
change as a patch to {patch_file}, made with git diff from the files that you changed, for example:

    cd {workdir} && git diff -- path/to/changed_file > {patch_file}

The patch should hold only what resolves the issue: no new tests, no scripts of your own, no generated files.
Do not commit.
"""


class SweBench:
    """Any data set in the shape of SWE-bench: name ``dataset`` or ``data_path``."""

    version = InstalledVersion("swebench")
    answer_form: ClassVar[str] = "patch"
    published: ClassVar[HubFile | None] = None
    extra: ClassVar[str] = "swebench"
    """The data set of this benchmark."""

    def __init__(self, params: SweBenchParams) -> None:
        self._params = params
        if params.data_path is None and self._file() is None:
            raise ConfigError("benchmark_params: name data_path (a local file) or dataset (one on the hub)")

    def load(self, data_dir: Path) -> Iterable[Task]:
        """Read the rows, fetching the file if need be, and ask the official package how each is tested."""
        path, file = self._params.data_path, self._file()
        if path is not None:
            rows = read_rows(path, name=f"data_path {str(path)!r}")
        else:
            assert file is not None
            rows = read_rows(fetch(file, data_dir), name=f"{file.repo} ({file.path})")
        self._check_category_field(rows)
        return [self._task(row) for row in rows]

    def verifier(self) -> SweBenchExaminer:
        """Return what grades predictions."""
        return SweBenchExaminer(self._params)

    async def prepare(self, task: Task, session: Session) -> None:
        """
        Hide what came after the base commit: no branch, tag, reflog or stray commit shows it.

        Raises:
            SessionError: The image has no usable repository.
        """
        base = str(task.hidden["row"]["base_commit"])
        result = await session.exec(
            await to_thread.run_sync(work_tree_command, "hide_future", WORKDIR, base),
            cwd="/",
            timeout_seconds=_SET_UP_SECONDS,
        )
        if result.exit_code != 0:
            said = result.stdout.strip()[-500:]
            raise SessionError(
                f"the repository in {WORKDIR} cannot be set up (exit code {result.exit_code}): {said}; is it "
                "the image of this task?",
                phase="prepare",
                retryable=False,
            )

    async def fetch(self, task: Task, outcome: Outcome | None, session: Session) -> Outcome | None:
        """
        Add the patch file that the agent left, unless the harness has handed in a patch itself.

        Raises:
            HarnessError: What lies there is no file, or far too large for a patch.
        """
        if outcome is not None and PATCH_ARTIFACT in outcome.artifacts:
            return outcome
        try:
            patch = await session.read(PATCH_FILE)
        except SessionFileNotFoundError:
            return outcome
        except TransferError as error:
            raise HarnessError(f"the agent left no usable patch: {error}") from error
        outcome = outcome or Outcome()
        return replace(outcome, artifacts={**outcome.artifacts, PATCH_ARTIFACT: patch})

    def _file(self) -> HubFile | None:
        params, published = self._params, self.published
        if params.dataset:
            return HubFile(repo=params.dataset, revision=params.revision or "main", path=params.hub_file)
        if published is not None and params.revision and params.revision != published.revision:
            return HubFile(repo=published.repo, revision=params.revision, path=params.hub_file)
        return published

    def _check_category_field(self, rows: list[Row]) -> None:
        field, known = self._params.category_field, {name for row in rows for name in row.values}
        if field not in known:
            raise ConfigError(
                f"benchmark_params.category_field: no row has a field {field!r}{nearest(field, known)} "
                f"(there are: {', '.join(sorted(known))})"
            )

    def _task(self, row: Row) -> Task:
        plan = plan_tests(row)
        take_apart(plan.script)  # a script without marks is found out now
        problem = row.text("problem_statement")
        prompt = _PROMPT.format(
            workdir=WORKDIR, repo=row.text("repo"), problem=problem.strip(), patch_file=PATCH_FILE
        )
        return Task(
            id=row.text("instance_id"),
            prompt=prompt,
            question=problem,
            category=row.text(self._params.category_field),
            reference=row.text("patch") or None,
            hidden={
                "row": dict(row.values),
                "script": plan.script,
                "parser": plan.parser,
                "eval_type": plan.eval_type,
                "fail_to_pass": row.tests("FAIL_TO_PASS"),
                "pass_to_pass": row.tests("PASS_TO_PASS"),
            },
            image=self._params.image.replace("{instance_id}", row.text("instance_id")) or row.text("image"),
            verifier_timeout_seconds=self._params.test_timeout_seconds + _GRADING_SECONDS,
        )


class SweBenchVerified(SweBench):
    """The 500 instances of SWE-bench Verified."""

    published = VERIFIED


class SweBenchLite(SweBench):
    """The 300 instances of SWE-bench Lite."""

    published = LITE


class SweBenchMultilingual(SweBench):
    """The 300 instances of SWE-bench Multilingual, in nine languages."""

    published = MULTILINGUAL
