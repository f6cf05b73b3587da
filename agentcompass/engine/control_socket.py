"""
The controls of a running orchestration for other processes: a socket in each run directory.

Only the owner may connect. A request is one line of JSON, ``{"command": ..., ...}``; so is the reply,
``{"ok": ...}`` or ``{"error": ...}``.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import SocketListener, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from ..errors import CompassError, ConfigError
from ..logs import current_log
from .control import Controls

SOCKET_FILE = "control.sock"
_MAX_LINE_BYTES = 64 * 1024
_IDLE_SECONDS = 10.0
_OWNER_ONLY = 0o600


class Command(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    What is asked of a running orchestration.

    Args:
        command: One of ``COMMANDS``.
        name: Of a request, or a setting: ``task_concurrency``, ``provider_limits.PROVIDER``.
        task_id: For ``cancel``.
        value: For ``set``.
    """

    command: str
    name: str = ""
    task_id: str = ""
    value: int = 0


@asynccontextmanager
async def serve_controls(run_dir: Path, controls: Controls, *, request: str) -> AsyncIterator[None]:
    """
    Answer on the socket of a run directory while the block runs.

    Where the socket cannot be made (a file system without them), the run goes on without.

    Args:
        request: The request that the directory belongs to; ``cancel`` means its tasks.
    """
    try:
        listener = await SocketListener.from_socket(await to_thread.run_sync(_bind, run_dir))
    except OSError as error:
        current_log().warning("no_control_socket", error=str(error))
        yield
        return

    async def answer(stream: SocketStream) -> None:
        async with stream:
            with anyio.move_on_after(_IDLE_SECONDS), suppress(anyio.BrokenResourceError, OSError):
                await _answer(stream, controls, request)

    failure = None
    try:
        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, answer)
            try:
                yield
            except Exception as error:  # noqa: BLE001  # raised below: the task group would wrap it
                failure = error
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(_remove, run_dir / SOCKET_FILE)
    if failure is not None:
        raise failure


def _address(run_dir: Path, directory: int) -> str:
    """Name the socket by its open directory, if we can: an address holds about a hundred bytes only."""
    by_descriptor = f"/proc/self/fd/{directory}"
    return f"{by_descriptor if sys.platform == 'linux' else run_dir}/{SOCKET_FILE}"


def _bind(run_dir: Path) -> socket.socket:
    """Make the socket, in place of one that a dead process has left; nobody can connect before it is ours."""
    bound = socket.socket(socket.AF_UNIX)
    path = run_dir / SOCKET_FILE
    try:
        path.unlink(missing_ok=True)
        with _opened(run_dir) as directory:
            bound.bind(_address(run_dir, directory))
        path.chmod(_OWNER_ONLY)
        bound.listen()
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


async def _answer(stream: SocketStream, controls: Controls, request: str) -> None:
    try:
        line = await BufferedByteReceiveStream(stream).receive_until(b"\n", _MAX_LINE_BYTES)
    except (anyio.IncompleteRead, anyio.DelimiterNotFound):
        return
    await stream.send(msgspec.json.encode(_reply(line, controls, request)) + b"\n")


def _reply(line: bytes, controls: Controls, request: str) -> dict[str, Any]:
    try:
        command = msgspec.json.decode(line, type=Command)
        action = COMMANDS.get(command.command)
        if action is None:
            raise ConfigError(f"no command {command.command!r} (there are: {', '.join(COMMANDS)})")
        return {"ok": msgspec.to_builtins(action(controls, command, request))}
    except (CompassError, msgspec.DecodeError) as error:
        return {"error": str(error)}


def _set(controls: Controls, command: Command, _request: str) -> None:
    setting, _, provider = command.name.partition(".")
    match setting:
        case "task_concurrency" if not provider:
            controls.set_task_concurrency(command.value)
        case "provider_limits" if provider:
            controls.set_provider_limit(provider, command.value)
        case _:
            raise ConfigError(
                f"{command.name!r} cannot be set; task_concurrency and provider_limits.PROVIDER can"
            )


_Action = Callable[[Controls, Command, str], object]
COMMANDS: dict[str, _Action] = {
    "status": lambda controls, _command, _request: controls.status(),
    "pause": lambda controls, _command, _request: controls.pause(),
    "resume": lambda controls, _command, _request: controls.resume(),
    "set": _set,
    "cancel": lambda controls, command, request: controls.cancel_task(request, command.task_id),
    "cancel-request": lambda controls, command, _request: controls.cancel_request(command.name),
}


# --- the other side ---------------------------------------------------------------------------------


def call_controls(run_dir: Path, command: Command) -> Any:  # whatever JSON can express
    """
    Ask the process that runs in a run directory; blocks.

    Raises:
        ConfigError: Nobody runs there, or it refuses the command.
    """
    reply = msgspec.json.decode(_ask(run_dir, msgspec.json.encode(command) + b"\n"))
    if "error" in reply:
        raise ConfigError(reply["error"])
    return reply["ok"]


def _ask(run_dir: Path, line: bytes) -> bytes:
    try:
        with _opened(run_dir) as directory, socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_IDLE_SECONDS)
            connection.connect(_address(run_dir, directory))
            connection.sendall(line)
            return b"".join(iter(lambda: connection.recv(_MAX_LINE_BYTES), b""))
    except FileNotFoundError:
        raise ConfigError(f"nothing runs in {str(run_dir)!r}: it has no {SOCKET_FILE}") from None
    except ConnectionRefusedError:
        raise ConfigError(f"nothing runs in {str(run_dir)!r} any more: its process has ended") from None
    except TimeoutError:
        raise ConfigError(f"the process that runs in {str(run_dir)!r} does not answer") from None
    except OSError as error:
        raise ConfigError(f"cannot reach the run in {str(run_dir)!r}: {error.strerror}") from error


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
