"""
The ``local`` environment: sessions are private directories on this machine, their commands plain processes.

Under bubblewrap a command sees a read-only system and its session's directory, and no other processes.
Without it, sessions are kept apart, clean and bounded, but a command can read and write whatever this user
can. Only the files that the engine itself reads and writes are confined to the session's directory.
"""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import anyio
from anyio import CapacityLimiter, to_thread
from pydantic import BaseModel, ConfigDict, PositiveInt

from ..errors import ConfigError, SessionError, SessionOpenError
from ..logs import current_log
from ..protocols import SessionPlan
from ..spec.network import PUBLIC, NetworkPolicy
from .bubblewrap import UnusableError, find_bubblewrap
from .directories import remove_abandoned, user_directory
from .local_session import Confinement, LocalSession, Settings
from .root_file_systems import root_directory

_MEGABYTE = 1024 * 1024


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
        self._settings = Settings(params.root_dir, params.env, params.limits())
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
            self._settings,
            plan,
            self._confinement,
            openings=self._openings,
            transfers=self._transfers,
        )
        try:
            await session.start()
            async with _egress(session, plan):
                yield session
        finally:
            await session.aclose()


@asynccontextmanager
async def _egress(session: LocalSession, plan: SessionPlan) -> AsyncIterator[None]:
    """Give a session that may reach some hosts the way to them."""
    if not plan.network.is_list:
        yield
        return
    from .egress import egress  # on first use

    async with egress(plan, await session.listen()) as variables:
        session.network_variables = variables
        yield
