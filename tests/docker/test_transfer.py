"""Large transfers take bounded memory, and odd sources and targets do what one expects."""

from __future__ import annotations

import os
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from anyio import to_thread

from agentcompass.environments.docker import DockerEnvironment
from agentcompass.errors import TransferError
from agentcompass.protocols import Session

from .environments import docker_environment, plan

pytestmark = [pytest.mark.anyio, pytest.mark.once]

_GIGABYTE = 1024**3


@pytest.fixture
async def environment(busybox_image: str) -> AsyncIterator[DockerEnvironment]:
    async with docker_environment(image=busybox_image) as opened:
        yield opened


@pytest.fixture
async def session(environment: DockerEnvironment) -> AsyncIterator[Session]:
    async with environment.open(plan()) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_gigabyte_up_and_down_in_little_memory(session: Session, tmp_path: Path) -> None:
    """Streamed both ways."""
    source = tmp_path / "large"
    with source.open("wb") as file:
        file.truncate(_GIGABYTE - 1)
        file.seek(_GIGABYTE - 1)
        file.write(b"x")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await session.upload(source, "large")
    assert (await session.exec("stat -c %s large; tail -c 1 large")).stdout == f"{_GIGABYTE}\nx"
    source.unlink()
    await session.download("large", tmp_path / "back")
    grown_kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (tmp_path / "back").stat().st_size == _GIGABYTE
    assert grown_kilobytes < 50_000


@pytest.mark.slow
async def test_tree_of_many_files_round_trips(session: Session, tmp_path: Path) -> None:
    """5,000 files in 50 directories."""
    for directory in range(50):
        (tmp_path / "tree" / str(directory)).mkdir(parents=True)
        for number in range(100):
            (tmp_path / "tree" / str(directory) / str(number)).write_text(f"{directory}/{number}")
    await session.upload(tmp_path / "tree", "tree")
    await session.download("tree", tmp_path / "back")
    found = {str(path.relative_to(tmp_path / "back")): path for path in (tmp_path / "back").rglob("*/*")}
    assert len(found) == 5000
    assert all(path.read_text() == name for name, path in found.items())


async def test_read_only_targets(session: Session, tmp_path: Path) -> None:
    """Files and directories that forbid writing are replaced and written to all the same, by root."""
    await session.exec("mkdir -p d; echo old >d/file; chmod 400 d/file; chmod 500 d")
    await session.write("d/file", b"new")
    (tmp_path / "file").write_bytes(b"newer")
    await session.upload(tmp_path / "file", "d/file")
    assert await session.read("d/file") == b"newer"
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / "file").write_bytes(b"old")
    (tmp_path / "back" / "file").chmod(0o400)
    await session.download("d", tmp_path / "back")
    assert (tmp_path / "back" / "file").read_bytes() == b"newer"


async def test_links_lead_to_files_of_the_container_only(session: Session, tmp_path: Path) -> None:
    """Reading follows them inside; the host's files of the same name stay unread."""
    (tmp_path / "canary").write_text("host")
    await session.exec(["ln", "-s", str(tmp_path / "canary"), "link"])
    with pytest.raises(TransferError):
        await session.read("link")
    await session.exec(f"mkdir -p {tmp_path}; echo container >{tmp_path}/canary")
    assert await session.read("link") == b"container\n"


async def test_download_larger_than_allowed_leaves_nothing(busybox_image: str, tmp_path: Path) -> None:
    """The limit is the parameter's; neither half a file nor a temporary one stays."""
    async with (
        docker_environment(image=busybox_image, max_download_mb=1) as environment,
        environment.open(plan()) as session,
    ):
        await session.exec("mkdir d; dd if=/dev/zero of=d/big bs=1M count=2")
        with pytest.raises(TransferError, match="more than 1048576 bytes"):
            await session.download("d", tmp_path / "d")
    assert await to_thread.run_sync(os.listdir, tmp_path) == []


async def test_upload_of_what_cannot_be_read_names_it(session: Session, tmp_path: Path) -> None:
    """A file that vanishes or is closed to us is this machine's problem, said by name."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").symlink_to("f")
    with pytest.raises(TransferError, match="missing"):
        await session.upload(tmp_path / "missing", "x")
    await session.upload(tmp_path / "d", "d")
    assert (await session.exec("readlink d/f")).stdout == "f\n"
