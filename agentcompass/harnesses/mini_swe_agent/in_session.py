"""
Run the agent's loop inside the session, for those who want it where its commands are.

No key and no network is needed there: the loop asks for model calls through files, and the engine makes them.
The session's Python is used if it is one that can load the package as it is installed here; else the
interpreter of this machine is brought along.
"""

from __future__ import annotations

import base64
import importlib.resources
import json
import secrets
import shlex
import time
from collections.abc import Mapping
from typing import Any

import anyio
from anyio import to_thread

from ...errors import HarnessError, SessionError
from ...protocols import ExecResult, Outcome, Session, Tool, Trial
from ...records import CommandStep, NoteStep
from .bridge import as_message, finished_outcome, package_message
from .luggage import HOST, interpreter_luggage, packages_luggage
from .package import AgentSettings, bash_tool

_PROBE = """\
import importlib.util, json, platform, sys
has_package = importlib.util.find_spec("minisweagent") is not None
print(json.dumps([sys.implementation.name, *sys.version_info[:2], platform.machine(), has_package]))
"""
_PROBE_SECONDS = 60.0
_END_SECONDS = 10.0
_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_TAIL_CHARACTERS = 1000


async def run_in_session(
    trial: Trial, settings: AgentSettings, *, timeout_seconds: float, python: str, uname: Mapping[str, str]
) -> Outcome:
    """
    Bring the loop into the session and serve it until it ends.

    Raises:
        SessionError: The loop cannot run there.
        HarnessError: It broke.
    """
    session = trial.session
    room = await _room(session)
    command, env = await _python_in(session, room, python)
    await session.write(f"{room}/driver.py", await to_thread.run_sync(_driver))
    await session.write(f"{room}/job.json", _job(trial, settings, timeout_seconds, uname))
    relay = _Relay(trial, room)
    finished: list[ExecResult] = []
    async with anyio.create_task_group() as group:

        async def drive() -> None:
            finished.append(await session.exec([*command, "-B", f"{room}/driver.py", room], env=env))
            if finished[0].exit_code == 0:
                with anyio.move_on_after(_END_SECONDS):  # its last words may not have been read
                    await relay.ended.wait()
            group.cancel_scope.cancel()

        group.start_soon(drive)
        await relay.serve()
    if relay.outcome is None:
        raise HarnessError(f"the agent's loop in the session broke: {_tail(finished[0])}")
    return relay.outcome


async def _room(session: Session) -> str:
    """Make a directory for the loop where the session keeps temporary files, outside of the work tree."""
    name = f"agentcompass-{secrets.token_hex(8)}"
    command = f'room="${{TMPDIR:-/tmp}}/{name}" && mkdir -p "$room/in" "$room/out" && printf %s "$room"'
    made = await session.exec(command)
    if made.exit_code != 0:
        raise SessionError(f"the agent's directory cannot be made: {_tail(made)}", retryable=False)
    return made.stdout


async def _python_in(session: Session, room: str, python: str) -> tuple[list[str], dict[str, str]]:
    """Find a Python that can load the package, or bring what it takes; return command and variables."""
    probe = await session.exec([python, "-c", _PROBE], timeout_seconds=_PROBE_SECONDS)
    try:
        *kind, has_package = json.loads(probe.stdout)
    except ValueError:
        kind, has_package = [], False
    if has_package:
        return [python], {}
    luggage = await to_thread.run_sync(packages_luggage if kind == HOST else interpreter_luggage)
    await session.upload(luggage.folder, f"{room}/luggage")
    command, env = luggage.at(f"{room}/luggage", python)
    if luggage.has_interpreter:
        await _check_interpreter(session, command, env, python, probe)
    return command, env


async def _check_interpreter(
    session: Session, command: list[str], env: Mapping[str, str], python: str, probe: ExecResult
) -> None:
    tried = await session.exec([*command, "-c", _PROBE], env=env, timeout_seconds=_PROBE_SECONDS)
    if tried.exit_code != 0:
        raise SessionError(
            f"the session has no fitting Python ({python!r}: {_tail(probe)}), and the one of this machine "
            f"does not run there ({_tail(tried)}); put Python {HOST[1]}.{HOST[2]} into the image, or set "
            "run_in to 'host'",
            retryable=False,
        )


def _driver() -> bytes:
    return importlib.resources.files(__package__).joinpath("driver.py").read_bytes()


def _job(trial: Trial, settings: AgentSettings, timeout_seconds: float, uname: Mapping[str, str]) -> bytes:
    interpreter = settings.interpreter
    place = {"cwd": trial.session.workdir, "timeout": timeout_seconds, "interpreter": interpreter}
    job = {
        "task": trial.task.question or trial.task.prompt,
        "agent": dict(settings.agent),
        "templates": {"model_name": trial.model.id, **settings.templates},
        "variables": {**place, **uname},
        "interpreter": interpreter,
        "env": settings.variables,
        "timeout_seconds": timeout_seconds,
    }
    return json.dumps(job).encode()


def _tail(result: ExecResult) -> str:
    text = (result.stderr.strip() or result.stdout.strip())[-_TAIL_CHARACTERS:]
    return f"exit code {result.exit_code}: {text or 'no output'}"


class _Relay:
    """Reads the loop's messages, one after another, and answers them."""

    def __init__(self, trial: Trial, room: str) -> None:
        self._trial = trial
        self._room = shlex.quote(room)
        self._path = room
        self._began = time.monotonic()
        self.outcome: Outcome | None = None
        self.ended = anyio.Event()

    async def serve(self) -> None:
        """Serve until the loop has ended."""
        number, publish = 0, ""
        while not self.ended.is_set():
            message = await self._next(number, publish)
            publish = ""
            match message["kind"]:
                case "query":
                    publish = await self._answer(number, message["messages"])
                case "command":
                    self._add_step(message)
                case "end":
                    patch = base64.b64decode(message["submission"])
                    self.outcome = finished_outcome(str(message["exit_status"]), patch, message["trajectory"])
                    self.ended.set()
            number += 1

    async def _next(self, number: int, publish: str) -> Any:
        """Publish the last answer and wait, inside the session, for the next message."""
        wait = f"while [ ! -e {self._room}/out/{number} ]; do sleep 0.05 || sleep 1; done"
        command = f"{publish}{wait}; cat {self._room}/out/{number}"
        result = await self._trial.session.exec(command, cwd="/", max_output_bytes=_MAX_MESSAGE_BYTES)
        try:
            return json.loads(result.stdout_bytes)
        except ValueError as error:
            raise HarnessError(f"the agent's loop sent no valid message: {_tail(result)}") from error

    async def _answer(self, number: int, messages: list[dict[str, Any]]) -> str:
        definition = await to_thread.run_sync(bash_tool)
        tool = Tool(**definition)
        reply = await self._trial.model.complete([as_message(message) for message in messages], tools=[tool])
        answer = {
            "message": package_message(reply),
            "stop_reason": reply.stop_reason,
            "cost": reply.usage.cost_usd or 0.0,
        }
        await self._trial.session.write(f"{self._path}/in/{number}.part", json.dumps(answer).encode())
        if not reply.tool_calls:
            note = NoteStep(text="the reply has no tool call", started_seconds=self._seconds())
            self._trial.trajectory.add(note)
        return f"mv {self._room}/in/{number}.part {self._room}/in/{number}; "

    def _add_step(self, message: Mapping[str, Any]) -> None:
        self._trial.trajectory.add(
            CommandStep(
                command=message["command"],
                exit_code=message["exit_code"],
                stdout=message["output"],
                timed_out=message["timed_out"],
                started_seconds=max(0.0, self._seconds() - message["seconds"]),
                duration_seconds=message["seconds"],
            )
        )

    def _seconds(self) -> float:
        return time.monotonic() - self._began
