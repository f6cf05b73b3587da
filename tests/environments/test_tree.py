"""Copying trees: what is easier to show without a session around it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcompass.environments.tree import TreeCopy, place_of, read_file, stays_inside
from agentcompass.errors import TransferError

DOWN = TreeCopy(from_session=True, checkpoint=lambda: None)
UP = TreeCopy(from_session=False, checkpoint=lambda: None)


def copy(tree: TreeCopy, source: Path, target: Path) -> None:
    with place_of(source) as origin, place_of(target, make_parents=True) as goal:
        tree.copy(origin, goal)


def read(path: Path) -> bytes:
    with place_of(path) as place:
        return read_file(place, max_bytes=100)


@pytest.mark.parametrize(
    ("link", "depth", "inside"),
    [
        ("a", 0, True),
        ("a/b", 0, True),
        ("./a", 0, True),
        ("../a", 1, True),
        ("..", 1, True),
        ("../../a", 2, True),
        ("..", 0, False),
        ("../a", 0, False),
        ("./../a", 0, False),
        ("../../a", 1, False),
        ("a/../b", 5, False),
        ("../a/../b", 5, False),
        ("/a", 5, False),
        ("", 0, True),
    ],
)
def test_link_stays_inside_if_only_its_beginning_goes_up(link: str, depth: int, inside: bool) -> None:
    """Behind a name, which may be a link itself, going up could lead anywhere."""
    assert stays_inside(link, depth) is inside


def test_holes_stay_holes(tmp_path: Path) -> None:
    """A sparse file of 3 GB takes neither time nor room, and has the same content."""
    with (tmp_path / "sparse").open("wb") as file:
        file.seek(1_000_000_000)
        file.write(b"middle")
        file.truncate(3_000_000_000)
    copy(UP, tmp_path / "sparse", tmp_path / "copy")
    status = (tmp_path / "copy").stat()
    assert status.st_size == 3_000_000_000
    assert status.st_blocks * 512 < 1_000_000
    with (tmp_path / "copy").open("rb") as file:
        file.seek(999_999_999)
        assert file.read(8) == b"\0middle\0"


def test_large_file_is_copied_in_pieces(tmp_path: Path) -> None:
    """Every byte, and with a chance to stop in between."""
    data = os.urandom(1_000_003) * 5
    (tmp_path / "large").write_bytes(data)
    checks: list[None] = []
    tree = TreeCopy(from_session=True, checkpoint=lambda: checks.append(None))
    copy(tree, tmp_path / "large", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data
    assert len(checks) >= 5


def test_stopped_copy_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    """Stopping in the middle of a file leaves the one that was there."""
    (tmp_path / "large").write_bytes(os.urandom(3_000_000))
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "copy").write_bytes(b"old")
    calls = iter(range(3))

    def stop_at_the_fourth() -> None:
        next(calls)

    tree = TreeCopy(from_session=True, checkpoint=stop_at_the_fourth)
    with pytest.raises(StopIteration):
        copy(tree, tmp_path / "large", tmp_path / "target" / "copy")
    assert [path.read_bytes() for path in (tmp_path / "target").iterdir()] == [b"old"]


def test_files_that_a_session_closed_are_still_collected(unprivileged_dir: Path) -> None:
    """A mode of 000 does not hide evidence from its owner; the mode is copied, and left as it was."""
    source = unprivileged_dir / "source"
    (source / "closed").mkdir(parents=True)
    (source / "closed" / "file").write_bytes(b"evidence")
    (source / "closed" / "file").chmod(0)
    (source / "closed").chmod(0)
    copy(DOWN, source, unprivileged_dir / "copy")
    for root in (source, unprivileged_dir / "copy"):
        assert (root / "closed").stat().st_mode & 0o777 == 0
        (root / "closed").chmod(0o700)
        assert (root / "closed" / "file").stat().st_mode & 0o777 == 0
        assert read(root / "closed" / "file") == b"evidence"


def test_files_of_this_machine_are_not_opened_against_their_mode(unprivileged_dir: Path) -> None:
    """An upload changes nothing at its source."""
    (unprivileged_dir / "source").mkdir()
    (unprivileged_dir / "source" / "closed").touch(0)
    with pytest.raises(PermissionError):
        copy(UP, unprivileged_dir / "source", unprivileged_dir / "copy")


def test_too_deep_tree_is_an_error(tmp_path: Path) -> None:
    """Refused before descriptors or the stack run out."""
    (tmp_path / "source" / "/".join("d" * 150)).mkdir(parents=True)
    with pytest.raises(TransferError, match="deeper"):
        copy(DOWN, tmp_path / "source", tmp_path / "copy")


def test_links_of_an_upload_are_copied_as_they_are(tmp_path: Path) -> None:
    """It is the user's own tree; absolute links mean something in the session."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "absolute").symlink_to("/usr/bin/env")
    (tmp_path / "source" / "up").symlink_to("../../elsewhere")
    copy(UP, tmp_path / "source", tmp_path / "copy")
    links = {path.name: str(path.readlink()) for path in (tmp_path / "copy").iterdir()}
    assert links == {"absolute": "/usr/bin/env", "up": "../../elsewhere"}
