"""What becomes of local sessions: how they open and close, and what is left when something is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import psutil
import pytest
from anyio import CancelScope, create_task_group, fail_after, lowlevel, sleep_forever, to_thread

from agentcompass.environments.local import LocalEnvironment, LocalParams
from agentcompass.environments.local_session import LocalSession
from agentcompass.errors import ConfigError, SessionLostError, SessionOpenError
from agentcompass.protocols import SessionPlan

from .conftest import PLAN

pytestmark = pytest.mark.anyio

REPOSITORY = Path(__file__).parents[2]


def base_of(root_dir: Path) -> Path:
    return root_dir / f"agentcompass-{os.getuid()}"


def leftovers(root_dir: Path) -> list[str]:
    return sorted(path.name for path in base_of(root_dir).iterdir())


def children() -> int:
    return len(psutil.Process().children(recursive=True))


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def survivors(session: LocalSession) -> list[psutil.Process]:
    """List the live processes of a session, whoever their parent is; reaping the dead is that one's job."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("TMPDIR") == f"{session.root}/tmp":
                found.append(process)
    left = psutil.wait_procs(found, timeout=0.1)[1]  # a killed process may take a moment
    return [process for process in left if is_alive(process)]


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


# --- loss -------------------------------------------------------------------------------------------


async def test_removed_directory_is_a_lost_session(session: LocalSession) -> None:
    """A command that removes its session's directory loses the session, for commands and for files."""
    await session.exec(["rm", "-rf", str(session.root)])
    with pytest.raises(SessionLostError, match="directory removed"):
        await session.exec("echo still here", cwd="/")
    with pytest.raises(SessionLostError, match="directory removed"):
        await session.write("f", b"")
    assert not session.root.exists()


@pytest.mark.parametrize("number", ["KILL", "STOP"])
async def test_command_that_kills_its_supervisor_has_killed_itself(
    environment: LocalEnvironment, number: str
) -> None:
    """Its exit code says so, all that it started is gone, and other commands are not disturbed."""
    async with environment.open(PLAN) as session:
        await session.exec("sleep 1000 &")
        result = await session.exec(f"setsid sleep 1001 & kill -{number} $PPID; sleep 1002")
        assert result.exit_code == 137
        listed = await session.exec("ps -e -o args")
        assert "sleep 1000" in listed.stdout
        assert "sleep 1001" not in listed.stdout
        assert "sleep 1002" not in listed.stdout
    assert await to_thread.run_sync(survivors, session) == []
    assert children() == 0


async def test_killed_supervisors_are_a_lost_session(environment: LocalEnvironment) -> None:
    """A command that kills all that looks after it loses its session; even then no process stays."""
    victims = "$(cut -d ' ' -f 4 /proc/$PPID/stat) $PPID"
    async with environment.open(PLAN) as session:
        await session.exec("setsid sleep 1000 &")
        with pytest.raises(SessionLostError, match="supervisor"):
            await session.exec(f"kill -9 {victims}; sleep 1000")
        with pytest.raises(SessionLostError, match="supervisor"):
            await session.exec("true")
    assert await to_thread.run_sync(survivors, session) == []
    assert children() == 0


async def test_killed_first_process_is_noticed_by_the_next_command(environment: LocalEnvironment) -> None:
    """The running command ends as usual; the next one does not wait for an answer that cannot come."""
    started = anyio.current_time()
    async with environment.open(PLAN) as session:
        await session.exec("sleep 1000 &")
        result = await session.exec("kill -9 $(cut -d ' ' -f 4 /proc/$PPID/stat); echo done")
        assert result.stdout == "done\n"
        with fail_after(5), pytest.raises(SessionLostError, match="supervisor"):
            await session.exec("true")
    assert anyio.current_time() - started < 4  # the other supervisors noticed by themselves
    assert await to_thread.run_sync(survivors, session) == []
    assert children() == 0


# --- opening and closing ----------------------------------------------------------------------------


@pytest.mark.slow
async def test_closed_session_leaves_nothing(environment: LocalEnvironment, root_dir: Path) -> None:
    """Neither files nor processes nor descriptors, however many sessions there were."""
    async with environment.open(PLAN) as session:
        await session.exec("true")
    descriptors = open_descriptors()
    for _ in range(5):
        async with environment.open(PLAN) as session:
            await session.exec("setsid sleep 1000 & echo x > file", stdin=b"x")
            await session.exec("sleep 1000", timeout_seconds=0.01)
    assert leftovers(root_dir) == []
    assert children() == 0
    assert open_descriptors() == descriptors


async def test_closing_twice_is_closing_once(environment: LocalEnvironment) -> None:
    """Whoever closes a session early does no harm to its block."""
    async with environment.open(PLAN) as session:
        await session.aclose()
        await session.aclose()
    assert not session.root.exists()


async def test_kept_session_keeps_its_files_but_no_process(
    environment: LocalEnvironment, root_dir: Path
) -> None:
    """For looking at afterwards; the next run does not take it for abandoned."""
    notes: list[str] = []
    plan = SessionPlan(run_id="run", label="task", keep=True, note=notes.append)
    async with environment.open(plan) as session:
        await session.write("evidence", b"x")
        await session.exec("setsid sleep 1000 &")
    assert await to_thread.run_sync(survivors, session) == []
    await environment.check([])
    assert (session.root / "work" / "evidence").read_bytes() == b"x"
    assert leftovers(root_dir) == [session.root.name]
    assert children() == 0
    assert notes == [f"kept session; look into it: cd {session.root}/work; remove it: rm -rf {session.root}"]


@pytest.mark.slow
async def test_cancellation_at_any_moment_of_opening_leaves_nothing(
    environment: LocalEnvironment, root_dir: Path
) -> None:
    """Cancelled at each step of the loop in turn, opening leaves neither directory nor process."""

    async def hold() -> None:
        async with environment.open(PLAN):
            await sleep_forever()

    for steps in range(0, 120, 4):
        async with create_task_group() as tasks:
            tasks.start_soon(hold)
            for _ in range(steps):
                await lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert leftovers(root_dir) == []
    assert children() == 0


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_asyncios_own_cancellation_of_opening_leaves_nothing(
    environment: LocalEnvironment, root_dir: Path
) -> None:
    """An asyncio application that cancels the task by its own means leaves as little."""
    import asyncio

    async def hold() -> None:
        async with environment.open(PLAN):
            await sleep_forever()

    for steps in range(0, 100, 5):
        task = asyncio.create_task(hold())
        for _ in range(steps):
            await lowlevel.checkpoint()
        task.cancel()
        await asyncio.wait([task])
    assert leftovers(root_dir) == []
    assert children() == 0


async def test_close_is_not_cut_short_by_a_cancelled_surrounding(environment: LocalEnvironment) -> None:
    """The directory is gone when the block is left, though everything was cancelled."""
    with CancelScope() as scope:
        async with environment.open(PLAN) as session:
            scope.cancel()
    assert not session.root.exists()


@pytest.mark.slow
async def test_many_sessions_at_once(environment: LocalEnvironment, root_dir: Path) -> None:
    """Sessions that open and close at the same time do not get into each other's way."""
    seen: set[str] = set()

    async def use() -> None:
        async with environment.open(PLAN) as session:
            seen.add((await session.exec("pwd")).stdout)

    async with create_task_group() as tasks:
        for _ in range(32):
            tasks.start_soon(use)
    assert len(seen) == 32
    assert leftovers(root_dir) == []


async def test_directory_of_somebody_else_is_not_used(environment: LocalEnvironment, root_dir: Path) -> None:
    """One that others can write to, or a link, is refused before the run and at each opening."""
    base_of(root_dir).mkdir(parents=True)
    base_of(root_dir).chmod(0o777)
    with pytest.raises(ConfigError, match="private"):
        await environment.check([])
    with pytest.raises(SessionOpenError, match="private"):
        async with environment.open(PLAN):
            pass
    base_of(root_dir).rmdir()
    base_of(root_dir).symlink_to("/tmp")
    with pytest.raises(ConfigError, match="private"):
        await environment.check([])


async def test_unusable_root_is_a_config_error(tmp_path: Path) -> None:
    """The message names the place."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file"):
        await LocalEnvironment(LocalParams(root_dir=tmp_path / "file")).check([])


# --- dead owners ------------------------------------------------------------------------------------

ENGINE = """
import sys, anyio
from agentcompass.environments.local import LocalEnvironment, LocalParams
from agentcompass.protocols import SessionPlan

async def main():
    environment = LocalEnvironment(LocalParams(root_dir=sys.argv[1]))
    async with environment.open(SessionPlan(run_id="r", label="l")) as session:
        await session.exec("setsid sleep 1000 & (setsid sh -c 'sleep 1000 & exec sleep 1000' &)")
        print(session.root, flush=True)
        await session.exec("sleep 1000 & sleep 1000")

anyio.run(main)
"""
ENGINE_PROCESSES = 9
"""Three supervisors, a shell and five sleepers."""


@contextmanager
def running_engine(root_dir: Path) -> Iterator[subprocess.Popen[str]]:
    arguments = [sys.executable, "-c", ENGINE, str(root_dir)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as engine:
        try:
            yield engine
        finally:
            engine.kill()


def wait_processes(engine: subprocess.Popen[str]) -> list[psutil.Process]:
    while len(found := psutil.Process(engine.pid).children(recursive=True)) < ENGINE_PROCESSES:
        time.sleep(0.002)
    return found


@pytest.mark.slow
def test_killed_engine_leaves_no_process_and_its_directory_is_found(
    environment: LocalEnvironment, root_dir: Path
) -> None:
    """Its processes die with it; the next check removes its directory, but not while it lives."""
    with running_engine(root_dir) as engine:
        assert engine.stdout is not None
        root = Path(engine.stdout.readline().strip())
        processes = wait_processes(engine)
        anyio.run(environment.check, [])
        assert root.exists()
        engine.kill()
        assert psutil.wait_procs(processes, timeout=5)[1] == []
    assert root.exists()
    anyio.run(environment.check, [])
    assert leftovers(root_dir) == []


async def test_directory_without_our_mark_is_never_removed(
    environment: LocalEnvironment, root_dir: Path
) -> None:
    """Only what has a lock of ours beside it can be abandoned."""
    await environment.check([])
    base = base_of(root_dir)
    (base / "0123456789abcdef").mkdir()
    (base / "notes").mkdir()
    (base / "notes.lock").touch()
    await environment.check([])
    assert leftovers(root_dir) == ["0123456789abcdef", "notes", "notes.lock"]


async def test_link_in_place_of_a_directory_is_not_followed(
    environment: LocalEnvironment, root_dir: Path, tmp_path: Path
) -> None:
    """Removing an abandoned session removes nothing outside it."""
    await environment.check([])
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (base_of(root_dir) / "0123456789abcdef.lock").touch()
    (base_of(root_dir) / "0123456789abcdef").symlink_to(tmp_path / "precious")
    await environment.check([])
    assert (tmp_path / "precious" / "file").exists()
