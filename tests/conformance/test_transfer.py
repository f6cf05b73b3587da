"""How every session reads, writes and copies files, whatever provides it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from anyio import create_task_group, fail_after, lowlevel

from agentcompass.errors import SessionFileNotFoundError, TransferError
from agentcompass.protocols import Session

pytestmark = pytest.mark.anyio

AWKWARD_NAMES = ["plain", "with space", "日本語", "new\nline", "-rf", "a%2Fb", "bytes\udcff\udcfe", "x" * 255]


@pytest.mark.parametrize("name", AWKWARD_NAMES)
async def test_file_round_trips(session: Session, name: str) -> None:
    """Any bytes under any name that a file can have."""
    data = bytes(range(256))
    await session.write(f"deep/er/{name}", data)
    assert await session.read(f"{session.workdir}/deep/er/{name}") == data


async def test_written_file_replaces_the_old_one(session: Session) -> None:
    """Content and mode are those of the last call; an empty file is a file."""
    await session.write("f", b"long content", executable=True)
    await session.write("f", b"")
    assert await session.read("f") == b""
    assert (await session.exec(["./f"])).exit_code == 126


async def test_executable_file_can_be_run(session: Session) -> None:
    """``executable`` sets the bits."""
    await session.write("bin/tool", b"#!/bin/sh\necho ran\n", executable=True)
    assert (await session.exec(["./bin/tool"])).stdout == "ran\n"


@pytest.mark.parametrize("path", ["missing", "missing/deeper", "file/deeper"])
async def test_missing_file_is_its_own_error(session: Session, tmp_path: Path, path: str) -> None:
    """For reading and for downloading."""
    await session.write("file", b"")
    with pytest.raises(SessionFileNotFoundError):
        await session.read(path)
    with pytest.raises(SessionFileNotFoundError):
        await session.download(path, tmp_path / "copy")


async def test_file_larger_than_asked_for_is_refused(session: Session) -> None:
    """A file is read whole or not at all."""
    await session.write("f", b"12345")
    assert await session.read("f", max_bytes=5) == b"12345"
    with pytest.raises(TransferError, match="larger"):
        await session.read("f", max_bytes=4)


@pytest.mark.parametrize("make", ["mkdir odd", "mkfifo odd", "ln -s odd odd"])
async def test_what_is_no_file_cannot_be_read(session: Session, make: str) -> None:
    """Neither a directory, nor a pipe (which would block), nor a loop of links."""
    await session.exec(make)
    with fail_after(5), pytest.raises(TransferError):
        await session.read("odd")


@pytest.mark.parametrize("path", ["nul\0", "half\ud800"])
async def test_impossible_name_is_refused(session: Session, path: str) -> None:
    """A typed error, not a ``ValueError`` from below."""
    with pytest.raises(TransferError):
        await session.write(path, b"")
    with pytest.raises(TransferError):
        await session.read(path)


async def test_concurrent_writers_leave_one_whole_file(session: Session) -> None:
    """A reader never sees half of a file or a mixture of two."""
    async with create_task_group() as tasks:
        for letter in b"abcdefgh":
            tasks.start_soon(session.write, "f", bytes([letter]) * 500_000)
    content = await session.read("f")
    assert len(content) == 500_000
    assert len(set(content)) == 1
    assert (await session.exec("ls -A")).stdout == "f\n"


# --- trees ------------------------------------------------------------------------------------------


def build_tree(root: Path) -> None:
    """Build a tree with everything that a transfer can get wrong."""
    (root / "empty").mkdir(parents=True)
    (root / "deep" / "er").mkdir(parents=True, mode=0o750)
    (root / "zero").touch()
    for name in AWKWARD_NAMES:
        (root / "deep" / name).write_bytes(name.encode("utf-8", "surrogateescape") + b"\r\n\xff\x00")
    (root / "tool").write_bytes(b"#!/bin/sh\necho ran\n")
    (root / "tool").chmod(0o755)
    (root / "secret").write_bytes(b"s")
    (root / "secret").chmod(0o400)
    (root / "link").symlink_to("deep/plain")
    (root / "deep" / "up").symlink_to("../tool")
    (root / "dangling").symlink_to("nowhere")
    (root / "loop").symlink_to("loop")
    os.utime(root / "zero", (0, 0))


def describe_tree(root: Path) -> dict[str, tuple[str, object]]:
    """Map each path below ``root`` to its kind with mode, and its content."""
    found: dict[str, tuple[str, object]] = {}
    for path in root.rglob("*"):
        name, mode = str(path.relative_to(root)), path.lstat().st_mode
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = (f"directory {stat.S_IMODE(mode):o}", None)
        else:
            found[name] = (f"file {stat.S_IMODE(mode):o}", path.read_bytes())
    return found


async def test_tree_round_trips(session: Session, tmp_path: Path) -> None:
    """Up and down again: contents, names, modes, links, empty directories and files stay the same."""
    build_tree(tmp_path / "source")
    await session.upload(tmp_path / "source", "copy")
    assert (await session.exec(["copy/tool"])).stdout == "ran\n"
    assert (await session.exec("cat copy/link | head -n 1")).stdout == "plain\r\n"
    await session.download("copy", tmp_path / "back")
    assert describe_tree(tmp_path / "back") == describe_tree(tmp_path / "source")
    assert (tmp_path / "back" / "zero").stat().st_mtime == 0


async def test_single_file_keeps_its_mode_and_gets_its_new_name(session: Session, tmp_path: Path) -> None:
    """The target names the copy, not the directory that it goes into."""
    (tmp_path / "tool").write_bytes(b"#!/bin/sh\necho ran\n")
    (tmp_path / "tool").chmod(0o755)
    await session.upload(tmp_path / "tool", "bin/renamed")
    assert (await session.exec(["bin/renamed"])).stdout == "ran\n"
    await session.download("bin/renamed", tmp_path / "new" / "dir" / "again")
    assert os.access(tmp_path / "new" / "dir" / "again", os.X_OK)


async def test_upload_merges_into_what_is_there(session: Session, tmp_path: Path) -> None:
    """Other files stay, files of the same name are replaced."""
    await session.write("d/old", b"old")
    await session.write("d/both", b"old")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "both").write_bytes(b"new")
    await session.upload(tmp_path / "d", "d")
    assert (await session.read("d/old"), await session.read("d/both")) == (b"old", b"new")


async def test_special_files_are_left_out(session: Session, tmp_path: Path) -> None:
    """A pipe in a tree neither blocks a transfer nor fails it; set-user-id bits are dropped."""
    await session.exec("mkdir d; mkfifo d/pipe; echo x > d/file; chmod 4755 d/file")
    with fail_after(5):
        await session.download("d", tmp_path / "d")
    assert describe_tree(tmp_path / "d") == {"file": ("file 755", b"x\n")}


async def test_missing_source_of_an_upload_is_named(session: Session, tmp_path: Path) -> None:
    """It is this machine's file that is missing, not the session's."""
    with pytest.raises(TransferError, match="on this machine") as caught:
        await session.upload(tmp_path / "missing", "x")
    assert not isinstance(caught.value, SessionFileNotFoundError)


@pytest.mark.parametrize("link", ["/etc", "..", "../..", "sub/../../x", "up/../../x"])
async def test_link_out_of_a_download_is_left_out(session: Session, tmp_path: Path, link: str) -> None:
    """No link in a downloaded tree leads to files of this machine."""
    await session.exec(["ln", "-s", link, "bad"])
    await session.exec(
        "mkdir d; mv bad d/; ln -s sub/.. d/also; mkdir d/sub; ln -s .. d/sub/up; echo x > d/f"
    )
    await session.download("d", tmp_path / "d")
    assert set(describe_tree(tmp_path / "d")) == {"f", "sub", "sub/up"}


async def test_download_does_not_write_through_links_of_its_target(session: Session, tmp_path: Path) -> None:
    """What an earlier download left cannot redirect a later one."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "sub").symlink_to("../outside")
    (tmp_path / "d" / "file").symlink_to("../outside/file")
    await session.write("d/file", b"x")
    await session.download("d", tmp_path / "d")
    await session.write("d/sub/f", b"x")
    with pytest.raises(TransferError):
        await session.download("d", tmp_path / "d")
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize("steps", [5, 10, 20, 40])
async def test_cancelled_upload_leaves_no_half_file(session: Session, tmp_path: Path, steps: int) -> None:
    """A transfer does not outlive its cancellation; each file is there whole or not at all."""
    (tmp_path / "d").mkdir()
    for number in range(300):
        (tmp_path / "d" / str(number)).write_bytes(b"whole")
    async with create_task_group() as tasks:
        tasks.start_soon(session.upload, tmp_path / "d", "d")
        for _ in range(steps):
            await lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    listed = await session.exec("mkdir -p d; ls -A d; cat d/* | sed s/whole//g")
    assert all(name.isdigit() for name in listed.stdout.split())
