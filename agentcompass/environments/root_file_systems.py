"""
Root file systems for local sessions: a directory as it is, or an archive that is unpacked once.

Each session has a copy-on-write view of one, in which it finds what name resolution needs.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path

from ..errors import ConfigError, SessionFileNotFoundError, TransferError
from .directories import remove_tree
from .places import Places
from .tree import read_file, write_file
from .unpacking import Unpacker

_MAX_BYTES = 100 * 1024**3
_RESOLVER = "/etc/resolv.conf"
_HOSTS = "/etc/hosts"
_LOCALHOST = b"127.0.0.1 localhost\n::1 localhost\n"
_MAX_HOSTS_BYTES = 10 * 1024 * 1024


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
    except (OSError, TransferError) as error:
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
        unpacker = Unpacker(target=partial, max_bytes=_MAX_BYTES, is_root=True)
        with source.open("rb") as file:
            unpacker.unpack(file)
        unpacker.finish_root(partial)
        partial.rename(place)
    except OSError:
        if not place.is_dir():  # else another process was faster
            raise
    finally:
        remove_tree(partial)


def add_network_files(places: Places, *, public: bool) -> None:
    """
    Put what name resolution needs into a session's root; blocks.

    A root that belongs to another user stays as it is: nothing in its /etc can be changed.

    Args:
        public: The session has this machine's network, so it resolves names as this machine does.
    """
    resolver = Path(_RESOLVER)
    with suppress(PermissionError):
        if public and resolver.is_file():  # in many images it is a link to what only a running system has
            with places.new(_RESOLVER) as place:
                write_file(place, resolver.read_bytes(), mode=0o644)
        if not _knows_hosts(places):
            with places.new(_HOSTS) as place:
                write_file(place, _LOCALHOST, mode=0o644)


def _knows_hosts(places: Places) -> bool:
    try:
        with places.existing(_HOSTS) as place:
            return bool(read_file(place, max_bytes=_MAX_HOSTS_BYTES).strip())
    except SessionFileNotFoundError:
        return False
