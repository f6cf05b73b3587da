"""How the engine finds files that commands may be changing at the same time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcompass.environments.places import DirectoryPlaces, open_below
from agentcompass.environments.tree import read_file, write_file


@pytest.mark.parametrize("make_parents", [False, True])
@pytest.mark.parametrize("path", ["link", "link/sub", "a/link", "a/link/sub"])
def test_no_link_is_followed(tmp_path: Path, path: str, make_parents: bool) -> None:
    """A path was resolved before, so a link in it has been put there since."""
    (tmp_path / "outside" / "sub").mkdir(parents=True)
    (tmp_path / "session" / "a").mkdir(parents=True)
    for link in ("link", "a/link"):
        (tmp_path / "session" / link).symlink_to(tmp_path / "outside")
    top = os.open(tmp_path / "session", os.O_RDONLY)
    try:
        with pytest.raises(OSError, match=r"directory|links"):
            os.close(open_below(top, path.split("/"), make_parents=make_parents))
    finally:
        os.close(top)
    assert os.listdir(tmp_path / "outside") == ["sub"]  # noqa: PTH208
    assert os.listdir(tmp_path / "outside" / "sub") == []  # noqa: PTH208


def test_links_inside_lead_to_their_targets(tmp_path: Path) -> None:
    """Absolute ones too: a session sees its directory at the same path."""
    (tmp_path / "work" / "real").mkdir(parents=True)
    (tmp_path / "work" / "link").symlink_to(tmp_path / "work" / "real")
    places = DirectoryPlaces(tmp_path, str(tmp_path / "work"))
    with places.new("link/new/file") as place:
        write_file(place, b"x", mode=0o644)
    assert (tmp_path / "work" / "real" / "new" / "file").read_bytes() == b"x"
    with places.existing("link/new/file") as place:
        assert read_file(place, max_bytes=10) == b"x"
