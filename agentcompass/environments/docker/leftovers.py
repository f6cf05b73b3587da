"""Find and remove what engines created on a daemon; nothing without our labels is ever touched."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

import anyio
from aiodocker import Docker
from aiodocker.exceptions import DockerError
from anyio import to_thread

from ...logs import current_log
from .daemon import FAILURES
from .owners import KEPT, OWNER, RUN, TRIAL, Owner, parse_owner

_REMOVE_ATTEMPTS = 5
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """
    A container or network with our labels.

    Args:
        status: Of a container, in the daemon's words, e.g. ``Up 3 minutes``.
        kept: Left in place on request; only removed on request.
    """

    kind: Literal["container", "network"]
    id: str
    name: str
    run_id: str
    trial: str
    owner: Owner
    kept: bool
    status: str = ""


async def list_resources(docker: Docker) -> list[Resource]:
    """Return everything with our labels, containers first."""
    filters = json.dumps({"label": [OWNER]})
    containers = await docker.containers.list(all=True, filters=filters)
    networks = await docker.networks.list(filters={"label": [OWNER]})
    found = [
        _resource("container", item["Id"], item["Names"][0].lstrip("/"), item["Labels"], item["Status"])
        for item in containers
    ]
    found += [_resource("network", item["Id"], item["Name"], item["Labels"]) for item in networks]
    return [resource for resource in found if resource is not None]


def _resource(
    kind: Literal["container", "network"], id_: str, name: str, labels: dict[str, str], status: str = ""
) -> Resource | None:
    owner = parse_owner(labels.get(OWNER, ""))
    if owner is None:
        return None
    return Resource(
        kind=kind,
        id=id_,
        name=name,
        run_id=labels.get(RUN, ""),
        trial=labels.get(TRIAL, ""),
        owner=owner,
        kept=KEPT in labels,
        status=status,
    )


async def remove_leftovers(docker: Docker) -> None:
    """Remove what belongs to processes of this machine that have ended; what cannot be removed is logged."""
    found = await list_resources(docker)
    dead = await to_thread.run_sync(lambda: [item for item in found if item.owner.is_dead and not item.kept])
    for name, reason in (await remove(docker, dead)).items():
        current_log().warning("leftover_not_removed", name=name, reason=reason)


async def remove(docker: Docker, resources: Iterable[Resource]) -> dict[str, str]:
    """
    Remove resources, containers before the networks that they are on.

    Returns:
        The names of those that could not be removed, and why.
    """
    failed: dict[str, str] = {}

    async def remove_one(resource: Resource) -> None:
        work = remove_container if resource.kind == "container" else _remove_network
        try:
            await work(docker, resource.id)
        except FAILURES as error:
            failed[resource.name] = str(error)

    everything = list(resources)
    for kind in ("container", "network"):
        async with anyio.create_task_group() as removing:
            for resource in everything:
                if resource.kind == kind:
                    removing.start_soon(remove_one, resource)
    return failed


async def remove_container(docker: Docker, name: str) -> None:
    """
    Kill and remove a container with its anonymous volumes, and wait until it is gone.

    Raises:
        DockerError: It is still there.
    """
    for attempt in range(1, _REMOVE_ATTEMPTS + 1):
        try:
            await docker.containers.container(name).delete(force=True, v=True)
        except DockerError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return
            if attempt == _REMOVE_ATTEMPTS:
                raise
            await anyio.sleep(attempt * _PAUSE_SECONDS)  # somebody else removes it, or it is still busy
        else:
            return


async def _remove_network(docker: Docker, id_: str) -> None:
    try:
        await (await docker.networks.get(id_)).delete()
    except DockerError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
