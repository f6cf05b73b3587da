"""
Run commands in a container so that each ends with everything that it started.

``docker exec`` can neither kill what it runs nor tell when that has ended while a background child holds
its output. Both are done by two small shell scripts inside the container, ``wrapper.sh`` and ``kill.sh``.
"""

from __future__ import annotations

import itertools
import secrets
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import anyio
from aiodocker.containers import DockerContainer
from aiodocker.exceptions import DockerError
from aiodocker.execs import Exec
from aiodocker.stream import Stream

from ...errors import ExecError, SessionLostError
from ...protocols import DEFAULT_OUTPUT_BYTES, TIMEOUT_EXIT_CODE, ExecResult
from ..arguments import check_command, to_bytes
from ..background import background
from ..output import KeptOutput
from .daemon import ANSWER_SECONDS, FAILURES
from .finish import finish


def _script(name: str) -> str:
    """Return a script without its comments: it shows up in the session's process list."""
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


_WRAPPER = _script("wrapper.sh")
_KILLER = _script("kill.sh")
_FIRST_MARK_KILOBYTES = 2**40
"""Far above any memory, so that programs that look at the limit find it no limit."""
_START_SECONDS = 120.0
_KILL_SECONDS = 15.0
_DRAIN_SECONDS = 2.0
_SETTLE_SECONDS = 1.0
"""How long a container may take to end after its processes were killed."""
_READY = b"ready\n"
_CANNOT_RUN = (126, 127)
ROOT = "0"
_CHUNK_BYTES = 256 * 1024


class _ShellGoneError(Exception):
    """No command can be started in the container."""


@dataclass(frozen=True, slots=True)
class _Ending:
    """How a command ended, by its wrapper."""

    kind: str
    code: int
    oom_kills: int


class Commands:
    """
    The commands of one container.

    Args:
        user: Who runs them; empty for root.
    """

    def __init__(self, container: DockerContainer, user: str) -> None:
        self._container = container
        self._user = user
        self._marks = itertools.count(_FIRST_MARK_KILOBYTES)
        self._oom_kills = 0

    async def run(
        self,
        arguments: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: bytes = b"",
        timeout_seconds: float | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
        as_root: bool = False,
    ) -> ExecResult:
        """
        Run a command to its exit; see ``Session.exec``.

        Args:
            as_root: Not as the session's user.

        Raises:
            ExecError: It could not be started.
            SessionLostError: The container is gone, or became unusable.
        """
        check_command(arguments, env, cwd)
        began = anyio.current_time()
        command = _Command(self._container, next(self._marks), stdin, max_output_bytes)
        words = [cwd, str(len(stdin)), *_expressible(arguments)]
        try:
            timed_out = await command.run(
                words,
                env={name: _text(value) for name, value in env.items()},
                user=ROOT if as_root else self._user,
                timeout_seconds=timeout_seconds,
            )
            code = TIMEOUT_EXIT_CODE if timed_out else await self._exit_code(command, cwd)
        except _ShellGoneError as error:
            death = await self.cause_of_death()
            raise SessionLostError(f"{error}; {death}" if death else str(error)) from error
        except (*FAILURES, TimeoutError) as error:
            reason = str(error) or f"the daemon took more than {_START_SECONDS:g} s to start a command"
            raise SessionLostError(await self.cause_of_death() or reason) from error
        return ExecResult(
            exit_code=code,
            stdout_bytes=command.stdout.kept.content,
            stderr_bytes=command.stderr.kept.content,
            stdout_dropped=command.stdout.kept.dropped_bytes,
            stderr_dropped=command.stderr.kept.dropped_bytes,
            timed_out=timed_out,
            out_of_memory=self._has_new_oom_kill(command.ending),
            duration_seconds=anyio.current_time() - began,
        )

    async def _exit_code(self, command: _Command, cwd: str) -> int:
        ending = command.ending
        if ending is None:  # its wrapper was killed, perhaps with everything else
            with anyio.move_on_after(_SETTLE_SECONDS):
                await self._container.wait()
            if cause := await self.cause_of_death():
                raise SessionLostError(cause)
            return await command.wrapper_exit_code()
        if ending.kind == "cwd":
            reason = "no such directory, or no permission"
            raise ExecError(f"the command cannot start in {cwd!r}: {reason}", retryable=False)
        return ending.code

    def _has_new_oom_kill(self, ending: _Ending | None) -> bool:
        before, self._oom_kills = self._oom_kills, ending.oom_kills if ending else self._oom_kills
        return self._oom_kills > before

    async def cause_of_death(self) -> str:
        """Say why the container no longer runs; empty while it does."""
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                state = (await self._container.show())["State"]
        except (*FAILURES, TimeoutError) as error:
            if isinstance(error, DockerError) and error.status == HTTPStatus.NOT_FOUND:
                return "its container was removed"
            return f"the Docker daemon does not answer: {error}"
        if state["Running"]:
            return "its container is paused" if state["Paused"] else ""
        memory = ", out of memory" if state["OOMKilled"] else ""
        code = state["ExitCode"]
        hint = ": the image has no /bin/sh that can run here" if code in _CANNOT_RUN else ""
        return f"its main process ended with exit code {code}{memory}{hint}"


class _Command:
    """One command while it runs."""

    def __init__(self, container: DockerContainer, mark: int, stdin: bytes, max_output_bytes: int) -> None:
        token = secrets.token_hex(16).encode()
        self.stdout = _Channel(token, max_output_bytes)
        self.stderr = _Channel(token, max_output_bytes)
        self._token = token
        self._container = container
        self._mark = mark
        self._stdin = stdin
        self._exec: Exec | None = None
        self._stream: Stream | None = None

    @property
    def ending(self) -> _Ending | None:
        """How it ended; None while it runs, or if its wrapper was killed."""
        if self.stdout.last_line is None or self.stderr.last_line is None:
            return None
        kind, code, oom_kills = self.stdout.last_line.split()
        return _Ending(kind.decode(), int(code), int(oom_kills))

    async def run(
        self, words: Sequence[str], *, env: Mapping[str, str], user: str, timeout_seconds: float | None
    ) -> bool:
        """
        Start it and serve its streams until it ends; if it is cut short, kill all that it started.

        Returns:
            Whether its deadline hit. Time that the daemon takes to start it does not count.
        """
        line = ["/bin/sh", "-c", _WRAPPER, "sh", str(self._mark), *words]
        try:
            stream = await finish(lambda: self._start(line, env, user))
            with anyio.move_on_after(timeout_seconds) as deadline:
                await _write(stream, self._token + b"\n")
                await self._attend(stream)
            return deadline.cancelled_caught
        finally:
            if self._stream is not None:
                with anyio.CancelScope(shield=True):
                    if self.ending is None:
                        await self._end(self._stream)
                    with suppress(AssertionError):  # of aiodocker, when the connection is gone already
                        await self._stream.close()

    async def _start(self, line: Sequence[str], env: Mapping[str, str], user: str) -> Stream:
        """Start the wrapper and wait until it can be killed."""
        with anyio.fail_after(_START_SECONDS):
            self._exec = await self._container.exec(line, stdin=True, environment=env, user=user)
            self._stream = self._exec.start()
            await _wait_until_ready(self._stream)
        return self._stream

    async def wrapper_exit_code(self) -> int:
        """Return what the daemon knows."""
        assert self._exec is not None
        code = (await self._exec.inspect())["ExitCode"]
        return code if isinstance(code, int) else 128 + signal.SIGKILL

    async def _attend(self, stream: Stream) -> None:
        async with background(self._feed, stream):
            await self._follow(stream)

    async def _feed(self, stream: Stream) -> None:
        with suppress(*FAILURES):  # the reader sees that as well
            for start in range(0, len(self._stdin), _CHUNK_BYTES):
                await _write(stream, self._stdin[start : start + _CHUNK_BYTES])

    async def _follow(self, stream: Stream) -> None:
        """Take the outputs until both have ended."""
        while self.ending is None and (message := await stream.read_out()):
            (self.stdout if message.stream == 1 else self.stderr).feed(message.data)

    async def _end(self, stream: Stream) -> None:
        """Kill what is left of the command and take what it had written."""
        with anyio.move_on_after(_KILL_SECONDS) as killing, suppress(*FAILURES):
            await _kill(self._container, self._mark)
        if killing.cancelled_caught:  # nothing can be started any more, or something does not die
            with suppress(*FAILURES):
                await self._container.kill()
        with anyio.move_on_after(_DRAIN_SECONDS), suppress(*FAILURES):
            await self._follow(stream)
        self.stdout.flush()
        self.stderr.flush()


async def _write(stream: Stream, data: bytes) -> None:
    try:
        await stream.write_in(data)
    except AssertionError as error:  # how aiodocker says that the connection is gone
        raise ConnectionResetError("the daemon closed the connection") from error


async def _wait_until_ready(stream: Stream) -> None:
    heard = b""
    while not heard.startswith(_READY):
        message = await stream.read_out()
        if message is None:
            reason = heard.decode("utf-8", "replace").strip() or "no output"
            raise _ShellGoneError(f"its /bin/sh cannot run commands any more: {reason}")
        heard += message.data


async def _kill(container: DockerContainer, mark: int) -> None:
    line = ["/bin/sh", "-c", _KILLER, "sh", str(mark * 1024)]
    killer = await container.exec(line, user=ROOT)
    async with killer.start() as stream:
        while await stream.read_out():
            pass
    if (await killer.inspect())["ExitCode"]:
        await container.kill()


class _Channel:
    """
    One output of a command, up to the line that ends it.

    Args:
        token: What that line begins with, wherever in a line of the command's that is.
    """

    def __init__(self, token: bytes, max_bytes: int) -> None:
        self.kept = KeptOutput(max_bytes)
        self.last_line: bytes | None = None
        self._token = token
        self._pending = b""

    def feed(self, data: bytes) -> None:
        """Take the next piece; what follows the last line is left out."""
        if self.last_line is not None:
            return
        self._pending += data
        at = self._pending.find(self._token)
        if at < 0:
            self._keep(max(0, len(self._pending) - len(self._token) + 1))
            return
        self._keep(at)
        line, newline, _ = self._pending.partition(b"\n")
        if newline:
            self.last_line = line.removeprefix(self._token)
            self._pending = b""

    def flush(self) -> None:
        """Keep what could have been the beginning of a last line."""
        self._keep(len(self._pending))

    def _keep(self, size: int) -> None:
        self.kept.feed(self._pending[:size])
        self._pending = self._pending[size:]


# --- arguments --------------------------------------------------------------------------------------


def _expressible(arguments: Sequence[str]) -> list[str]:
    """Return a command that JSON can hold: bytes that are no UTF-8 are spelled out for a shell."""
    texts = [_text(argument) for argument in arguments]
    raw = [to_bytes(argument) for argument in arguments]
    if all(text.encode() == data for text, data in zip(texts, raw, strict=True)):
        return texts
    names = [f"word{number}" for number in range(len(raw))]
    lines = [
        f"{name}=$(printf '{_octal(data)}.'); {name}=${{{name}%.}}"
        for name, data in zip(names, raw, strict=True)
    ]
    call = " ".join(f'"${name}"' for name in names)
    return ["/bin/sh", "-c", "\n".join([*lines, f"exec {call}"])]


def _text(text: str) -> str:
    return to_bytes(text).decode("utf-8", "replace")


def _octal(data: bytes) -> str:
    return "".join(f"\\{byte:03o}" for byte in data)
