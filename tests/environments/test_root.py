"""Local sessions in a root file system of their own: like a container, without a daemon."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from anyio import to_thread

from agentcompass.environments.bubblewrap import Bubblewrap
from agentcompass.environments.local import LocalEnvironment, LocalParams
from agentcompass.environments.local_session import LocalSession
from agentcompass.environments.root_file_systems import root_directory
from agentcompass.errors import ConfigError, SessionFileNotFoundError, SessionOpenError, TransferError
from agentcompass.protocols import SessionPlan
from agentcompass.spec.network import PUBLIC, NetworkPolicy

from ..docker.images import busybox_root
from ..sandbox import need_bubblewrap
from .conftest import PLAN

pytestmark = pytest.mark.anyio


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with busybox and little else."""
    need_bubblewrap(overlays=True)
    return root_directory(busybox_root(tmp_path))


@pytest.fixture
def rooted(root_dir: Path, root: Path) -> LocalEnvironment:
    return LocalEnvironment(LocalParams(root_dir=root_dir, root=root))


@pytest.fixture
async def session(rooted: LocalEnvironment) -> AsyncIterator[LocalSession]:
    async with rooted.open(PLAN) as opened:
        yield opened


async def test_commands_see_that_root_and_nothing_else(session: LocalSession) -> None:
    """Its programs, its users, its variables; root inside."""
    result = await session.exec("ls /; id -u; pwd; env")
    names, _, rest = result.stdout.partition("0\n/workspace\n")
    assert set(names.split()) == {"bin", "dev", "etc", "home", "proc", "root", "tmp", "workspace"}
    assert "HOME=/root" in rest
    assert "PATH=/usr/local/sbin:" in rest
    assert (await session.exec(["python3"])).exit_code == 127


async def test_changes_are_the_sessions_own(rooted: LocalEnvironment, root: Path) -> None:
    """Anywhere, system directories included; neither another session nor the source sees them."""
    before = await to_thread.run_sync(os.listdir, root / "bin")
    async with rooted.open(PLAN) as first, rooted.open(PLAN) as second:
        assert (await first.exec("rm /bin/ls; echo x >/bin/new; echo changed >/etc/passwd")).exit_code == 0
        assert (await second.exec("ls /bin/new")).exit_code == 1
        assert "agent" in (await second.exec("cat /etc/passwd")).stdout
    assert await to_thread.run_sync(os.listdir, root / "bin") == before


async def test_files_are_where_commands_see_them(session: LocalSession, tmp_path: Path) -> None:
    """Absolute paths are the root's, in both directions."""
    await session.write("/opt/deep/file", b"in")
    assert (await session.exec("cat /opt/deep/file")).stdout == "in"
    await session.exec("mkdir -p /srv/out && echo out >/srv/out/file")
    assert await session.read("/srv/out/file") == b"out\n"
    await session.download("/srv/out", tmp_path / "out")
    await session.upload(tmp_path / "out", "/data/in")
    assert (await session.exec("cat /data/in/file")).stdout == "out\n"
    with pytest.raises(SessionFileNotFoundError):
        await session.read("/srv/missing")
    with pytest.raises(TransferError):
        await session.write("/", b"")


async def test_links_lead_to_files_of_the_root_only(session: LocalSession, tmp_path: Path) -> None:
    """Absolute ones and those that go up too far; the same names on this machine stay unread."""
    (tmp_path / "canary").write_text("host")
    await session.exec(
        f"ln -s / all; ln -s {tmp_path} host; ln -s ../../../../../.. up; ln -s /etc/passwd users"
    )
    for path in ("users", "all/etc/passwd", "up/etc/passwd"):
        assert b"agent" in await session.read(path)
    for path in (f"all{tmp_path}/canary", "host/canary", f"up{tmp_path}/canary"):
        with pytest.raises(SessionFileNotFoundError):
            await session.read(path)
    with pytest.raises(TransferError):
        await session.write("host/planted", b"x")
    assert not (tmp_path / "planted").exists()


@pytest.mark.parametrize("target", ["..", "../..", "../../../usr", "/", "/etc/..", "/workspace/../.."])
async def test_download_by_a_link_does_not_leave_the_root(
    session: LocalSession, tmp_path: Path, target: str
) -> None:
    """Also where the last step is one upwards: above the root lies what the supervisor sees."""
    await session.exec(f"ln -s {target} /workspace/link; ln -s {target} /link")
    for link in ("link", "/link"):
        with pytest.raises(TransferError):
            await session.download(link, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


async def test_link_may_end_with_a_step_upwards(session: LocalSession, tmp_path: Path) -> None:
    """Inside the root it leads where it says."""
    await session.exec("mkdir -p /srv/a/b && echo x >/srv/a/file && ln -s /srv/a/b/.. link")
    await session.download("link", tmp_path / "copy")
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["b", "file"]


@pytest.mark.parametrize("path", ["/proc/version", "/proc/1/environ", "link/version", "/dev/shm/file"])
async def test_devices_and_processes_are_no_files(session: LocalSession, tmp_path: Path, path: str) -> None:
    """The engine may do more there than the commands, which could send it by a link."""
    await session.exec("ln -s /proc link; echo x >/dev/shm/file")
    with pytest.raises(TransferError):
        await session.read(path)
    with pytest.raises(TransferError):
        await session.download("/proc", tmp_path / "copy")


async def test_kernel_cannot_be_set(session: LocalSession) -> None:
    """Root inside is root outside for it, if the engine is; the value is written back."""
    path = "/proc/sys/kernel/core_pattern"
    result = await session.exec(f"value=$(cat {path}) && echo $value && echo $value >{path}")
    assert result.stdout.strip()
    assert "Read-only" in result.stderr


async def test_commands_cannot_leave_their_root(session: LocalSession) -> None:
    """They hold no capability, so neither chroot nor the supervisor's view of the system is open to them."""
    status = (await session.exec("grep -E '^Cap(Eff|Prm|Amb)' /proc/self/status")).stdout
    assert [line.split()[1] for line in status.splitlines()] == ["0" * 16] * 3
    assert (await session.exec("ls /proc/1/root/usr /proc/1/cwd/usr")).stdout == ""
    assert (await session.exec(["busybox", "chroot", "/tmp", "/bin/true"])).exit_code != 0
    assert (await session.exec("ls -d /usr /.root 2>/dev/null")).stdout == ""


async def test_workdir_of_the_plan_may_be_anywhere(rooted: LocalEnvironment) -> None:
    """It is created unless the root has it."""
    for workdir, expected in [
        ("/testbed/repo", "/testbed/repo"),
        ("sub", "/workspace/sub"),
        ("/etc", "/etc"),
    ]:
        plan = SessionPlan(run_id="run", label="task", workdir=workdir)
        async with rooted.open(plan) as session:
            assert (await session.exec("pwd")).stdout == f"{expected}\n"


async def test_impossible_workdir(rooted: LocalEnvironment) -> None:
    """The error names it, and another try would not help."""
    plan = SessionPlan(run_id="run", label="task", workdir="/etc/passwd/sub")
    with pytest.raises(SessionOpenError, match="/etc/passwd") as caught:
        async with rooted.open(plan):
            pass
    assert not caught.value.retryable


async def test_root_that_cannot_be_set_up(root_dir: Path, root: Path, tmp_path: Path) -> None:
    """What bubblewrap says about it is passed on."""
    await to_thread.run_sync(lambda: shutil.copytree(root, tmp_path / "bad", symlinks=True))
    (tmp_path / "bad" / "proc").write_bytes(b"no directory")
    environment = LocalEnvironment(LocalParams(root_dir=root_dir, root=tmp_path / "bad"))
    with pytest.raises(ConfigError, match=r"cannot run commands: .*bwrap: .*proc"):
        await environment.check([])


@pytest.mark.parametrize("resolver", ["../run/systemd/resolve/stub-resolv.conf", "/run/resolv.conf", None])
async def test_names_are_resolved_as_on_this_machine(
    root_dir: Path, root: Path, tmp_path: Path, resolver: str | None
) -> None:
    """Whatever the image has for it, often a link to nothing; the image itself stays as it is."""
    own = tmp_path / "own"
    await to_thread.run_sync(lambda: shutil.copytree(root, own, symlinks=True))
    if resolver:
        (own / "etc" / "resolv.conf").symlink_to(resolver)
    plan = SessionPlan(run_id="run", label="task", network=PUBLIC)
    async with LocalEnvironment(LocalParams(root_dir=root_dir, root=own)).open(plan) as session:
        expected = await to_thread.run_sync(Path("/etc/resolv.conf").read_text)
        assert (await session.exec("cat /etc/resolv.conf")).stdout == expected
        assert "127.0.0.1 localhost" in (await session.exec("cat /etc/hosts")).stdout
    assert not (own / "etc" / "hosts").exists()


async def test_hosts_of_the_image_are_kept(root_dir: Path, root: Path, tmp_path: Path) -> None:
    """And without a network nothing is said about how to use it."""
    own = tmp_path / "own"
    await to_thread.run_sync(lambda: shutil.copytree(root, own, symlinks=True))
    (own / "etc" / "hosts").write_text("127.0.0.1 localhost mine\n")
    plan = SessionPlan(run_id="run", label="task", network=NetworkPolicy(mode="no-network"))
    async with LocalEnvironment(LocalParams(root_dir=root_dir, root=own)).open(plan) as session:
        result = await session.exec("cat /etc/hosts; ls /etc/resolv.conf 2>/dev/null")
    assert result.stdout == "127.0.0.1 localhost mine\n"


async def test_closed_session_leaves_no_file(rooted: LocalEnvironment, root_dir: Path) -> None:
    """Whatever modes it gave to its changes."""
    async with rooted.open(PLAN) as session:
        await session.exec("mkdir -p /closed/in; touch /closed/in/file; chmod 0 /closed/in /closed")
    left = await to_thread.run_sync(lambda: [path for path in root_dir.rglob("*") if path.is_dir()])
    assert [path.name for path in left] == [f"agentcompass-{os.getuid()}"]


# --- where the root comes from ----------------------------------------------------------------------


def test_archive_is_unpacked_once(tmp_path: Path) -> None:
    """By content, whatever it is called; devices are left out."""
    archive = busybox_root(tmp_path)
    with tarfile.open(archive, "a") as tar:
        device = tarfile.TarInfo("dev/null")
        device.type = tarfile.CHRTYPE
        tar.addfile(device)
    first = root_directory(archive)
    assert (first / "bin" / "sh").is_symlink()
    assert not (first / "dev" / "null").exists()
    assert root_directory(archive.rename(tmp_path / "other.tar")) == first
    assert [path.name for path in first.parent.iterdir() if "." in path.name] == []


def test_archive_is_unpacked_by_several_at_once(tmp_path: Path) -> None:
    """Whoever comes first; nobody sees half of it, and nothing stays behind."""
    archive = busybox_root(tmp_path)
    with tarfile.open(archive, "a") as tar:
        tar.addfile(tarfile.TarInfo("not-unpacked-before"))
    with ThreadPoolExecutor(4) as threads:
        places = list(threads.map(root_directory, [archive] * 4))
    assert set(places) == {places[0]}
    assert (places[0] / "not-unpacked-before").exists()
    assert [path.name for path in places[0].parent.iterdir() if "." in path.name] == []


def test_archive_that_leads_out_is_refused(tmp_path: Path) -> None:
    """Nothing is written outside the cache."""
    with tarfile.open(tmp_path / "bad.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("../../../../escaped"))
    with pytest.raises(ConfigError, match=r"can be unpacked"):
        root_directory(tmp_path / "bad.tar")


@pytest.mark.parametrize("name", ["missing", "garbage"])
async def test_root_that_is_none(tmp_path: Path, root_dir: Path, name: str) -> None:
    """The error names the parameter and the file."""
    need_bubblewrap(overlays=True)
    (tmp_path / "garbage").write_bytes(b"no archive")
    environment = LocalEnvironment(LocalParams(root_dir=root_dir, root=tmp_path / name))
    with pytest.raises(ConfigError, match=f"environment_params.root: .*{name}.*neither a directory nor"):
        await environment.check([])


async def test_root_needs_bubblewrap(root_dir: Path, tmp_path: Path) -> None:
    """It is never ignored."""
    environment = LocalEnvironment(LocalParams(root_dir=root_dir, root=tmp_path, isolation="none"))
    with pytest.raises(ConfigError, match=r"environment_params\.root: it needs bubblewrap"):
        await environment.check([])


def test_old_bubblewrap_has_no_overlays() -> None:
    """The versions of most systems are too old for a root."""
    assert not Bubblewrap("bwrap", "0.8.0").has_overlays
    assert Bubblewrap("bwrap", "0.11.0").has_overlays
