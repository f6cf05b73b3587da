"""
The engine's side of a local session's commands: have them started, stream their input and output, end them.

The other side, and the protocol, is ``_supervisor.py``.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

from ..errors import ExecError, SessionLostError
from ..protocols import TIMEOUT_EXIT_CODE, ExecResult
from .arguments import check_command, to_bytes
from .output import KeptOutput

_KILL_SECONDS = 6.0
"""How long to wait for the end of a process tree: a little longer than a supervisor goes on trying."""
_CHUNK_BYTES = 64 * 1024
_PIPE_BYTES = 1024 * 1024
"""The most that a pipe holds when its command ends."""
_START = "import sys; sys.path.append(sys.argv.pop(1)); import _supervisor; _supervisor.main()"
"""Imported rather than run as a script: that way its byte code is cached."""
_LOADER_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""All that the interpreter itself may need of the host's environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """
    A program to run.

    Args:
        workdir: The session's directory for commands; when it is gone, so is the session.
        cwd: Where to start; relative to ``workdir``.
    """

    arguments: Sequence[str]
    workdir: str
    cwd: str
    env: Mapping[str, str]

    def encode(self) -> bytes:
        """
        Return the request as the supervisor reads it.

        Raises:
            ExecError: The command cannot be expressed.
        """
        check_command(self.arguments, self.env, self.workdir, self.cwd)
        variables = [f"{name}={value}" for name, value in self.env.items()]
        fields = [self.workdir, self.cwd, str(len(self.arguments)), *self.arguments, *variables]
        body = b"\0".join(to_bytes(field) for field in fields)
        return len(body).to_bytes(8, "big") + body


@dataclass(frozen=True, slots=True)
class _Report:
    kind: str
    number: int


class Supervisor:
    """
    The process that runs the commands of one session and kills what is left of them.

    It notices by the end of its socket when the engine dies, however that happens.

    Args:
        limits: Resource limits of each command: pairs of a ``resource.RLIMIT_*`` constant and its value.
        confinement: What to run the supervisor by, if anything.
        root: The directory that commands see as /, by the supervisor's own view; empty for its own.
    """

    def __init__(self, limits: Mapping[int, int], confinement: Sequence[str] = (), *, root: str = "") -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        words = [f"{kind}={value}" for kind, value in limits.items()]
        options = [str(Path(__file__).parent), str(theirs.fileno()), root, *words]
        try:
            self._process = subprocess.Popen(
                [*confinement, sys.executable, "-I", "-S", "-c", _START, *options],
                pass_fds=[theirs.fileno()],
                env={name: os.environ[name] for name in _LOADER_VARIABLES if name in os.environ},
                stdin=subprocess.PIPE,  # nothing is written to either: each tells the end of the other side
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,  # read only when it does not start; it has next to nothing to say
                start_new_session=True,
            )
        except OSError:
            self._socket.close()
            raise
        finally:
            theirs.close()

    async def run(
        self, command: Command, *, stdin: bytes, timeout_seconds: float | None, max_output_bytes: int
    ) -> ExecResult:
        """
        Run a command to its exit; see ``Session.exec``.

        Raises:
            ExecError: It could not be started.
            SessionLostError: The supervisor or the working directory is gone.
        """
        request = command.encode()
        started = anyio.current_time()
        outputs = KeptOutput(max_output_bytes), KeptOutput(max_output_bytes)
        with ExitStack() as stack:
            wires = _Wires(stack)
            report = None
            try:
                with anyio.move_on_after(timeout_seconds) as deadline:
                    await wires.send_descriptors(self._socket)
                    report = await wires.attend(request, stdin, outputs)
            except ConnectionError as error:
                raise SessionLostError(self._last_words()) from error
            finally:
                if report is None:
                    await wires.kill()
            wires.drain(outputs)
            if report is not None:
                wires.detach()
        timed_out = report is None and deadline.cancelled_caught
        if report is None and not timed_out:
            raise SessionLostError(self._last_words())
        exit_code = _exit_code(report, command.cwd) if report else TIMEOUT_EXIT_CODE
        return ExecResult(
            exit_code=exit_code,
            stdout_bytes=outputs[0].content,
            stderr_bytes=outputs[1].content,
            stdout_dropped=outputs[0].dropped_bytes,
            stderr_dropped=outputs[1].dropped_bytes,
            timed_out=timed_out,
            duration_seconds=anyio.current_time() - started,
        )

    async def listen(self) -> socket.socket:
        """
        Have a socket opened that listens on the loopback interface of the session.

        Raises:
            SessionLostError: The supervisor is gone.
        """
        return socket.socket(fileno=await self._ask(b"l"))

    async def open_root(self) -> int:
        """
        Have the root that commands see opened.

        Raises:
            SessionLostError: The supervisor is gone.
        """
        return await self._ask(b"r")

    async def _ask(self, question: bytes) -> int:
        """Ask the first process for a descriptor; only while no command is being started."""
        try:
            self._socket.send(question)
            await anyio.wait_readable(self._socket)
            _, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        except OSError as error:
            raise SessionLostError(self._last_words()) from error
        if not descriptors:
            raise SessionLostError(self._last_words())
        return descriptors[0]

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        with suppress(BlockingIOError):
            said = os.read(self._process.stderr.fileno(), _CHUNK_BYTES).decode("utf-8", "replace").strip()
            if said:
                return f"its supervisor failed: {said}"
        return "its supervisor was killed"

    async def stop(self) -> None:
        """Have all processes of the session killed and wait until they are gone."""
        with suppress(OSError):  # not connected any more: it died first
            self._socket.shutdown(socket.SHUT_RDWR)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        os.set_blocking(self._process.stdout.fileno(), False)
        with anyio.move_on_after(_KILL_SECONDS):
            await _read(self._process.stdout.fileno())

    def close(self) -> bool:
        """End a stopped supervisor; return whether it saw the last process of the session go."""
        self._socket.close()
        with self._process:
            try:
                return self._process.wait(0.5) == 0
            except subprocess.TimeoutExpired:  # bubblewrap alone would leave process 1 of its session alive
                os.killpg(self._process.pid, signal.SIGKILL)
        return False


class _Wires:
    """The descriptors of one running command: control socket, standard input, output and error."""

    def __init__(self, stack: ExitStack) -> None:
        self._control, theirs = socket.socketpair()
        stack.callback(self._control.close)
        self._theirs = stack.enter_context(ExitStack())
        self._theirs.callback(theirs.close)
        self._stdin = stack.enter_context(ExitStack())
        stdin_read, self._stdin_write = self._pipe(self._theirs, self._stdin)
        self._out, out_write = self._pipe(stack, self._theirs)
        self._err, err_write = self._pipe(stack, self._theirs)
        self._descriptors = [theirs.fileno(), self._out, out_write, self._err, err_write, stdin_read]
        self._control.setblocking(False)
        for descriptor in (self._stdin_write, self._out, self._err):
            os.set_blocking(descriptor, False)

    @staticmethod
    def _pipe(reading: ExitStack, writing: ExitStack) -> tuple[int, int]:
        read, write = os.pipe()
        reading.callback(os.close, read)
        writing.callback(os.close, write)
        return read, write

    async def send_descriptors(self, session: socket.socket) -> None:
        while True:
            try:
                socket.send_fds(session, [b"c"], self._descriptors)
                break
            except BlockingIOError:
                await anyio.wait_writable(session)
        self._theirs.close()

    async def attend(
        self, request: bytes, stdin: bytes, outputs: tuple[KeptOutput, KeptOutput]
    ) -> _Report | None:
        """Start the command and serve its streams; return how it ended, None if its supervisor died."""
        await _write_all(self._control.fileno(), request)
        async with anyio.create_task_group() as streams:
            streams.start_soon(self._feed, stdin)
            streams.start_soon(_follow, self._out, outputs[0])
            streams.start_soon(_follow, self._err, outputs[1])
            line = await self._read_line()
            streams.cancel_scope.cancel()
        kind, _, number = line.partition(b" ")
        return _Report(kind.decode(), int(number)) if number else None

    async def _feed(self, stdin: bytes) -> None:
        await _write_all(self._stdin_write, stdin)
        self._stdin.close()

    async def _read_line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            chunk = await _read(self._control.fileno())
            if not chunk:
                return b""
            line += chunk
        return line

    async def kill(self) -> None:
        """Have the command's process tree killed and wait until it is gone."""
        self._theirs.close()
        with suppress(OSError):  # not connected any more: its supervisor died first
            self._control.shutdown(socket.SHUT_WR)
        with anyio.move_on_after(_KILL_SECONDS, shield=True):
            while await self._read_line():
                pass  # the command ended in the same moment

    def detach(self) -> None:
        """Let the background children of an ended command live, and its supervisor take their output."""
        with suppress(OSError):
            self._control.send(b"d")

    def drain(self, outputs: tuple[KeptOutput, KeptOutput]) -> None:
        """Take what is in the pipes already; a background child may hold them open, or even go on writing."""
        for descriptor, output in zip((self._out, self._err), outputs, strict=True):
            taken = 0
            with suppress(BlockingIOError):
                while taken < _PIPE_BYTES and (chunk := os.read(descriptor, _CHUNK_BYTES)):
                    output.feed(chunk)
                    taken += len(chunk)


async def _follow(descriptor: int, output: KeptOutput) -> None:
    while chunk := await _read(descriptor):  # it waits at each turn: a flood must not starve the event loop
        output.feed(chunk)


async def _read(descriptor: int) -> bytes:
    """Wait for the next piece of a stream; empty at its end."""
    while True:
        await anyio.wait_readable(descriptor)
        try:
            return os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            continue  # trio's epoll remembers closed descriptors that a supervisor still holds
        except ConnectionError:
            return b""


async def _write_all(descriptor: int, data: bytes) -> None:
    """Write to a pipe or socket until all is written or the other side has closed it."""
    rest = memoryview(data)
    while rest:
        await anyio.wait_writable(descriptor)
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            continue
        except (BrokenPipeError, ConnectionResetError):
            return


def _exit_code(report: _Report, cwd: str) -> int:
    match report:
        case _Report("exit", number):
            return number
        case _Report("signal", number):
            return 128 + number
        case _Report("gone", _):
            raise SessionLostError("directory removed")
        case _Report("cwd", number):
            reason = os.strerror(number)
            raise ExecError(f"the command cannot start in {cwd!r}: {reason}", retryable=False)
        case _Report(_, number):
            raise ExecError(f"no process could be started for the command: {os.strerror(number)}")


def kill_marked(marker: str) -> None:
    """
    Kill the processes that have this text in the environment they were started with (Linux).

    The last resort where a supervisor cannot say that its processes are gone.
    """
    if sys.platform != "linux":
        return
    wanted = os.fsencode(marker)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if wanted in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
