"""
HumanEval: complete a Python function from its signature and docstring; judged by unit tests.

The 164 tasks ship with the package. The answer runs in a fresh session, apart from the tests; in an
environment without isolation it can still read the files and signal the processes of its user.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.resources
import json
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Literal

import msgspec
from anyio import to_thread
from pydantic import BaseModel, ConfigDict, PositiveFloat

from ..errors import ConfigError, VerifierError
from ..protocols import ExecResult, Outcome, Session, Task, Verdict
from .answers import defines, extract_code, is_cut_off, strip_reasoning, without_prose

_DATA_NAME = "HumanEval.jsonl.gz"
_DATA_SHA256 = "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef"
_START_SECONDS = 30.0
"""How long the interpreter in the session may take to start, on top of the time for the program."""
_REPORT_BYTES = 64 * 1024

_PROMPT = """\
Complete the Python function below. Reply with the whole function, and the imports and helpers it needs, in \
one fenced code block.

```python
{prompt}```
"""


class HumanEvalParams(BaseModel):
    """How HumanEval is loaded and judged."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    data_path: Path | None = None
    """A local JSON Lines file (also gzipped) with the published fields; None for the packaged one."""
    timeout_seconds: PositiveFloat = 10.0
    """How long the answer's program may run through all tests of its task."""
    python: str = "python3"
    """The interpreter in the session, 3.8 or later, that runs the answers."""


class _Row(msgspec.Struct, frozen=True):
    task_id: str
    prompt: str
    entry_point: str
    canonical_solution: str
    test: str


class _Report(msgspec.Struct, frozen=True):
    """A line of the judging program."""

    nonce: str
    status: Literal["ready", "broken", "passed", "failed"]
    reason: str


class HumanEval:
    """The 164 tasks of HumanEval, or those of a file with its fields."""

    answer_form: ClassVar[str] = "code"

    def __init__(self, params: HumanEvalParams) -> None:
        self._params = params

    def load(self, data_dir: Path) -> Iterable[Task]:
        """Read the packaged file, or the one at ``data_path``."""
        path = self._params.data_path
        name = _DATA_NAME if path is None else str(path)
        lines = _unpack(name, _packaged_bytes() if path is None else _read(path))
        return [_task(_row(line, f"{name}:{number}")) for number, line in lines]

    def verifier(self) -> HumanEvalVerifier:
        """Return the verifier that runs the tests."""
        return HumanEvalVerifier(self._params)


class HumanEvalVerifier:
    """Runs a task's tests against the answer in a fresh session."""

    environment: ClassVar[Literal["none", "reuse", "fresh"]] = "fresh"

    def __init__(self, params: HumanEvalParams) -> None:
        self._params = params
        self._program = ""

    async def verify(self, task: Task, outcome: Outcome, session: Session | None) -> Verdict:
        """Pass an answer if all tests of its task do."""
        answer = outcome.answer or ""
        if is_cut_off(answer):
            return Verdict.passed(False, "the answer was cut off inside its reasoning")
        sources = _sources(strip_reasoning(answer), task)
        if not sources:
            return Verdict.passed(False, "there is no code in the answer")
        if session is None:
            raise VerifierError("HumanEval answers are judged in a session, but there is none")
        return await self._judge(task, sources, session)

    async def _judge(self, task: Task, sources: list[str], session: Session) -> Verdict:
        self._program = self._program or await to_thread.run_sync(_judging_program)
        nonce = secrets.token_hex(16)
        seconds = self._params.timeout_seconds
        payload = {**task.hidden, "sources": sources, "nonce": nonce, "timeout_seconds": seconds}
        result = await session.exec(
            [self._params.python, "-I", "-B", "-c", self._program],
            stdin=json.dumps(payload).encode(),
            timeout_seconds=seconds + _START_SECONDS,
            max_output_bytes=_REPORT_BYTES,
        )
        return self._verdict(result, _reports(result, nonce))

    def _verdict(self, result: ExecResult, reports: list[_Report]) -> Verdict:
        """
        Read the reports.

        Until the judging program is ready, nothing of the answer has run, so whatever goes wrong is the
        machine's fault. After that it may be the answer's doing (it may kill its judge), so it has failed.
        """
        match [report.status for report in reports]:
            case ["ready", "passed"] if result.exit_code == 0:
                return Verdict.passed(True)
            case ["ready", "failed"]:
                return Verdict.passed(False, reports[1].reason)
            case ["ready", *_]:
                return Verdict.passed(False, _ending(result))
            case ["broken"]:
                raise VerifierError(reports[0].reason)
        python, ending, stderr = self._params.python, _ending(result), result.stderr.strip()[-500:]
        raise VerifierError(f"cannot judge with {python!r} in the session (set `python`): {ending}: {stderr}")


def _judging_program() -> str:
    return importlib.resources.files(__package__).joinpath("judge.py").read_text("utf-8")


def _ending(result: ExecResult) -> str:
    how = "ran out of time" if result.timed_out else f"ended with exit code {result.exit_code}"
    return f"the judging program {how} without a result"


def _reports(result: ExecResult, nonce: str) -> list[_Report]:
    reports = []
    for line in result.stdout_bytes.splitlines():
        try:
            report = msgspec.json.decode(line, type=_Report)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if report.nonce == nonce:
            reports.append(report)
    return reports


def _sources(answer: str, task: Task) -> list[str]:
    """Return the programs that the answer may stand for; the first that compiles is judged."""
    prompt, entry_point = str(task.hidden["prompt"]), str(task.hidden["entry_point"])
    code = extract_code(answer, entry_point)
    if not code.strip():
        return []
    if defines(code, entry_point):
        return [code, without_prose(code)]
    last_line = prompt.rstrip().rsplit("\n", 1)[-1]
    indent = last_line[: len(last_line) - len(last_line.lstrip())]
    body = code.strip("\n")
    indented = "".join(indent + line for line in body.splitlines(keepends=True))
    return [f"{prompt.rstrip()}\n{text}\n" for text in (body, indented, indent + body)]


# --- data -----------------------------------------------------------------------------------------


def _packaged_bytes() -> bytes:
    data = importlib.resources.files(__package__).joinpath("data", _DATA_NAME).read_bytes()
    if hashlib.sha256(data).hexdigest() != _DATA_SHA256:
        raise ConfigError(f"the packaged {_DATA_NAME} is damaged; reinstall agentcompass")
    return data


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read data_path {str(path)!r}: {error.strerror}") from error


def _unpack(name: str, data: bytes) -> list[tuple[int, bytes]]:
    """Return the lines that are not blank, with their numbers."""
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise ConfigError(f"{name} is no whole gzip file: {error}") from error
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def _row(line: bytes, place: str) -> _Row:
    try:
        return msgspec.json.decode(line, type=_Row)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        fields = ", ".join(_Row.__struct_fields__)
        raise ConfigError(f"{place}: {error} (needed text fields: {fields})") from error


def _task(row: _Row) -> Task:
    return Task(
        id=row.task_id,
        prompt=_PROMPT.format(prompt=row.prompt),
        reference=row.prompt + row.canonical_solution,
        hidden={"prompt": row.prompt, "test": row.test, "entry_point": row.entry_point},
    )
