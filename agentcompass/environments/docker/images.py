"""Have the images that sessions need: found, pulled or built, each once however many sessions wait."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import quote

import anyio
from aiodocker.exceptions import DockerError
from anyio import CapacityLimiter, to_thread

from ...errors import SessionOpenError
from ...logs import current_log
from ...protocols import ImageBuild
from .archive import PackedTree
from .credentials import registry_auth
from .daemon import FAILURES, Daemon
from .disk import DiskGuard
from .flight import SingleFlight

BUILT_REPOSITORY = "agentcompass-build"
_PULL_ATTEMPTS = 4
_FIRST_PAUSE_SECONDS = 1.0
_FINAL = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
"""What asking again does not change."""
_LOG_CHARACTERS = 1_000_000
_TAIL_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Image:
    """
    An image that the daemon has.

    Args:
        name: To create containers with.
        workdir: Where its commands start; empty if it does not say.
        user: Who runs them; empty for root.
    """

    name: str
    workdir: str
    user: str


class Images:
    """
    The images of one environment.

    Args:
        platform: ``os/architecture``; empty for the daemon's own.
        pull: Whether to pull what the daemon does not have.
        min_free_mb: How much of the daemon's disk must be free to bring an image.
    """

    def __init__(
        self, daemon: Daemon, *, platform: str, pull: Literal["missing", "never"], min_free_mb: int
    ) -> None:
        self._daemon = daemon
        self._platform = platform
        self._pull = pull
        self._limiter = CapacityLimiter(2)
        self._known: dict[str, Image] = {}
        self._built_names: dict[str, str] = {}
        self._flights = SingleFlight[Image]()
        self._disk = DiskGuard(daemon, min_free_mb, on_evicted=self.forget)

    def using(self, image: Image) -> AbstractContextManager[None]:
        """Keep an image from being evicted while the block runs."""
        return self._disk.using(image.name)

    def forget(self, name: str) -> None:
        """Look for an image anew: it was removed."""
        self._known.pop(name, None)

    async def named(self, name: str) -> Image:
        """
        Return an image, pulled if the daemon does not have it.

        Raises:
            SessionOpenError: It cannot be had.
        """
        if name not in self._known:
            self._known[name] = await self._flights.run(name, lambda: self._obtain(name))
        return self._known[name]

    async def built(self, build: ImageBuild) -> Image:
        """
        Return the image of a Dockerfile, built unless its context has been built before.

        A context is read once: during a run it stands for what the run's tasks were recorded with.

        Raises:
            SessionOpenError: It cannot be built; the message ends with the end of the build's log.
        """
        key = json.dumps([str(build.context), build.dockerfile, sorted(build.args.items())])
        name = self._built_names.get(key)
        if name is None:
            digest = await to_thread.run_sync(_digest, build, self._platform, limiter=self._limiter)
            name = self._built_names[key] = f"{BUILT_REPOSITORY}:{digest[:32]}"
        if name not in self._known:
            self._known[name] = await self._flights.run(name, lambda: self._find_or_build(name, build))
        return self._known[name]

    async def is_there(self, name: str) -> bool:
        """
        Whether the daemon has an image.

        Raises:
            SessionOpenError: It cannot be asked.
        """
        return await self._find(name) is not None

    async def _find(self, name: str) -> Image | None:
        try:
            found = await self._daemon.docker.images.inspect(name)
        except DockerError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise SessionOpenError(f"image {name!r} cannot be inspected: {error.message}") from error
        architecture = self._platform.split("/")[1] if "/" in self._platform else ""
        if architecture and found["Architecture"] != architecture:
            return None
        config = found.get("Config") or {}
        return Image(name, config.get("WorkingDir") or "", config.get("User") or "")

    # --- pulling ------------------------------------------------------------------------------------

    async def _obtain(self, name: str) -> Image:
        if image := await self._find(name):
            return image
        if self._pull == "never":
            raise SessionOpenError(
                f"{self._described(name)} is not there, and pull is 'never'; load it (docker load)",
                retryable=False,
            )
        await self._disk.make_room()
        await self._pull_patiently(name)
        self._disk.brought(name)
        if image := await self._find(name):
            return image
        raise SessionOpenError(
            f"{self._described(name)} was pulled, but is for another platform", retryable=False
        )

    async def _pull_patiently(self, name: str) -> None:
        pause = _FIRST_PAUSE_SECONDS
        auth = await to_thread.run_sync(registry_auth, name)
        reference = name if "/" in name or not auth else f"docker.io/library/{name}"  # as aiodocker wants it
        for attempt in range(1, _PULL_ATTEMPTS + 1):
            try:
                async for _ in self._daemon.docker.images.pull(
                    reference, auth=auth, platform=self._platform or None, stream=True
                ):
                    pass
            except FAILURES as error:
                final = isinstance(error, DockerError) and error.status in _FINAL
                if final or attempt == _PULL_ATTEMPTS:
                    raise SessionOpenError(
                        f"{self._described(name)} could not be pulled: {error}; is the name right, is "
                        "its registry reachable, does it need a login?",
                        retryable=not final,
                    ) from error
                current_log().warning("image_pull_failed", image=name, attempt=attempt, error=str(error))
                await anyio.sleep(pause * random.uniform(1, 1.5))  # noqa: S311  # no secret
                pause *= 3
            else:
                return

    def _described(self, name: str) -> str:
        return f"image {name!r}" + (f" for {self._platform}" if self._platform else "")

    # --- building -----------------------------------------------------------------------------------

    async def _find_or_build(self, name: str, build: ImageBuild) -> Image:
        if image := await self._find(name):
            return image
        await self._disk.make_room()
        log = _BuildLog()
        try:
            async for item in self._steps(name, build):
                log.add(item)
        except FAILURES as error:
            raise SessionOpenError(
                f"the image of {str(build.context)!r} could not be built: {error}"
            ) from error
        current_log().info("image_built", image=name, context=str(build.context), log=log.text)
        image = None if log.error else await self._find(name)
        if image is None:
            raise SessionOpenError(
                f"the image of {str(build.context / build.dockerfile)!r} could not be built: "
                f"{log.error or 'it is for another platform'}\n{log.text[-_TAIL_CHARACTERS:]}",
                retryable=False,
            )
        return image

    async def _steps(self, name: str, build: ImageBuild) -> AsyncIterator[dict[str, Any]]:
        """Build and yield what the daemon says of it."""
        params = {
            "t": name,
            "dockerfile": build.dockerfile,
            "buildargs": json.dumps(dict(build.args)),
            "platform": self._platform,
            "forcerm": "1",
        }
        tree = PackedTree(source=build.context, name=".", limiter=self._limiter)
        quoted = {name: quote(value) for name, value in params.items()}
        async with self._daemon.request(
            "POST", "build", params=quoted, data=tree, content_type="application/x-tar"
        ) as response:
            async for line in response.content:
                yield json.loads(line)


class _BuildLog:
    """What a build says, up to a limit, and how it failed."""

    def __init__(self) -> None:
        self.text = ""
        self.error = ""

    def add(self, item: dict[str, Any]) -> None:
        self.error = str(item.get("error", self.error))
        if len(self.text) < _LOG_CHARACTERS:
            self.text += str(item.get("stream", ""))


def _digest(build: ImageBuild, platform: str) -> str:
    """Hash everything that makes an image: names, modes and contents of its context, arguments, platform."""
    digest = sha256(json.dumps([build.dockerfile, dict(sorted(build.args.items())), platform]).encode())
    for path in sorted(build.context.rglob("*")):
        status = path.lstat()
        digest.update(repr((str(path.relative_to(build.context)), status.st_mode)).encode())
        if path.is_symlink():
            digest.update(bytes(path.readlink()))
        elif path.is_file():
            with path.open("rb") as file:
                while chunk := file.read(1024 * 1024):
                    digest.update(chunk)
    return digest.hexdigest()
