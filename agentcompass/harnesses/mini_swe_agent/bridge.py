"""What the agent's loop gets for a model and an environment: ours, called from its thread."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
from anyio import from_thread, to_thread

from ...errors import ExecError
from ...protocols import PATCH_ARTIFACT, Continuation, ExecResult, Message, Outcome, Reply, Tool, Trial
from ...records import NoteStep, ToolCall
from ..command import MAX_ARGUMENT_BYTES, command_step
from .package import AgentSettings, bash_tool, exceptions, tool_calls

T = TypeVar("T")

_TRAJECTORY_ARTIFACT = "mini-swe-agent.traj.json"
_SUBMIT = b"COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class StoppedError(BaseException):
    """
    The trial was stopped while the thread waited for the event loop.

    No ``Exception``, which the agent's loop would take for trouble of its own.
    """


class Bridge:
    """Calls from the agent's thread what belongs to the event loop."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self._began = time.monotonic()
        self._stopped = False
        self._scope = anyio.CancelScope()

    def seconds(self) -> float:
        """Seconds since the agent began."""
        return time.monotonic() - self._began

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """
        Run a function in a thread of its own; being cancelled ends the thread at its current or next call.

        A task watches for the cancellation, since one that comes while the thread computes would not reach
        its next call otherwise.
        """
        results: list[T] = []
        failure: BaseException | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch)
            try:
                # A limiter of its own: agents wait for most of their lives, and must not wait for each other.
                limiter = anyio.CapacityLimiter(1)
                results.append(await to_thread.run_sync(function, *arguments, limiter=limiter))
            except (Exception, StoppedError) as error:  # noqa: BLE001  # raised below, outside of the group
                failure = error
            group.cancel_scope.cancel()
        if isinstance(failure, StoppedError):
            await anyio.lowlevel.checkpoint()  # raises the cancellation
        if failure is not None:
            raise failure
        return results[0]

    async def _watch(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self._stopped = True
            self._scope.cancel()

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """
        Await a function on the event loop and return what it returns, or raise what it raises.

        Raises:
            StoppedError: The trial was stopped; the thread has to end.
        """
        results: list[T] = []
        failure: Exception | None = None

        async def settle() -> None:
            nonlocal failure
            with anyio.CancelScope() as self._scope:
                if self._stopped:
                    return
                try:
                    results.append(await function())
                except Exception as error:  # noqa: BLE001  # raised again below, in the thread
                    failure = error

        try:
            from_thread.run(settle)
        except BaseException as stop:  # a cancellation, in the form that the thread of a backend sees
            raise StoppedError from stop
        if failure is not None:
            raise failure
        if not results:
            raise StoppedError
        return results[0]

    def note(self, text: str) -> None:
        """Add a line to the trajectory."""
        from_thread.run_sync(self.trial.trajectory.add, NoteStep(text=text, started_seconds=self.seconds()))


class SessionEnvironment:
    """An environment of mini-swe-agent whose commands run in our session."""

    def __init__(
        self,
        bridge: Bridge,
        *,
        workdir: str,
        settings: AgentSettings,
        timeout_seconds: float,
        uname: Mapping[str, str],
    ) -> None:
        self._bridge = bridge
        self._timeout_seconds = timeout_seconds
        self._interpreter = settings.interpreter
        self._env = settings.variables
        self.config = SimpleNamespace(cwd=workdir, timeout=timeout_seconds, env=self._env)
        self._variables = {**vars(self.config), "interpreter": self._interpreter, **uname}
        self.submission = b""
        """The patch, byte by byte, once the agent has submitted."""

    def execute(self, action: Mapping[str, Any], cwd: str = "") -> dict[str, Any]:
        """Run a command; the end of the agent's work is an exception of the package."""
        command = action.get("command", "")
        if not isinstance(command, str):
            return _not_run(f"the command must be a text, not {command!r:.80}")
        if len(command.encode("utf-8", "replace")) > MAX_ARGUMENT_BYTES:
            return _not_run("Argument list too long")
        try:
            result = self._bridge.call(lambda: self._exec(command, cwd or self.config.cwd))
        except ExecError as error:
            return _not_run(str(error))
        if result.timed_out:
            reason = f"Command '{command}' timed out after {self._timeout_seconds:g} seconds"
            return {**_not_run(reason), "output": result.stdout}
        output = {"output": result.stdout, "returncode": result.exit_code, "exception_info": ""}
        if result.exit_code == 0 and self._is_submission(result):
            if result.truncated:
                return {**output, "returncode": -1, "exception_info": "The submission is too long."}
            self._submit(result)
        return output

    async def _exec(self, command: str, cwd: str) -> ExecResult:
        started = self._bridge.seconds()
        result = await self._bridge.trial.session.exec(
            ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *self._interpreter, command],
            cwd=cwd,
            env=self._env,
            timeout_seconds=self._timeout_seconds,
        )
        self._bridge.trial.trajectory.add(command_step(command, result, started))
        return result

    @staticmethod
    def _is_submission(result: ExecResult) -> bool:
        return result.stdout_bytes.lstrip().partition(b"\n")[0].strip() == _SUBMIT

    def _submit(self, result: ExecResult) -> None:
        self.submission = result.stdout_bytes.lstrip().partition(b"\n")[2]
        text = self.submission.decode("utf-8", "replace")
        raise exceptions().Submitted(
            {
                "role": "exit",
                "content": text,
                "extra": {"exit_status": "Submitted", "submission": text},
            }
        )

    def get_template_vars(self, **_extra: Any) -> dict[str, Any]:
        """Return what the templates of prompts may use."""
        return self._variables

    def serialize(self) -> dict[str, Any]:
        """Describe the environment in the agent's own trajectory."""
        return {"info": {"config": {"environment": self._variables, "environment_type": "agentcompass"}}}


def _not_run(reason: str) -> dict[str, Any]:
    message = f"An error occurred while executing the command: {reason}"
    return {"output": "", "returncode": -1, "exception_info": message}


class EngineModel:
    """A model of mini-swe-agent that is the trial's: metered, limited and retried by the engine."""

    def __init__(self, bridge: Bridge, settings: AgentSettings) -> None:
        self._bridge = bridge
        self._templates = settings.templates
        self.config = SimpleNamespace(model_name=bridge.trial.model.id, **self._templates)

    def query(self, messages: Sequence[Mapping[str, Any]], **_extra: Any) -> dict[str, Any]:
        """Ask for the next turn; one without a usable tool call is an exception of the package."""
        tools, tool = tool_calls(), Tool(**bash_tool())
        conversation = [as_message(message) for message in messages]
        reply = self._bridge.call(lambda: self._bridge.trial.model.complete(conversation, tools=[tool]))
        cost = {"cost": reply.usage.cost_usd or 0.0}
        try:
            actions = tools.parse_toolcall_actions(
                [_as_package_call(call) for call in reply.tool_calls],
                format_error_template=self._templates["format_error_template"],
                template_kwargs={"finish_reason": reply.stop_reason},
            )
        except exceptions().FormatError as error:
            error.messages[0]["extra"].update(cost, response=reply.text)
            self._bridge.note("the reply has no usable tool call; the agent is told so")
            raise
        return {**package_message(reply), "extra": {"actions": actions, **cost}}

    def format_message(self, **fields: Any) -> dict[str, Any]:
        """Return a message in the agent's own form."""
        return fields

    def format_observation_messages(
        self,
        message: Mapping[str, Any],
        outputs: list[dict[str, Any]],
        template_vars: dict[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Render what commands returned."""
        rendered: list[dict[str, Any]] = tool_calls().format_toolcall_observation_messages(
            actions=message.get("extra", {}).get("actions", []),
            outputs=outputs,
            observation_template=self._templates["observation_template"],
            template_vars=template_vars,
        )
        return rendered

    def get_template_vars(self, **_extra: Any) -> dict[str, Any]:
        """Return what the templates of prompts may use."""
        return vars(self.config)

    def serialize(self) -> dict[str, Any]:
        """Describe the model in the agent's own trajectory."""
        return {"info": {"config": {"model": vars(self.config), "model_type": "agentcompass"}}}


def as_message(message: Mapping[str, Any]) -> Message:
    """Turn a message of the package into ours."""
    continuation = message.get("continuation")
    return Message(
        role=message["role"],
        content=message.get("content") or "",
        tool_calls=tuple(
            ToolCall(id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"])
            for call in message.get("tool_calls") or ()
        ),
        tool_call_id=message.get("tool_call_id", ""),
        continuation=Continuation(**continuation) if continuation else None,
    )


def finished_outcome(status: str, patch: bytes, trajectory: Mapping[str, Any]) -> Outcome:
    """
    Return what the agent hands in at its end.

    Args:
        status: How the loop ended; there is an answer only if the agent has submitted one.
    """
    artifacts = {_TRAJECTORY_ARTIFACT: json.dumps(trajectory, indent=1, default=str).encode()}
    if status != "Submitted":
        return Outcome(artifacts=artifacts, stop_reason=status)
    artifacts[PATCH_ARTIFACT] = patch
    return Outcome(answer=patch.decode("utf-8", "replace"), artifacts=artifacts, stop_reason=status)


def _as_package_call(call: ToolCall) -> SimpleNamespace:
    return SimpleNamespace(id=call.id, function=SimpleNamespace(name=call.name, arguments=call.arguments))


def package_message(reply: Reply) -> dict[str, Any]:
    """Turn a reply into a message of the package."""
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reply.tool_calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, "tool_calls": calls}
    if reply.continuation is not None:  # the agent keeps what it does not know
        message["continuation"] = asdict(reply.continuation)
    return message
