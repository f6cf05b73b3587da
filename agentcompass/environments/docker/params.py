"""What people may set for the ``docker`` environment, and the container configuration that follows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from ...errors import ConfigError

_MEGABYTE = 1024 * 1024
KEEP_ALIVE = ["/bin/sh", "-c", "while sleep 3600 || read -r _; do :; done"]
"""The main process: waits for ever, also in an image without ``sleep``."""


class Mount(BaseModel):
    """A directory or file of the daemon's machine that sessions see."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    source: Path
    """Absolute path on the machine of the daemon."""
    target: PurePosixPath
    """Absolute path in the session."""
    read_only: bool = True
    """Whether sessions can only read it."""

    @field_validator("source", "target")
    @classmethod
    def _absolute(cls, value: PurePosixPath) -> PurePosixPath:
        if not value.is_absolute():
            raise ValueError("must be an absolute path")
        return value


class DockerParams(BaseModel):
    """How containers are made. Whatever loosens their isolation is off unless set here."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    image: str = ""
    """The image for all tasks; empty for the one that the task or a recipe names."""
    build: Path | None = None
    """A directory with a Dockerfile to build the image for all tasks from, instead of ``image``."""
    dockerfile: str = "Dockerfile"
    """The Dockerfile in ``build``."""
    build_args: dict[str, str] = {}
    """Build arguments."""
    pull: Literal["missing", "never"] = "missing"
    """Whether an image that the daemon does not have is pulled."""
    min_free_mb: NonNegativeInt = 2048
    """Free room on the daemon's disk below which images that this run pulled and does not use are removed."""
    platform: str = ""
    """``os/architecture``, e.g. ``linux/amd64``; empty for the daemon's own."""
    working_dir: str = ""
    """Where commands start; empty for the task's, else the image's, else ``/workspace``."""
    env: dict[str, str] = {}
    """Further environment variables for every command."""
    mounts: list[Mount] = []
    """What sessions see of the daemon's machine, as ``{source, target, read_only}``."""
    user: str = ""
    """Who runs the commands, ``name`` or ``uid:gid``; empty for the image's user."""
    cpus: PositiveFloat | None = None
    """How many processors a session may use."""
    memory_mb: PositiveInt | None = 8192
    """Memory of a session, swap included."""
    pids: PositiveInt | None = 4096
    """Processes and threads of a session."""
    shm_mb: PositiveInt | None = None
    """Size of ``/dev/shm``; None for Docker's 64 MB."""
    gpus: Literal["all"] | PositiveInt | None = None
    """How many GPUs a session gets."""
    storage_mb: PositiveInt | None = None
    """What a session may write, where the daemon's storage has quotas (overlay2 on xfs, btrfs, zfs)."""
    max_download_mb: PositiveInt = 10_240
    """The most that one download may take from a session."""
    network: str = ""
    """A network of the daemon to join where the policy is ``public``; ``host`` gives up isolation."""
    privileged: bool = False
    """Give sessions the rights of the daemon's machine."""
    cap_add: list[str] = []
    """Linux capabilities beyond Docker's default ones."""
    new_privileges: bool = False
    """Let programs gain rights by set-user-id bits, e.g. ``sudo``."""
    init: bool = True
    """Run Docker's init process, which reaps orphans."""
    docker_host: str = Field(default="", pattern=r"^$|^(unix|tcp|http|https|ssh)://")
    """Where the daemon listens; empty for DOCKER_HOST, Docker's context or the usual sockets."""

    @field_validator("working_dir")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if value and not value.startswith("/"):
            raise ValueError("must be an absolute path")
        return value

    def check(self) -> None:
        """
        Refuse values that contradict each other.

        Raises:
            ConfigError: Names the parameters.
        """
        if self.image and self.build:
            raise ConfigError("environment_params.build: image is set as well; leave one of them out")
        if self.build and not (self.build / self.dockerfile).is_file():
            path = self.build / self.dockerfile
            raise ConfigError(f"environment_params.build: there is no file {str(path)!r}")

    def container(self, *, image: str, workdir: str, env: Mapping[str, str]) -> dict[str, Any]:
        """Return the configuration to create a container with, as the Docker API has it."""
        return {
            "Image": image,
            "Entrypoint": KEEP_ALIVE,
            "Cmd": [],
            "OpenStdin": True,
            "WorkingDir": workdir,
            "User": "0",  # of the main process: commands have the session's user, but killing them needs root
            "Env": [f"{name}={value}" for name, value in env.items()],
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": self._host_config(),
        }

    def _host_config(self) -> dict[str, Any]:
        memory = self.memory_mb and self.memory_mb * _MEGABYTE
        config: dict[str, Any] = {
            "Init": self.init,
            "Privileged": self.privileged,
            "CapAdd": self.cap_add,
            "SecurityOpt": [] if self.new_privileges or self.privileged else ["no-new-privileges"],
            "PidsLimit": self.pids,
            "Memory": memory,
            "MemorySwap": memory,
            "NanoCpus": self.cpus and int(self.cpus * 1e9),
            "ShmSize": self.shm_mb and self.shm_mb * _MEGABYTE,
            "NetworkMode": self.network or "bridge",
            "LogConfig": {"Type": "none"},
            "Mounts": [_mount(mount) for mount in self.mounts],
        }
        if self.storage_mb is not None:
            config["StorageOpt"] = {"size": f"{self.storage_mb}M"}
        if self.gpus is not None:
            count = -1 if self.gpus == "all" else self.gpus
            config["DeviceRequests"] = [{"Count": count, "Capabilities": [["gpu"]]}]
        return {name: value for name, value in config.items() if value is not None}


def _mount(mount: Mount) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": str(mount.source),
        "Target": str(mount.target),
        "ReadOnly": mount.read_only,
    }
