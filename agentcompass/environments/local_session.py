"""One local session: its directory, its processes, and its files as the commands see them."""

from __future__ import annotations

import os
import posixpath
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar

import anyio
from anyio import CapacityLimiter, from_thread, to_thread

from ..errors import SessionLostError, SessionOpenError, TransferError
from ..protocols import DEFAULT_OUTPUT_BYTES, ExecResult, SessionPlan
from ..spec.network import PUBLIC
from .bubblewrap import ROOT, Bubblewrap
from .directories import SessionDirectory, user_directory
from .places import DirectoryPlaces, Places, RootPlaces, real_path, source_on_host
from .processes import Command, Supervisor, kill_marked
from .root_file_systems import add_network_files
from .tree import TreeCopy, place_of, read_file, write_file

_CLOSE_SECONDS = 15.0
"""How long closing a session may take before the rest of it is left to a thread and to later runs."""
_WORKDIR_IN_ROOT = "/workspace"
_PATH_IN_ROOT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

T = TypeVar("T")


class Settings(NamedTuple):
    """
    What all sessions of an environment have in common.

    Args:
        root_dir: Where their directories are created; None for the system's temporary directory.
        limits: Resource limits of each command by ``resource.RLIMIT_*`` constant.
    """

    root_dir: Path | None
    env: Mapping[str, str]
    limits: Mapping[int, int]


class Confinement(NamedTuple):
    """How the sessions of an environment are confined; ``root`` is what they see as /, if not this system."""

    bubblewrap: Bubblewrap
    root: Path | None


class LocalSession:
    """
    A directory with ``work``, ``home`` and ``tmp``, and the processes that were started in it.

    Args:
        confinement: Confines its commands, if given.
        openings: Limits the threads that open and close sessions.
        transfers: Limits the threads that copy files.
    """

    def __init__(
        self,
        settings: Settings,
        plan: SessionPlan,
        confinement: Confinement | None,
        *,
        openings: CapacityLimiter,
        transfers: CapacityLimiter,
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._confinement = confinement
        self._has_root = confinement is not None and confinement.root is not None
        self._places: Places | None = None
        self.network_variables: Mapping[str, str] = {}
        self._openings = openings
        self._transfers = transfers
        self._directory: SessionDirectory | None = None
        self._supervisor: Supervisor | None = None
        self._lost = "not open"

    @property
    def root(self) -> Path:
        """The session's directory."""
        assert self._directory is not None
        return self._directory.path

    @property
    def workdir(self) -> str:
        """Absolute path where commands start."""
        if self._has_root:
            return posixpath.normpath(posixpath.join(_WORKDIR_IN_ROOT, self._plan.workdir))
        return str(self.root / "work" / self._plan.workdir)

    async def start(self) -> None:
        """Create the directory and start the supervisor."""
        wanted = PurePosixPath(self._plan.workdir)
        if not self._has_root and (wanted.is_absolute() or ".." in wanted.parts):
            reason = "the local environment takes only a working directory inside the session's own"
            raise SessionOpenError(f"{reason}, not {self._plan.workdir!r}", retryable=False)
        failures: list[OSError] = []
        async with anyio.create_task_group() as opening:  # not even asyncio's own `cancel()` gets past it
            opening.start_soon(self._in_thread, partial(self._start, failures))
        if failures:
            raise SessionOpenError(f"no local session could be opened: {failures[0]}") from failures[0]
        self._lost = ""
        if self._has_root:
            await self._enter_root()

    async def _enter_root(self) -> None:
        """Get hold of the files as the commands will see them, and add what every session has."""
        try:
            descriptor = await self._check_alive().open_root()
        except SessionLostError as error:
            raise SessionOpenError(f"no session in a root file system: {error.cause}") from error
        self._places = places = RootPlaces(descriptor, self.workdir)
        try:
            await to_thread.run_sync(self._prepare_root, places, limiter=self._openings)
        except (OSError, TransferError) as error:
            raise SessionOpenError(
                f"no session in this root file system: {error}", retryable=False
            ) from error

    def _prepare_root(self, places: RootPlaces) -> None:
        places.make_workdir()
        add_network_files(places, public=self._plan.network == PUBLIC)

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await to_thread.run_sync(work, limiter=self._openings)

    def _start(self, failures: list[OSError]) -> None:
        try:
            base = user_directory(self._settings.root_dir)
            self._directory = SessionDirectory(base, keep=self._plan.keep)
            for name in ("changes", "overlay") if self._has_root else ("home", "tmp", self.workdir):
                (self.root / name).mkdir(parents=True)
            if not self._has_root:
                self._places = DirectoryPlaces(self.root, self.workdir)
            root = ROOT if self._has_root else ""
            self._supervisor = Supervisor(self._settings.limits, self._wrapping(), root=root)
        except OSError as error:
            failures.append(error)

    def _wrapping(self) -> list[str]:
        if self._confinement is None:
            return []
        bubblewrap, root = self._confinement
        return bubblewrap.command(self.root, own_network=self._plan.network != PUBLIC, root=root)

    async def listen(self) -> socket.socket:
        """Return a socket that listens on the loopback interface of a confined session."""
        return await self._check_alive().listen()

    async def aclose(self) -> None:
        """Kill the processes and remove the directory; the second time does nothing."""
        if self._lost == "closed":
            return
        self._lost = "closed"
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            if self._supervisor is not None:
                await self._supervisor.stop()
            dispose = self._dispose
            await to_thread.run_sync(dispose, abandon_on_cancel=True, limiter=self._openings)
        if self._plan.keep and self._directory is not None:
            files = self.root / ("changes" if self._has_root else "work")
            self._plan.note(f"kept session; look into it: cd {files}; remove it: rm -rf {self.root}")

    def _dispose(self) -> None:
        if isinstance(self._places, RootPlaces):
            self._places.close()
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None and not supervisor.close():
            kill_marked(str(self.root))
        if self._directory is not None:
            self._directory.remove()

    def _check_alive(self) -> Supervisor:
        if self._lost or self._supervisor is None:
            raise SessionLostError(self._lost)
        return self._supervisor

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_seconds: float | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run a command; see ``Session.exec``. Where ``cwd`` does not exist it is an ``ExecError``."""
        request = Command(
            arguments=["/bin/sh", "-c", command] if isinstance(command, str) else command,
            workdir=self.workdir,
            cwd=cwd or ".",
            env={
                **self._base_env(),
                **self._settings.env,
                **self._plan.env,
                **self.network_variables,
                **(env or {}),
            },
        )
        try:
            return await self._check_alive().run(
                request, stdin=stdin, timeout_seconds=timeout_seconds, max_output_bytes=max_output_bytes
            )
        except SessionLostError as error:
            self._lost = self._lost or error.cause
            raise

    def _base_env(self) -> dict[str, str]:
        common = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TERM": "dumb"}
        if self._has_root:
            return {"PATH": _PATH_IN_ROOT, **common, "HOME": "/root"}
        own = {"HOME": str(self.root / "home"), "TMPDIR": str(self.root / "tmp")}
        return {"PATH": _search_path(), **common, **own}

    async def read(self, path: str, *, max_bytes: int = DEFAULT_OUTPUT_BYTES) -> bytes:
        """Read a file; see ``Session.read``."""

        def read(places: Places) -> bytes:
            with places.existing(path) as place:
                return read_file(place, max_bytes=max_bytes)

        return await self._transfer(path, read)

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a file; see ``Session.write``."""

        def write(places: Places) -> None:
            with places.new(path) as place:
                write_file(place, data, mode=0o755 if executable else 0o644)

        await self._transfer(path, write)

    async def upload(self, source: Path, target: str) -> None:
        """Copy a file or a tree to ``target``, the name of the copy; see ``TreeCopy``."""
        tree = TreeCopy(from_session=False, checkpoint=from_thread.check_cancelled)

        def upload(places: Places) -> None:
            with place_of(source_on_host(source)) as origin, places.new(target) as goal:
                tree.copy(origin, goal)

        await self._transfer(target, upload)

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or a tree to ``target``, the name of the copy; see ``TreeCopy``."""
        tree = TreeCopy(from_session=True, checkpoint=from_thread.check_cancelled)

        def download(places: Places) -> None:
            with places.existing(source) as origin, place_of(real_path(target), make_parents=True) as goal:
                tree.copy(origin, goal)

        await self._transfer(source, download)

    async def _transfer(self, path: str, work: Callable[[Places], T]) -> T:
        self._check_alive()
        return await to_thread.run_sync(self._translate_errors, path, work, limiter=self._transfers)

    def _translate_errors(self, path: str, work: Callable[[Places], T]) -> T:
        assert self._places is not None
        if self._places.is_gone():
            self._lost = self._lost or "directory removed"
            raise SessionLostError(self._lost)
        try:
            return work(self._places)
        except OSError as error:
            raise TransferError(path, f"{error.strerror} ({error.filename})") from error
        except ValueError as error:  # a NUL character, or a surrogate that stands for no byte
            raise TransferError(path, "no file can have this name") from error


def _search_path() -> str:
    """Return the host's PATH behind our own interpreter's folder: ``python3`` is the one that runs us."""
    return os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])  # noqa: PTH120
