"""Archives that nobody vouches for: whatever is in one, nothing outside its target is touched."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from agentcompass.environments.unpacking import Unpacker
from agentcompass.errors import TransferError

Entry = tuple[str, bytes, str]
"""Name, type and content or link target of an archive's entry."""


def archive(*entries: Entry) -> io.BytesIO:
    """Build an archive of exactly these entries."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, kind, content in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o755 if kind == tarfile.DIRTYPE else 0o644
            if kind == tarfile.REGTYPE:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content.encode()))
            else:
                info.linkname = content
                tar.addfile(info)
    stream.seek(0)
    return stream


def unpacked(tmp_path: Path, *entries: Entry, max_bytes: int = 1000) -> list[str]:
    """Unpack below a directory of its own and list what is there."""
    target = tmp_path / "in" / "target"
    target.parent.mkdir()
    Unpacker(target=target, max_bytes=max_bytes).unpack(archive(*entries))
    return sorted(str(path.relative_to(target)) for path in target.rglob("*"))


ROOT = ("root", tarfile.DIRTYPE, "")


@pytest.mark.parametrize("name", ["/etc/passwd", "root/../../out", "../out", "root/.."])
def test_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    """No honest archive has such a name, so all of it is refused."""
    with pytest.raises(TransferError, match="leads out"):
        unpacked(tmp_path, ROOT, (name, tarfile.REGTYPE, "x"))
    assert list(tmp_path.iterdir()) == [tmp_path / "in"]


@pytest.mark.parametrize("target", ["/tmp", "..", "../..", "sub/../../x"])
def test_link_that_leads_out_is_left_out_with_all_below(tmp_path: Path, target: str) -> None:
    """Nothing is written through a link, whether it was made or not."""
    found = unpacked(
        tmp_path, ROOT, ("root/link", tarfile.SYMTYPE, target), ("root/link/f", tarfile.REGTYPE, "x")
    )
    assert found == []


def test_nothing_is_written_through_a_link_that_stays_inside(tmp_path: Path) -> None:
    """A file below a link is left out: a directory cannot be a link as well."""
    found = unpacked(
        tmp_path,
        ROOT,
        ("root/sub", tarfile.DIRTYPE, ""),
        ("root/link", tarfile.SYMTYPE, "sub"),
        ("root/link/f", tarfile.REGTYPE, "x"),
    )
    assert found == ["link", "sub"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "root/missing"])
def test_hard_link_only_to_what_was_unpacked(tmp_path: Path, target: str) -> None:
    """Nothing of this machine gets a second name."""
    (tmp_path / "outside").write_text("secret")
    found = unpacked(
        tmp_path,
        ROOT,
        ("root/a", tarfile.REGTYPE, "x"),
        ("root/b", tarfile.LNKTYPE, "root/a"),
        ("root/c", tarfile.LNKTYPE, target),
    )
    assert found == ["a", "b"]


@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_devices_and_pipes_are_left_out(tmp_path: Path, kind: bytes) -> None:
    """They are of no use outside their session."""
    assert unpacked(tmp_path, ROOT, ("root/odd", kind, "")) == []


def test_too_much_content_stops_before_the_disk_is_full(tmp_path: Path) -> None:
    """The sizes that the archive states are added up before anything is written."""
    with pytest.raises(TransferError, match="more than 10 bytes"):
        unpacked(
            tmp_path,
            ROOT,
            ("root/a", tarfile.REGTYPE, "12345678"),
            ("root/b", tarfile.REGTYPE, "123"),
            max_bytes=10,
        )
    assert sorted(path.name for path in (tmp_path / "in" / "target").iterdir()) == ["a"]


def test_same_name_twice_is_an_error(tmp_path: Path) -> None:
    """A second entry cannot replace a first one, e.g. by a link."""
    with pytest.raises(OSError, match="exists"):
        unpacked(tmp_path, ROOT, ("root/a", tarfile.REGTYPE, "1"), ("root/a", tarfile.SYMTYPE, "b"))


def test_garbage_is_an_error(tmp_path: Path) -> None:
    """What is no archive is said to be none."""
    with pytest.raises(TransferError, match="no valid archive"):
        Unpacker(target=tmp_path / "t", max_bytes=10).unpack(io.BytesIO(b"garbage" * 1000))


# --- root file systems ------------------------------------------------------------------------------


def unpacked_root(tmp_path: Path, *entries: Entry) -> Path:
    """Unpack a root file system."""
    unpacker = Unpacker(target=tmp_path / "root", max_bytes=1000, is_root=True)
    unpacker.unpack(archive(*entries))
    return tmp_path / "root"


def test_root_keeps_all_links_and_needs_no_entries_for_directories(tmp_path: Path) -> None:
    """They will be followed inside the root only."""
    root = unpacked_root(
        tmp_path,
        ("./usr/bin/sh", tarfile.REGTYPE, "x"),
        ("bin", tarfile.SYMTYPE, "usr/bin"),
        ("etc/alternatives/sh", tarfile.SYMTYPE, "/usr/bin/sh"),
        ("usr/bin/ash", tarfile.LNKTYPE, "./usr/bin/sh"),
    )
    assert (root / "bin" / "ash").read_text() == "x"
    assert str((root / "etc" / "alternatives" / "sh").readlink()) == "/usr/bin/sh"


def test_root_writes_through_no_link(tmp_path: Path) -> None:
    """A link to the outside that a later entry goes through."""
    (tmp_path / "outside").mkdir()
    root = unpacked_root(
        tmp_path,
        ("link", tarfile.SYMTYPE, str(tmp_path / "outside")),
        ("link/planted", tarfile.REGTYPE, "x"),
        ("link/deep/er/planted", tarfile.REGTYPE, "x"),
    )
    assert [path.name for path in root.iterdir()] == ["link"]
    assert list((tmp_path / "outside").iterdir()) == []
