"""What is special about local sessions; what every session does is tested in ``tests/conformance``."""

from __future__ import annotations

import os
import secrets
import signal
import stat
import sys
from pathlib import Path

import psutil
import pytest
from anyio import create_task_group, fail_after, sleep, to_thread

from agentcompass.environments.local import LocalEnvironment, LocalParams
from agentcompass.environments.local_session import LocalSession
from agentcompass.errors import ExecError, SessionOpenError, TransferError
from agentcompass.protocols import SessionPlan

from .conftest import PLAN

pytestmark = pytest.mark.anyio

REPOSITORY = Path(__file__).parents[2]


def command_lines() -> list[str]:
    return [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]


# --- surroundings of a command ----------------------------------------------------------------------


async def test_environment_of_a_command_is_exactly_known(session: LocalSession) -> None:
    """Nothing but a path, a locale and places of the session's own, whatever the host has set."""
    result = await session.exec(["env"])
    variables = dict(line.split("=", 1) for line in result.stdout.splitlines())
    assert variables == {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        "HOME": f"{session.root}/home",
        "TMPDIR": f"{session.root}/tmp",
    }


async def test_variables_of_the_parameters_come_before_the_plans(root_dir: Path) -> None:
    """The more specific setting wins."""
    environment = LocalEnvironment(LocalParams(root_dir=root_dir, env={"A": "params", "B": "params"}))
    plan = SessionPlan(run_id="run", label="task", env={"B": "plan"})
    async with environment.open(plan) as session:
        assert (await session.exec("echo $A $B")).stdout == "params plan\n"


async def test_session_directory_is_private(session: LocalSession) -> None:
    """No other user of the machine can look into it."""
    for path in (session.root, session.root.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert (await session.exec("ls -d ~ $TMPDIR")).exit_code == 0


async def test_command_starts_with_default_signals_and_descriptors(session: LocalSession) -> None:
    """Nothing of the engine's or the supervisor's leaks into a command."""
    result = await session.exec("ls /proc/self/fd | wc -l; grep -E 'Sig(Ign|Blk)' /proc/self/status; umask")
    descriptors, _, blocked, _, ignored, mask = result.stdout.split()
    own = ~(0b11 << 31)  # 32 and 33 belong to the C library, which lets nobody reset them
    assert (descriptors, int(blocked, 16) & own, int(ignored, 16) & own, mask) == ("4", 0, 0, "0022")


async def test_secrets_are_on_no_command_line(session: LocalSession) -> None:
    """Neither a variable nor the input of a command shows in the process list while it runs."""
    marker, secret = secrets.token_hex(), secrets.token_hex()
    script = f"sleep 1000; : {marker}"
    async with create_task_group() as tasks:
        tasks.start_soon(lambda: session.exec(script, env={"KEY": secret}, stdin=secret.encode()))
        with fail_after(5):
            while marker not in str(await to_thread.run_sync(command_lines)):  # noqa: ASYNC110
                await sleep(0.002)
        lines = await to_thread.run_sync(command_lines)
        tasks.cancel_scope.cancel()
    assert {line for line in lines if marker in line} == {f"/bin/sh -c {script}"}
    assert secret not in str(lines)


async def test_limits_hold_for_commands(root_dir: Path) -> None:
    """Each parameter reaches the command; core dumps are always off."""
    params = LocalParams(root_dir=root_dir, memory_mb=500, file_mb=1, cpu_seconds=50, open_files=40)
    async with LocalEnvironment(params).open(PLAN) as session:
        result = await session.exec("ulimit -v; ulimit -t; ulimit -n; ulimit -c")
        assert result.stdout.split() == [str(500 * 1024), "50", "40", "0"]
        too_much = await session.exec(["head", "-c", "2000000", "/dev/zero"], cwd="/")
        assert too_much.exit_code == 0
        too_large = await session.exec("exec head -c 2000000 /dev/zero > file")
        assert too_large.exit_code == 128 + signal.SIGXFSZ


async def test_working_directory_of_the_plan_lies_in_the_session(environment: LocalEnvironment) -> None:
    """A relative one is created; one elsewhere on the machine is refused, and nothing is created."""
    async with environment.open(SessionPlan(run_id="r", label="l", workdir="repo/src")) as session:
        assert (await session.exec("pwd")).stdout == f"{session.root / 'work'}/repo/src\n"
    for workdir in ("/testbed", "a/../../.."):
        with pytest.raises(SessionOpenError, match="working directory"):
            async with environment.open(SessionPlan(run_id="r", label="l", workdir=workdir)):
                pass


@pytest.mark.slow
async def test_background_child_may_go_on_writing(session: LocalSession) -> None:
    """A server that logs to the command's standard output does not die when the command is over."""
    result = await session.exec("yes & echo $! >&2", max_output_bytes=100)
    pid = int(result.stderr)
    before = psutil.Process(pid).cpu_times().user
    with fail_after(5):
        while psutil.Process(pid).cpu_times().user <= before:  # noqa: ASYNC110
            await sleep(0.01)


async def test_ends_of_background_children_disturb_no_other_command(session: LocalSession) -> None:
    """The pipes of an ended command may be closed late, while the next one uses the same descriptors."""
    for _ in range(10):
        assert (await session.exec("sleep 0.003 & (sleep 0.006 &) ; echo hi")).stdout == "hi\n"
        assert (await session.exec("sleep 0.005; echo next")).stdout == "next\n"


async def test_no_output_is_lost_to_background_children(session: LocalSession) -> None:
    """What a command wrote is complete, though its supervisor takes what its children write later."""
    expected = "".join(f"{number}\n" for number in range(1, 10_001))
    for _ in range(10):
        assert (await session.exec("sleep 1000 & seq 1 10000")).stdout == expected


# --- escapes ----------------------------------------------------------------------------------------

ESCAPES = ["../../x", "/etc/passwd", "link/passwd", "file-link", "../../../../etc/passwd"]


@pytest.mark.parametrize("path", ESCAPES)
async def test_path_outside_the_session_is_refused(session: LocalSession, tmp_path: Path, path: str) -> None:
    """Whether by dots, from the root, or through a link that a command has made."""
    await session.exec("ln -s /etc link; ln -s /etc/passwd file-link")
    with pytest.raises(TransferError, match="outside"):
        await session.read(path)
    with pytest.raises(TransferError, match="outside"):
        await session.write(path, b"")
    with pytest.raises(TransferError, match="outside"):
        await session.download(path, tmp_path / "copy")
    with pytest.raises(TransferError, match="outside"):
        await session.upload(REPOSITORY / "pyproject.toml", path)


async def test_upload_does_not_write_through_links_in_the_session(
    session: LocalSession, tmp_path: Path
) -> None:
    """A link that an agent planted inside the target of an upload leads nowhere."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "sub" / "f").write_bytes(b"x")
    await session.exec(f"mkdir d; ln -s {tmp_path}/outside d/sub")
    with pytest.raises(TransferError):
        await session.upload(tmp_path / "d", "d")
    assert list((tmp_path / "outside").iterdir()) == []


async def test_impossible_arguments_leave_the_session_alive(root_dir: Path) -> None:
    """An argument that is too long is the command's failure, a wrong variable name the caller's."""
    async with LocalEnvironment(LocalParams(root_dir=root_dir)).open(PLAN) as session:
        result = await session.exec(["true", "x" * 3_000_000])
        assert (result.exit_code, "too long" in result.stderr) == (126, True)
        with pytest.raises(ExecError):
            await session.exec(["true"], env={"a=b": ""})
