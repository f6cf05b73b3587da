"""An environment in memory, for tests of what uses environments: scripted commands, failures and hangs."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from anyio import to_thread
from pydantic import BaseModel, ConfigDict

from ..errors import ConfigError, SessionFileNotFoundError, SessionLostError, SessionOpenError, TransferError
from ..protocols import DEFAULT_OUTPUT_BYTES, ExecResult, SessionPlan
from ..spec.network import NetworkMode, NetworkPolicy

Hook = Callable[[], Awaitable[None]]


class FakeParams(BaseModel):
    """How fake sessions behave."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    results: dict[str, ExecResult] = {}
    """What commands return, by command (a list is joined by spaces); any other one exits with 0."""
    on_exec: Callable[[FakeSession, str], Awaitable[ExecResult]] | None = None
    """Answers every command instead of ``results``."""
    on_open: Hook | None = None
    """Awaited before a session opens; `anyio.sleep_forever` makes it hang."""
    on_close: Hook | None = None
    """Awaited before a session closes."""
    network_modes: list[NetworkMode] = ["public"]
    """Which network policies it accepts; it enforces none."""
    open_failures: int = 0
    """How many openings fail, the first ones of the environment."""
    lost_at_exec: int | None = None
    """The command of each session, counted from 1, at which the session is lost."""


@dataclass(frozen=True, slots=True)
class FakeStatistics:
    """What became of an environment's sessions; ``live`` ones are open now."""

    attempts: int = 0
    opened: int = 0
    closed: int = 0
    execs: int = 0
    most_live: int = 0

    @property
    def live(self) -> int:
        return self.opened - self.closed


class FakeEnvironment:
    """Opens sessions in memory and counts them."""

    def __init__(self, params: FakeParams) -> None:
        self.params = params
        self.plans: list[SessionPlan] = []
        self.facts = {"fake": "yes"}
        self.closes = 0
        self._statistics = FakeStatistics()

    def statistics(self) -> FakeStatistics:
        """Return the counts so far."""
        return self._statistics

    def _count(self, **more: int) -> None:
        now = self._statistics
        now = replace(now, **{name: getattr(now, name) + number for name, number in more.items()})
        self._statistics = replace(now, most_live=max(now.most_live, now.live))

    async def check(self, networks: Sequence[NetworkPolicy]) -> None:
        """Refuse policies unless the parameters say otherwise."""
        if any(policy.mode not in self.params.network_modes for policy in networks):
            raise ConfigError("the fake environment was told not to enforce that network policy")

    async def aclose(self) -> None:
        """Count."""
        self.closes += 1

    @asynccontextmanager
    async def open(self, plan: SessionPlan) -> AsyncIterator[FakeSession]:
        """Open a session, or fail or hang as the parameters say."""
        self.plans.append(plan)
        self._count(attempts=1)
        if self.params.on_open is not None:
            await self.params.on_open()
        if self._statistics.attempts <= self.params.open_failures:
            raise SessionOpenError("the fake environment was told not to open")
        self._count(opened=1)
        session = FakeSession(self.params, plan, lambda: self._count(execs=1))
        try:
            yield session
        finally:
            session.lost = "closed"
            try:
                if self.params.on_close is not None:
                    await self.params.on_close()
            finally:
                self._count(closed=1)


@dataclass
class FakeSession:
    """A dictionary of files, absolute path to content; directories exist where files are."""

    params: FakeParams
    plan: SessionPlan
    count: Callable[[], None]
    files: dict[str, bytes] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    lost: str = ""
    """Why the session is gone; empty while it is not."""

    @property
    def workdir(self) -> str:
        """Where relative paths begin."""
        return self.plan.workdir or "/agent"

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
        """Answer as the parameters say."""
        del cwd, env, stdin, timeout_seconds, max_output_bytes
        text = command if isinstance(command, str) else " ".join(command)
        self.commands.append(text)
        self.count()
        if len(self.commands) == self.params.lost_at_exec:
            self.lost = self.lost or "killed"
        self._check()
        if self.params.on_exec is not None:
            return await self.params.on_exec(self, text)
        return self.params.results.get(text, ExecResult(exit_code=0))

    async def read(self, path: str, *, max_bytes: int = DEFAULT_OUTPUT_BYTES) -> bytes:
        """Return the content of a file."""
        full = self._resolve(path)
        if full not in self.files:
            raise SessionFileNotFoundError(path)
        if len(self.files[full]) > max_bytes:
            raise TransferError(path, f"larger than {max_bytes} bytes")
        return self.files[full]

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Set the content of a file."""
        del executable
        self.files[self._resolve(path)] = data

    async def upload(self, source: Path, target: str) -> None:
        """Copy the regular files of ``source``."""
        full = self._resolve(target)
        for name, data in (await to_thread.run_sync(_load, source)).items():
            self.files[posixpath.normpath(posixpath.join(full, name))] = data

    async def download(self, source: str, target: Path) -> None:
        """Copy a file, or all files below a directory."""
        full = self._resolve(source)
        found = {path: data for path, data in self.files.items() if f"{path}/".startswith(f"{full}/")}
        if not found:
            raise SessionFileNotFoundError(source)
        copies = {target / PurePosixPath(path).relative_to(full): data for path, data in found.items()}
        await to_thread.run_sync(_save, copies)

    def _resolve(self, path: str) -> str:
        self._check()
        full = posixpath.normpath(posixpath.join(self.workdir, path))
        if not f"{full}/".startswith(f"{self.workdir}/"):
            raise TransferError(path, "outside the session's directory")
        return full

    def _check(self) -> None:
        if self.lost:
            raise SessionLostError(self.lost)


def _load(source: Path) -> dict[str, bytes]:
    paths = [source] if source.is_file() else [path for path in source.rglob("*") if path.is_file()]
    return {str(path.relative_to(source)): path.read_bytes() for path in paths}


def _save(files: Mapping[Path, bytes]) -> None:
    for path, data in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
