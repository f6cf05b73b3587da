"""The fake environment does what tests tell it to, and otherwise what sessions do."""

from __future__ import annotations

from pathlib import Path

import pytest
from anyio import create_task_group, move_on_after, sleep_forever, wait_all_tasks_blocked

from agentcompass.environments.fake import FakeEnvironment, FakeParams, FakeSession, FakeStatistics
from agentcompass.errors import SessionFileNotFoundError, SessionLostError, SessionOpenError, TransferError
from agentcompass.protocols import Environment, ExecResult, SessionPlan

pytestmark = pytest.mark.anyio

PLAN = SessionPlan(run_id="run", label="task")


async def test_commands_are_answered_by_script() -> None:
    """From the mapping; what is not in it succeeds in silence; all of them are recorded."""
    environment = FakeEnvironment(FakeParams(results={"ls -l": ExecResult(exit_code=2)}))
    async with environment.open(PLAN) as session:
        assert (await session.exec(["ls", "-l"])).exit_code == 2
        assert (await session.exec("other")).exit_code == 0
        assert session.commands == ["ls -l", "other"]


async def test_commands_are_answered_by_hook() -> None:
    """The hook sees the session and the command."""

    async def answer(session: FakeSession, command: str) -> ExecResult:
        await session.write("seen", command.encode())
        return ExecResult(exit_code=5)

    async with FakeEnvironment(FakeParams(on_exec=answer)).open(PLAN) as session:
        assert (await session.exec("make")).exit_code == 5
        assert await session.read("seen") == b"make"


async def test_first_openings_fail() -> None:
    """As many as asked for, then they succeed."""
    environment = FakeEnvironment(FakeParams(open_failures=2))
    contract: Environment = environment  # mypy: it fits
    for _ in range(2):
        with pytest.raises(SessionOpenError):
            async with contract.open(PLAN):
                pass
    async with environment.open(PLAN):
        assert environment.statistics() == FakeStatistics(attempts=3, opened=1, most_live=1)


async def test_session_is_lost_at_a_command() -> None:
    """From that command on, everything says so."""
    environment = FakeEnvironment(FakeParams(lost_at_exec=2))
    async with environment.open(PLAN) as session:
        await session.exec("first")
        with pytest.raises(SessionLostError, match="killed"):
            await session.exec("second")
        with pytest.raises(SessionLostError):
            await session.read("f")
    assert environment.statistics() == FakeStatistics(attempts=1, opened=1, closed=1, execs=2, most_live=1)


@pytest.mark.parametrize("params", [FakeParams(on_open=sleep_forever), FakeParams(on_close=sleep_forever)])
async def test_hang_can_be_cancelled(params: FakeParams) -> None:
    """Opening or closing hangs until it is cancelled; the count of live sessions stays right."""
    environment = FakeEnvironment(params)

    async def use() -> None:
        async with environment.open(PLAN):
            pass

    async with create_task_group() as tasks:
        tasks.start_soon(use)
        await wait_all_tasks_blocked()
        assert environment.statistics().attempts == 1
        assert environment.statistics().closed == 0
        tasks.cancel_scope.cancel()
    assert environment.statistics().live == 0


async def test_files_behave_like_a_sessions(tmp_path: Path) -> None:
    """Relative to the working directory, typed errors, up and down."""
    (tmp_path / "up" / "sub").mkdir(parents=True)
    (tmp_path / "up" / "sub" / "f").write_bytes(b"x")
    async with FakeEnvironment(FakeParams()).open(PLAN) as session:
        await session.upload(tmp_path / "up", "tree")
        assert await session.read("/agent/tree/sub/f") == b"x"
        await session.download("tree", tmp_path / "down")
        await session.download("tree/sub/f", tmp_path / "single")
        with pytest.raises(SessionFileNotFoundError):
            await session.read("missing")
        with pytest.raises(TransferError, match="outside"):
            await session.write("../x", b"")
        with pytest.raises(TransferError, match="larger"):
            await session.read("tree/sub/f", max_bytes=0)
    assert (tmp_path / "down" / "sub" / "f").read_bytes() == b"x"
    assert (tmp_path / "single").read_bytes() == b"x"


async def test_closed_session_is_lost() -> None:
    """Also while its closing hangs."""
    async with FakeEnvironment(FakeParams()).open(PLAN) as session:
        pass
    with pytest.raises(SessionLostError, match="closed"):
        await session.exec("x")
    with move_on_after(0.01):
        async with FakeEnvironment(FakeParams(on_close=sleep_forever)).open(PLAN) as session:
            pass
    with pytest.raises(SessionLostError, match="closed"):
        await session.exec("x")
