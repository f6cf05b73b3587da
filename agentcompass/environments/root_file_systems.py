"""Root file systems for local sessions: a directory as it is, or an archive that is unpacked once."""

from __future__ import annotations

import os
import secrets
import tarfile
from hashlib import file_digest
from pathlib import Path

from ..errors import ConfigError
from .directories import remove_tree


def root_directory(source: Path) -> Path:
    """
    Return the directory of a root file system; blocks.

    An archive is unpacked into the user's cache, under a hash of its content, unless it is there already.

    Raises:
        ConfigError: It is neither a directory nor an archive.
    """
    if source.is_dir():
        return source.resolve()
    try:
        with source.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
        place = _cache() / digest[:32]
        if not place.is_dir():
            _unpack(source, place)
    except (OSError, tarfile.TarError) as error:
        raise ConfigError(
            f"environment_params.root: {str(source)!r} is neither a directory nor a tar archive that can be "
            f"unpacked: {error}"
        ) from error
    return place


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "agentcompass" / "roots"


def _unpack(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_name(f"{place.name}.{secrets.token_hex(4)}")
    try:
        with tarfile.open(source) as archive:
            archive.extractall(partial, filter=_without_devices)  # noqa: S202  # the filter keeps it inside
        partial.rename(place)
    except OSError:
        if not place.is_dir():  # else another process was faster
            raise
    finally:
        remove_tree(partial)


def _without_devices(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
    """Leave devices out: only root could make them, and sessions have their own."""
    return None if member.isdev() else tarfile.tar_filter(member, path)
