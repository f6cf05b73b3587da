"""Keep the daemon's disk from filling up with images: evict what we brought ourselves, or wait."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from aiodocker.exceptions import DockerError
from anyio import to_thread

from ...errors import SessionOpenError
from ...logs import current_log
from .daemon import Daemon

_MEGABYTE = 1024 * 1024


class DiskGuard:
    """
    Watches the disk of a daemon on this machine; that of another one cannot be seen.

    Args:
        min_free_mb: How much must be free before another image is brought.
        on_evicted: Told the name of each image that was removed.
    """

    def __init__(self, daemon: Daemon, min_free_mb: int, on_evicted: Callable[[str], None]) -> None:
        self._daemon = daemon
        self._min_free_mb = min_free_mb
        self._on_evicted = on_evicted
        self._brought: dict[str, None] = {}  # the one that was used last at the end
        self._in_use: Counter[str] = Counter()

    def brought(self, name: str) -> None:
        """Note that an image was not there before us."""
        self._brought[name] = None

    @contextmanager
    def using(self, name: str) -> Iterator[None]:
        """Keep an image while the block runs."""
        self._in_use[name] += 1
        if name in self._brought:
            self._brought[name] = self._brought.pop(name)
        try:
            yield
        finally:
            self._in_use[name] -= 1

    async def make_room(self) -> None:
        """
        Remove images that this run has brought and does not use, the longest unused first, as needed.

        Raises:
            SessionOpenError: There is not enough room even so; another trial may find some.
        """
        while (free := await self._free_mb()) is not None and free < self._min_free_mb:
            victim = next((name for name in self._brought if not self._in_use[name]), None)
            if victim is None:
                raise SessionOpenError(
                    f"the daemon's disk has {free} MB left, less than min_free_mb ({self._min_free_mb}); "
                    "make room (docker system prune), or lower it"
                )
            del self._brought[victim]
            self._on_evicted(victim)
            with suppress(DockerError):  # somebody else uses it, or has removed it
                await self._daemon.docker.images.delete(victim)
            current_log().info("image_evicted", image=victim, free_mb=free)

    async def _free_mb(self) -> int | None:
        folder = str((await self._daemon.docker.system.info())["DockerRootDir"])
        try:
            status = await to_thread.run_sync(os.statvfs, folder)
        except OSError:
            return None
        return status.f_bavail * status.f_frsize // _MEGABYTE
