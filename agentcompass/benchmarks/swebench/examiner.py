"""Apply a prediction in a fresh session, run the tests, and bring back what they printed."""

from __future__ import annotations

import secrets
import shlex
from dataclasses import replace
from typing import ClassVar, Literal

from anyio import to_thread
from msgspec import structs

from ...errors import VerifierError
from ...protocols import PATCH_ARTIFACT, ExecResult, Outcome, Session, Task, Verdict
from .evidence import ALL_EVIDENCE, CONTROL_LOG, EVIDENCE, TEST_LOG, Applied, Evidence, encode_evidence
from .grading import grade
from .official import WORKDIR
from .params import SweBenchParams
from .patches import created_files, prediction, target_files, touches_git_directory
from .scripts import MarkedLog, control, evaluation, split_log, spoil, take_apart, work_tree_command

_SHORT_SECONDS = 300.0
"""For a step that runs no code of the repository."""
_CONTROL_SECONDS = 600.0
_MESSAGE_BYTES = 256 * 1024


class SweBenchExaminer:
    """Grades predictions with the official scripts and parsers."""

    environment: ClassVar[Literal["reuse", "fresh"]] = "fresh"

    def __init__(self, params: SweBenchParams) -> None:
        self._params = params

    def needs_session(self, task: Task, outcome: Outcome) -> bool:
        """An empty prediction needs none; nor does one that must not be applied."""
        patch = prediction(outcome)
        return bool(patch) and not touches_git_directory(patch)

    async def examine(self, task: Task, outcome: Outcome, session: Session) -> Outcome:
        """
        Run the tests on a prediction.

        Raises:
            VerifierError: The session has no usable work tree or no bash, or the log is too long.
        """
        patch = prediction(outcome)
        room = f"/tmp/agentcompass-{secrets.token_hex(8)}"  # noqa: S108  # in the session
        applied, message = await self._apply(task, session, room, patch)
        evidence = Evidence(applied=applied, apply_message=message)
        # A replayed outcome comes with the evidence of its first grading.
        own = {name: data for name, data in outcome.artifacts.items() if name not in ALL_EVIDENCE}
        artifacts = {**own, PATCH_ARTIFACT: patch}
        if applied != "none":
            log, evidence = await self._test(task, session, room, evidence)
            artifacts[TEST_LOG] = log.official()
            if self._params.control_run and evidence.exit_code is not None:
                controlled, evidence = await self._control(task, session, room, evidence)
                if controlled is not None:
                    artifacts[CONTROL_LOG] = controlled.official()
        artifacts[EVIDENCE] = encode_evidence(evidence)
        return replace(outcome, artifacts=artifacts)

    def grade(self, task: Task, outcome: Outcome) -> Verdict:
        """Judge the evidence; runs in a worker process."""
        return grade(task, outcome)

    async def _apply(self, task: Task, session: Session, room: str, patch: bytes) -> tuple[Applied, str]:
        base = str(task.hidden["row"]["base_commit"])
        result = await session.exec(
            await to_thread.run_sync(
                work_tree_command, "apply_patch", WORKDIR, base, f"{room}/prediction.patch"
            ),
            cwd="/",
            stdin=patch,
            timeout_seconds=_SHORT_SECONDS,
            max_output_bytes=_MESSAGE_BYTES,
        )
        text = result.stdout.rstrip("\n")
        message, _, last = text.rpartition("\n")
        if result.exit_code != 0 or result.timed_out or not last.startswith("applied "):
            raise VerifierError(f"the work tree {WORKDIR} of the image is not usable: {_tail(result)}")
        way = last.removeprefix("applied ")
        assert way in {"apply", "reject", "fuzz", "none"}
        return way, message  # type: ignore[return-value]  # just checked

    async def _test(
        self, task: Task, session: Session, room: str, evidence: Evidence
    ) -> tuple[MarkedLog, Evidence]:
        row = task.hidden["row"]
        script = take_apart(task.hidden["script"])
        # What the data set's tests create must not be there already, or its whole patch would not apply.
        stale = [shlex.quote(f"{WORKDIR}/{name}") for name in created_files(str(row["test_patch"]))]
        prefix = f"rm -f {' '.join(stale)}\n" if stale else ""
        text = prefix + evaluation(script, state=f"{room}/state")
        mark = secrets.token_hex(16)
        result = await self._run(session, f"{room}/eval.sh", text, mark, self._params.test_timeout_seconds)
        if result.truncated and not result.timed_out:
            raise VerifierError(
                f"the log of the tests is longer than {self._params.max_log_mb} MB and cut; raise max_log_mb"
            )
        log = await to_thread.run_sync(split_log, result.stdout_bytes, mark)
        if log.tests is None and result.exit_code == 127:
            raise VerifierError(f"the tests cannot be run: {_tail(result)}")
        return log, structs.replace(
            evidence,
            exit_code=log.exit_code,
            timed_out=result.timed_out,
            out_of_memory=result.out_of_memory,
            forged_marks=log.forged_marks,
            test_seconds=round(result.duration_seconds, 3),
            disk_full=await _disk_is_full(session),
        )

    async def _control(
        self, task: Task, session: Session, room: str, evidence: Evidence
    ) -> tuple[MarkedLog | None, Evidence]:
        commands = spoil(target_files(str(task.hidden["row"]["test_patch"])))
        if commands is None or task.hidden["eval_type"] != "pass_and_fail":
            return None, structs.replace(evidence, control="impossible")
        script = take_apart(task.hidden["script"])
        text = control(script, state=f"{room}/state", spoil=commands)
        mark = secrets.token_hex(16)
        seconds = min(_CONTROL_SECONDS, self._params.test_timeout_seconds)
        result = await self._run(session, f"{room}/control.sh", text, mark, seconds)
        log = await to_thread.run_sync(split_log, result.stdout_bytes, mark)
        is_whole = log.exit_code is not None and not result.truncated
        return log, structs.replace(evidence, control="done" if is_whole else "unfinished")

    async def _run(
        self, session: Session, path: str, script: str, mark: str, timeout_seconds: float
    ) -> ExecResult:
        await session.write(path, script.encode("utf-8", "surrogateescape"))
        limit = self._params.max_log_mb * 1024 * 1024
        return await session.exec(
            f"exec bash {shlex.quote(path)} 2>&1",
            cwd="/",
            stdin=f"{mark}\n".encode(),
            timeout_seconds=timeout_seconds,
            max_output_bytes=limit,
        )


async def _disk_is_full(session: Session) -> bool:
    """Tell whether a small file cannot be written any more; such a machine makes any test fail."""
    probe = 'f=$(mktemp) && head -c 65536 /dev/zero >"$f" && rm -f "$f"'
    result = await session.exec(
        probe, cwd="/", timeout_seconds=_SHORT_SECONDS, max_output_bytes=_MESSAGE_BYTES
    )
    return result.exit_code != 0


def _tail(result: ExecResult) -> str:
    text = (result.stdout + result.stderr).strip()[-500:]
    how = "ran out of time" if result.timed_out else f"exit code {result.exit_code}"
    return f"{how}: {text}" if text else how
