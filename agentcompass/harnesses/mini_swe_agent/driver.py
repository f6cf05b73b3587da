"""
The program that runs the loop of mini-swe-agent inside a session; its text is sent there.

It needs Python 3.10 and the package, and nothing of ours. In its directory (the only argument) lies
``job.json``; messages go out as ``out/0``, ``out/1`` ... and are answered in ``in/0``, ``in/1`` ... Commands
run as its own children. Whoever stops it stops them.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SUBMIT = b"COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
MAX_OUTPUT_BYTES = 10 * 1024 * 1024
POLL_SECONDS = 0.02
TIMEOUT_EXIT_CODE = 124


class Mailbox:
    """Files that the engine reads and writes."""

    def __init__(self, room: str) -> None:
        self._room = room
        self._count = 0

    def send(self, **message: object) -> str:
        """Leave a message; it appears whole."""
        name = str(self._count)
        self._count += 1
        path = os.path.join(self._room, "out", name)  # noqa: PTH118  # as few imports as can be
        with open(path + ".part", "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(message, file)
        os.rename(path + ".part", path)  # noqa: PTH104
        return name

    def ask(self, **message: object) -> Any:
        """Leave a message and wait for its answer."""
        path = os.path.join(self._room, "in", self.send(**message))  # noqa: PTH118
        while not os.path.exists(path):  # noqa: PTH110
            time.sleep(POLL_SECONDS)
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            return json.load(file)


class Shell:
    """An environment of the package: commands run here."""

    def __init__(self, mailbox: Mailbox, job: dict[str, Any], submitted: type) -> None:
        self._mailbox = mailbox
        self._job = job
        self._submitted = submitted
        self.config = SimpleNamespace(**job["variables"])
        self.submission = b""

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        """Run a command and report it."""
        command = action.get("command", "")
        began, output, code, trouble = time.monotonic(), b"", -1, ""
        try:
            code, output = self._run([*self._job["interpreter"], command], cwd)
        except (OSError, TypeError, ValueError) as error:
            trouble = str(error)
        timed_out = code == TIMEOUT_EXIT_CODE and time.monotonic() - began >= self._job["timeout_seconds"]
        if timed_out:
            trouble = f"Command '{command}' timed out after {self._job['timeout_seconds']:g} seconds"
        text = output.decode("utf-8", "replace")
        self._mailbox.send(
            kind="command",
            command=command if isinstance(command, str) else repr(command),
            exit_code=code,
            output=text,
            timed_out=timed_out,
            seconds=time.monotonic() - began,
        )
        if trouble:
            message = f"An error occurred while executing the command: {trouble}"
            return {"output": text, "returncode": -1, "exception_info": message}
        first, _, rest = output.lstrip().partition(b"\n")
        if code == 0 and first.strip() == SUBMIT:
            self.submission = rest
            said = rest.decode("utf-8", "replace")
            extra = {"exit_status": "Submitted", "submission": said}
            raise self._submitted({"role": "exit", "content": said, "extra": extra})
        return {"output": text, "returncode": code, "exception_info": ""}

    def _run(self, command: list[str], cwd: str) -> tuple[int, bytes]:
        """Run a command into a file, so that a child that it leaves behind holds nothing up."""
        with tempfile.TemporaryFile() as file:
            process = subprocess.Popen(
                command,
                cwd=cwd or self._job["variables"]["cwd"],
                env={**os.environ, **self._job["env"]},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(self._job["timeout_seconds"])
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = TIMEOUT_EXIT_CODE
            file.seek(0)
            return (128 - code if code < 0 else code), file.read(MAX_OUTPUT_BYTES)

    def get_template_vars(self, **_extra: object) -> dict[str, Any]:
        """Return what prompts may use."""
        variables: dict[str, Any] = self._job["variables"]
        return variables

    def serialize(self) -> dict[str, Any]:
        """Describe this for the trajectory."""
        return {"info": {"config": {"environment": self._job["variables"]}}}


class RelayedModel:
    """A model of the package: the engine makes the calls."""

    def __init__(self, mailbox: Mailbox, job: dict[str, Any], tools: Any) -> None:
        self._mailbox = mailbox
        self._templates = job["templates"]
        self._tools = tools
        self.config = SimpleNamespace(**self._templates)

    def query(self, messages: list[dict[str, Any]], **_extra: object) -> dict[str, Any]:
        """Ask for the next turn."""
        plain = [{key: value for key, value in message.items() if key != "extra"} for message in messages]
        reply = self._mailbox.ask(kind="query", messages=plain)
        calls = [
            SimpleNamespace(id=call["id"], function=SimpleNamespace(**call["function"]))
            for call in reply["message"]["tool_calls"]
        ]
        try:
            actions = self._tools.parse_toolcall_actions(
                calls,
                format_error_template=self._templates["format_error_template"],
                template_kwargs={"finish_reason": reply["stop_reason"]},
            )
        except Exception as error:
            for message in getattr(error, "messages", ()):
                message["extra"]["cost"] = reply["cost"]
            raise
        return {**reply["message"], "extra": {"actions": actions, "cost": reply["cost"]}}

    def format_message(self, **fields: object) -> dict[str, Any]:
        """Return a message in the form of the package."""
        return fields

    def format_observation_messages(
        self,
        message: dict[str, Any],
        outputs: list[dict[str, Any]],
        template_vars: dict[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Render what commands returned."""
        rendered: list[dict[str, Any]] = self._tools.format_toolcall_observation_messages(
            actions=message.get("extra", {}).get("actions", []),
            outputs=outputs,
            observation_template=self._templates["observation_template"],
            template_vars=template_vars,
        )
        return rendered

    def get_template_vars(self, **_extra: object) -> dict[str, Any]:
        """Return what prompts may use."""
        templates: dict[str, Any] = self._templates
        return templates

    def serialize(self) -> dict[str, Any]:
        """Describe this for the trajectory."""
        return {"info": {"config": {"model": self._templates}}}


def main(room: str) -> None:
    """Work on the job in a directory, to its end."""
    os.environ.update(MSWEA_SILENT_STARTUP="1", MSWEA_GLOBAL_CONFIG_DIR=os.path.join(room, "home"))  # noqa: PTH118
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.exceptions import Submitted
    from minisweagent.models.utils import actions_toolcall

    with open(os.path.join(room, "job.json"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
        job = json.load(file)
    for name in ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH"):  # ours, not for the agent's commands
        os.environ.pop(name, None)
    mailbox = Mailbox(room)
    shell = Shell(mailbox, job, Submitted)
    agent = DefaultAgent(RelayedModel(mailbox, job, actions_toolcall), shell, **job["agent"])
    ending = agent.run(job["task"])
    mailbox.send(
        kind="end",
        exit_status=ending.get("exit_status", ""),
        submission=base64.b64encode(shell.submission).decode(),
        trajectory=agent.serialize(),
    )


if __name__ == "__main__":
    main(sys.argv[1])
