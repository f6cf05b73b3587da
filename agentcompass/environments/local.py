"""
The ``local`` environment: sessions are private directories on this machine, their commands plain processes.

Under bubblewrap a command sees a read-only system and its session's directory, and no other processes.
Without it, sessions are kept apart, clean and bounded, but a command can read and write whatever this user
can. Only the files that the engine itself reads and writes are confined to the session's directory.
"""

from __future__ import annotations

import os
import posixpath
import resource
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple, TypeVar

import anyio
from anyio import CapacityLimiter, from_thread, to_thread
from pydantic import BaseModel, ConfigDict, PositiveInt

from ..errors import (
    ConfigError,
    SessionError,
    SessionLostError,
    SessionOpenError,
    TransferError,
)
from ..logs import current_log
from ..protocols import DEFAULT_OUTPUT_BYTES, ExecResult, SessionPlan
from ..spec.network import PUBLIC, NetworkPolicy
from .background import background
from .bubblewrap import ROOT, Bubblewrap, UnusableError, find_bubblewrap
from .directories import SessionDirectory, remove_abandoned, user_directory
from .places import DirectoryPlaces, Places, RootPlaces, real_path
from .processes import Command, Supervisor, kill_marked
from .root_file_systems import add_network_files, root_directory
from .tree import TreeCopy, place_of, read_file, write_file

_CLOSE_SECONDS = 15.0
"""How long closing a session may take before the rest of it is left to a thread and to later runs."""
_MEGABYTE = 1024 * 1024
_WORKDIR_IN_ROOT = "/workspace"
_PATH_IN_ROOT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

T = TypeVar("T")


class LocalParams(BaseModel):
    """How local sessions are set up. Limits hold for each process of a session by itself."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    isolation: Literal["auto", "bubblewrap", "none"] = "auto"
    """Whether commands are confined by bubblewrap; ``auto`` where it works, else a warning says that not."""
    root: Path | None = None
    """A root file system, a directory or a tar archive, that each session has a copy of; needs bubblewrap."""
    root_dir: Path | None = None
    """Where the directories of sessions are created; None for the system's temporary directory."""
    env: dict[str, str] = {}
    """Further environment variables for every command. Of the host's own, only PATH is passed on."""
    memory_mb: PositiveInt | None = None
    """Address space of a process. Some runtimes (Node.js, Java, Go) reserve far more than they use."""
    file_mb: PositiveInt | None = 10_240
    """Size of a file that a command writes."""
    cpu_seconds: PositiveInt | None = None
    """CPU time of a process."""
    open_files: PositiveInt | None = None
    """Open files of a process."""
    processes: PositiveInt | None = None
    """Processes and threads of this user in total, those outside the session included; not for root."""

    def limits(self) -> dict[int, int]:
        """Return the resource limits of a command by ``resource.RLIMIT_*`` constant."""
        values = {
            resource.RLIMIT_AS: self.memory_mb and self.memory_mb * _MEGABYTE,
            resource.RLIMIT_FSIZE: self.file_mb and self.file_mb * _MEGABYTE,
            resource.RLIMIT_CPU: self.cpu_seconds,
            resource.RLIMIT_NOFILE: self.open_files,
            resource.RLIMIT_NPROC: self.processes,
        }
        chosen = {kind: value for kind, value in values.items() if value is not None}
        return {resource.RLIMIT_CORE: 0, **chosen}


class LocalEnvironment:
    """Opens sessions on this machine."""

    def __init__(self, params: LocalParams) -> None:
        self.facts: Mapping[str, str] = {}
        self._params = params
        self._confinement: Confinement | None = None
        self._settling = anyio.Lock()
        self._openings = CapacityLimiter(8)
        self._transfers = CapacityLimiter(8)

    async def check(self, networks: Sequence[NetworkPolicy]) -> None:
        """
        Open a session for a try, and remove what sessions of dead engines left behind.

        Raises:
            ConfigError: No session can be opened, or a policy cannot be enforced.
        """
        await self._settle()
        for policy in networks:
            self._require_enforceable(policy)
        plan = SessionPlan(run_id="check", label="check")
        try:
            await to_thread.run_sync(self._remove_abandoned, limiter=self._openings)
            async with self.open(plan) as session:
                await session.exec(["/bin/sh", "-c", "exit 0"])
        except (OSError, SessionError) as error:
            raise ConfigError(f"the local environment cannot run commands: {error}") from error

    async def _settle(self) -> None:
        """Find out, once, whether commands can be confined."""
        async with self._settling:
            if self.facts:
                return
            if self._params.isolation == "none" and self._params.root is None:
                self.facts = {"isolation": "none"}
                return
            try:
                self._confinement = await to_thread.run_sync(self._confine, limiter=self._openings)
                self.facts = {"isolation": f"bubblewrap {self._confinement.bubblewrap.version}"}
            except UnusableError as error:
                self._require_no_confinement(error)
                self.facts = {"isolation": f"none ({error})"}
                current_log().warning("commands_run_unconfined", reason=str(error))

    def _confine(self) -> Confinement:
        root = self._params.root
        if root is not None and self._params.isolation == "none":
            raise UnusableError("it needs bubblewrap, but isolation is 'none'")
        bubblewrap = find_bubblewrap()
        if root is not None and not bubblewrap.has_overlays:
            raise UnusableError(
                f"it needs bubblewrap 0.11 or later, but {bubblewrap.program} is {bubblewrap.version}; "
                "pip install 'agentcompass[sandbox]'"
            )
        return Confinement(bubblewrap, root and root_directory(root))

    def _require_no_confinement(self, error: UnusableError) -> None:
        if self._params.root is not None:
            raise ConfigError(f"environment_params.root: {error}") from error
        if self._params.isolation == "bubblewrap":
            raise ConfigError(f"environment_params.isolation: {error}; or set it to 'none'") from error

    def _require_enforceable(self, policy: NetworkPolicy) -> None:
        if policy != PUBLIC and self._confinement is None:
            raise ConfigError(
                f"environment 'local' cannot enforce the network policy {policy} while commands are not "
                f"confined (isolation: {self.facts['isolation']}); use bubblewrap, docker, or public"
            )

    def _remove_abandoned(self) -> None:
        remove_abandoned(user_directory(self._params.root_dir))

    @asynccontextmanager
    async def open(self, plan: SessionPlan) -> AsyncIterator[LocalSession]:
        """
        Open a session; at the end its processes are killed and, unless kept, its directory is removed.

        Raises:
            SessionOpenError: It could not be opened.
        """
        try:
            await self._settle()
            self._require_enforceable(plan.network)
        except ConfigError as error:
            raise SessionOpenError(str(error), retryable=False) from error
        session = LocalSession(
            self._params, plan, self._confinement, openings=self._openings, transfers=self._transfers
        )
        try:
            await session.start()
            async with _egress(session, plan):
                yield session
        finally:
            await session.aclose()


class Confinement(NamedTuple):
    """How the sessions of an environment are confined; ``root`` is what they see as /, if not this system."""

    bubblewrap: Bubblewrap
    root: Path | None


@asynccontextmanager
async def _egress(session: LocalSession, plan: SessionPlan) -> AsyncIterator[None]:
    """Give a session that may reach some hosts the way to them."""
    if not plan.network.is_list:
        yield
        return
    from .egress import EgressProxy  # on first use

    listening = await session.listen()
    host, port = listening.getsockname()
    proxy = EgressProxy(plan.network, on_denied=lambda target: plan.note(f"network: refused {target}"))
    session.network_variables = proxy.variables(host, port)
    with listening:  # also if the proxy never gets to serve it
        async with background(proxy.serve, listening):
            yield


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
        params: LocalParams,
        plan: SessionPlan,
        confinement: Confinement | None,
        *,
        openings: CapacityLimiter,
        transfers: CapacityLimiter,
    ) -> None:
        self._params = params
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
            base = user_directory(self._params.root_dir)
            self._directory = SessionDirectory(base, keep=self._plan.keep)
            for name in ("changes", "overlay") if self._has_root else ("home", "tmp", self.workdir):
                (self.root / name).mkdir(parents=True)
            if not self._has_root:
                self._places = DirectoryPlaces(self.root, self.workdir)
            root = ROOT if self._has_root else ""
            self._supervisor = Supervisor(self._params.limits(), self._wrapping(), root=root)
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
                **self._params.env,
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
            with place_of(_on_host(source)) as origin, places.new(target) as goal:
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


def _on_host(source: Path) -> Path:
    resolved = real_path(source)
    if not os.path.lexists(resolved):
        raise TransferError(str(source), "no such file on this machine")
    return resolved


def _search_path() -> str:
    """Return the host's PATH behind our own interpreter's folder: ``python3`` is the one that runs us."""
    return os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])  # noqa: PTH120
