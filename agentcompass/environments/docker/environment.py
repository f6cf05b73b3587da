"""The provider: opens containers as sessions, and removes them and what dead engines left behind."""

from __future__ import annotations

import json
import posixpath
import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, ClassVar
from urllib.parse import quote

import anyio
from aiodocker.containers import DockerContainer
from aiodocker.exceptions import DockerError
from anyio import CapacityLimiter, to_thread

from ...errors import ConfigError, SessionError, SessionOpenError
from ...protocols import ImageBuild, SessionPlan
from ...spec.network import NetworkPolicy
from .daemon import FAILURES, Daemon
from .exec import Commands
from .finish import finish
from .images import Image, Images
from .leftovers import remove_container, remove_leftovers
from .network import RestrictedNetwork
from .owners import Owner, labels, this_process
from .params import DockerParams
from .session import DockerSession
from .transfer import Transfers

DEFAULT_WORKDIR = "/workspace"
_CLOSE_SECONDS = 30.0
_MEGABYTE = 1024 * 1024
_ROOT = ("", "root", "0")


class DockerEnvironment:
    """Opens sessions in containers of a Docker daemon (API 1.41 or later)."""

    version: ClassVar[str] = "1"

    def __init__(self, params: DockerParams) -> None:
        params.check()
        self.facts: Mapping[str, str] = {}
        self._params = params
        self._lock = anyio.Lock()
        self._connection: _Connected | None = None
        self._packers = CapacityLimiter(4)

    async def check(self, networks: Sequence[NetworkPolicy]) -> None:
        """
        See that the daemon answers and the policies can be enforced; remove what dead engines left behind.

        Raises:
            ConfigError: Sessions could not be opened.
        """
        connection = await self._connected()
        try:
            await self._check_daemon(connection.daemon)
            await remove_leftovers(connection.daemon.docker)
        except FAILURES as error:
            raise ConfigError(f"environment 'docker': the daemon failed: {error}") from error
        if any(policy.is_list for policy in networks):
            try:
                (await connection.restricted.listen()).close()
            except SessionOpenError as error:
                raise ConfigError(f"environment 'docker': {error}") from error

    async def _check_daemon(self, daemon: Daemon) -> None:
        info = await daemon.docker.system.info()
        self.facts = {
            "engine": str(info["ServerVersion"]),
            "storage_driver": str(info["Driver"]),
            "cgroup_version": str(info.get("CgroupVersion", "1")),
        }
        backing = dict(info.get("DriverStatus") or ()).get("Backing Filesystem")
        if self._params.storage_mb and info["Driver"] == "overlay2" and backing != "xfs":
            raise ConfigError(
                f"environment_params.storage_mb: the daemon's storage (overlay2 on {backing}) has no quotas; "
                "leave it out, or use a daemon on xfs with pquota, btrfs or zfs"
            )

    async def _connected(self) -> _Connected:
        async with self._lock:
            if self._connection is None:
                params = self._params
                owner = await to_thread.run_sync(this_process)
                # From here on nothing waits: a cancellation would leave the connection open, owned by nobody.
                daemon = await Daemon.connect(params.docker_host)
                self._connection = _Connected(
                    daemon=daemon,
                    owner=owner,
                    images=Images(
                        daemon,
                        platform=params.platform,
                        pull=params.pull,
                        min_free_mb=params.min_free_mb,
                    ),
                    restricted=RestrictedNetwork(daemon, labels(owner, run_id="", trial="", keep=False)),
                )
            return self._connection

    async def aclose(self) -> None:
        """Remove the shared network and close the connections."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        async with AsyncExitStack() as closing:  # each is tried, whatever becomes of the others
            closing.push_async_callback(connection.daemon.aclose)
            closing.push_async_callback(connection.restricted.aclose)
            for name in connection.unremoved:
                closing.push_async_callback(remove_container, connection.daemon.docker, name)

    @asynccontextmanager
    async def open(self, plan: SessionPlan) -> AsyncIterator[DockerSession]:
        """
        Open a session; at the end its container is removed unless it is to be kept.

        Raises:
            SessionOpenError: It could not be opened.
        """
        try:
            connection = await self._connected()
        except ConfigError as error:
            raise SessionOpenError(str(error)) from error
        image = await self._image(connection.images, plan)
        with connection.images.using(image):
            async with self._opened(connection, image, plan) as session:
                yield session

    @asynccontextmanager
    async def _opened(
        self, connection: _Connected, image: Image, plan: SessionPlan
    ) -> AsyncIterator[DockerSession]:
        async with _network(connection.restricted, plan) as network:
            workdir = self._workdir(image, plan)
            config = self._container(image, plan, network, workdir)
            config["Labels"] = labels(connection.owner, run_id=plan.run_id, trial=plan.label, keep=plan.keep)
            name = f"agentcompass-{_readable(plan.label)}-{secrets.token_hex(6)}"
            session = None
            connection.unremoved.add(name)  # a creation that is cut off may still come about
            try:
                container = await finish(lambda: self._start(connection, name, config))
                connection.unremoved.discard(name)
                session = await self._session(connection.daemon, container, image, workdir)
                yield session
            finally:
                if session is not None:
                    session.close()
                with anyio.CancelScope(shield=True):
                    if plan.keep and session is not None:
                        plan.note(_how_to_use(name, plan.run_id))
                    else:
                        await _dispose(connection, name)

    async def _image(self, images: Images, plan: SessionPlan) -> Image:
        params = self._params
        if params.build is not None:
            return await images.built(
                ImageBuild(context=params.build, dockerfile=params.dockerfile, args=params.build_args)
            )
        if not params.image and plan.build is not None:
            return await images.built(plan.build)
        try:
            name = self.image_of(plan.image, plan.build)
        except ConfigError as error:
            raise SessionOpenError(str(error), retryable=False) from error
        return await images.named(name)

    def image_of(self, image: str, build: ImageBuild | None) -> str:
        """
        Return the image that a session is made from when the plan names these; empty for one that is built.

        Raises:
            ConfigError: There is none.
        """
        own = self._params.image
        if self._params.build is not None or (build is not None and not own):
            return ""
        if not own and not image:
            raise ConfigError(
                "environment 'docker' has no image for this task: set environment_params.image (or build), "
                "or use a benchmark or recipe that names one"
            )
        return own or image

    async def missing_images(self, images: Sequence[str]) -> list[str]:
        """
        Return those of the images that the daemon does not have.

        Raises:
            ConfigError: It cannot be asked.
        """
        connection = await self._connected()
        try:
            return [name for name in images if not await connection.images.is_there(name)]
        except (SessionOpenError, *FAILURES) as error:
            raise ConfigError(f"environment 'docker': the daemon failed: {error}") from error

    def _workdir(self, image: Image, plan: SessionPlan) -> str:
        own = image.workdir if image.workdir != "/" else ""
        wanted = self._params.working_dir or plan.workdir or own
        return posixpath.normpath(posixpath.join(DEFAULT_WORKDIR, wanted))

    def _container(self, image: Image, plan: SessionPlan, network: _Network, workdir: str) -> dict[str, Any]:
        config = self._params.container(
            image=image.name,
            workdir=workdir if self._runs_as_root(image) else "/",
            env={**self._params.env, **plan.env, **network.env},
        )
        config["HostConfig"] |= network.host_config
        return config

    def _user(self, image: Image) -> str:
        return self._params.user or image.user

    def _runs_as_root(self, image: Image) -> bool:
        return self._user(image).partition(":")[0] in _ROOT

    async def _start(self, connection: _Connected, name: str, config: dict[str, Any]) -> DockerContainer:
        image = config["Image"]
        params = {"name": name}
        if self._params.platform:
            params["platform"] = quote(self._params.platform, safe="")
        try:
            async with connection.daemon.request(
                "POST", "containers/create", params=params, data=json.dumps(config).encode()
            ) as response:
                container = connection.daemon.docker.containers.container((await response.json())["Id"])
            await container.start()
        except FAILURES as error:
            if isinstance(error, DockerError) and error.status == HTTPStatus.NOT_FOUND:
                connection.images.forget(image)
            where = f" on {self._params.platform}" if self._params.platform else ""
            raise SessionOpenError(
                f"no container of image {image!r}{where} could be started: {error}"
            ) from error
        return container

    async def _session(
        self, daemon: Daemon, container: DockerContainer, image: Image, workdir: str
    ) -> DockerSession:
        commands = Commands(container, self._user(image))
        uid = gid = 0
        if not self._runs_as_root(image):
            uid, gid = await _settle_user(commands, workdir)
        transfers = Transfers(
            daemon=daemon,
            container_id=container.id,
            limiter=self._packers,
            max_download_bytes=self._params.max_download_mb * _MEGABYTE,
            uid=uid,
            gid=gid,
        )
        return DockerSession(commands, transfers, workdir=workdir)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Connected:
    """
    What the sessions of an environment share.

    Args:
        unremoved: Containers that may be there although their session is over.
    """

    daemon: Daemon
    owner: Owner
    images: Images
    restricted: RestrictedNetwork
    unremoved: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Network:
    """How a container is connected to the network."""

    host_config: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


@asynccontextmanager
async def _network(restricted: RestrictedNetwork, plan: SessionPlan) -> AsyncIterator[_Network]:
    """Hold what a session's network policy needs."""
    if plan.network.mode == "public":
        yield _Network()
    elif plan.network.mode == "no-network":
        yield _Network({"NetworkMode": "none"})
    else:
        from ..egress import egress  # on first use

        async with egress(plan, await restricted.listen()) as variables:
            yield _Network(restricted.host_config, variables)


def _readable(label: str) -> str:
    """Return what may be part of a container's name."""
    return re.sub(r"[^a-zA-Z0-9_.-]+", "-", label)[:60].strip("-.") or "session"


async def _settle_user(commands: Commands, workdir: str) -> tuple[int, int]:
    """Give a user who is not root a working directory of its own, unless there is one; return its ids."""
    try:
        ids = await commands.run(["/bin/sh", "-c", "id -u && id -g"], cwd="/", env={})
        uid, gid = (int(word) for word in ids.stdout.split())
        script = '[ -d "$1" ] || { mkdir -p -- "$1" && chown "$2" "$1"; }'
        made = await commands.run(
            ["/bin/sh", "-c", script, "sh", workdir, f"{uid}:{gid}"], cwd="/", env={}, as_root=True
        )
    except (SessionError, ValueError) as error:
        raise SessionOpenError(f"the session's user cannot be determined: {error}") from error
    if made.exit_code:
        raise SessionOpenError(f"the working directory {workdir!r} cannot be made: {made.stderr.strip()}")
    return uid, gid


def _how_to_use(name: str, run_id: str) -> str:
    return (
        f"kept container {name}; enter: docker exec -it {name} /bin/sh; remove: docker rm -fv {name}, "
        f"or agentcompass env close --run {run_id}"
    )


async def _dispose(connection: _Connected, name: str) -> None:
    try:
        with anyio.fail_after(_CLOSE_SECONDS):
            await remove_container(connection.daemon.docker, name)
    except (*FAILURES, TimeoutError) as error:
        connection.unremoved.add(name)
        raise SessionError(f"container {name} could not be removed yet: {error}") from error
