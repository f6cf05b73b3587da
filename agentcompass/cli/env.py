"""``agentcompass env``: what engines have created on a Docker daemon, and how to be rid of it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import anyio
import click

from ..errors import ConfigError, SessionError
from .table import Table, print_tables
from .terminal import print_json, print_note, print_text

if TYPE_CHECKING:
    from aiodocker import Docker

    from ..environments.docker.leftovers import Resource

T = TypeVar("T")

_host_option = click.option(
    "--docker-host", metavar="URL", default="", help="Where the daemon listens; by default the usual places."
)


@click.group("env")
def command() -> None:
    """Show and remove containers and networks that runs have left behind or kept."""


@command.command("list")
@_host_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the table.")
def list_command(docker_host: str, as_json: bool) -> None:
    """List the containers and networks of all runs, those of live ones included."""
    resources = _with_daemon(docker_host, _list)
    if as_json:
        print_json([_plain(resource) for resource in resources])
    elif resources:
        print_tables(_table(resources))
    else:
        print_text("no containers or networks of runs")


@command.command("close")
@_host_option
@click.option("--run", "run_id", metavar="ID", help="Those of one run.")
@click.option("--all", "everything", is_flag=True, help="Those of all runs.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def close_command(docker_host: str, run_id: str | None, everything: bool, yes: bool) -> None:
    """
    Remove the containers and networks of one run or of all.

    Only what has the labels of an engine is ever removed. Live runs lose their sessions.
    """
    if (run_id is None) == (not everything):
        raise ConfigError("env close: say which, --run ID or --all")
    found = _with_daemon(docker_host, _list)
    chosen = [resource for resource in found if everything or resource.run_id == run_id]
    if not chosen:
        print_text("nothing to remove" if everything else f"nothing of run {run_id!r} to remove")
        return
    print_tables(_table(chosen))
    _confirm(chosen, yes=yes)

    async def close(docker: Docker) -> dict[str, str]:
        from ..environments.docker.leftovers import remove

        return await remove(docker, chosen)

    failed = _with_daemon(docker_host, close)
    print_text(f"removed {len(chosen) - len(failed)}")
    if failed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise SessionError(f"{len(failed)} could not be removed: {reasons}")


def _confirm(chosen: Sequence[Resource], *, yes: bool) -> None:
    live = sum(not resource.owner.is_dead and not resource.kept for resource in chosen)
    if live:
        print_note(f"{live} of them may belong to a run that is still going")
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("env close: nobody can be asked here; add --yes to remove them")
    click.confirm(f"remove {len(chosen)}?", abort=True)


async def _list(docker: Docker) -> list[Resource]:
    from ..environments.docker.leftovers import list_resources

    return await list_resources(docker)


def _with_daemon(host: str, work: Callable[[Docker], Awaitable[T]]) -> T:
    from ..environments.docker.daemon import Daemon

    async def main() -> T:
        daemon = await Daemon.connect(host)
        try:
            return await work(daemon.docker)
        finally:
            await daemon.aclose()

    return anyio.run(main)


def _table(resources: Sequence[Resource]) -> Table:
    rows = [
        (resource.kind, resource.name, resource.run_id, resource.trial, resource.status, _owner(resource))
        for resource in resources
    ]
    return Table(("kind", "name", "run", "trial", "status", "owner"), rows)


def _owner(resource: Resource) -> str:
    owner = resource.owner
    state = "kept" if resource.kept else "ended" if owner.is_dead else f"process {owner.pid}"
    return f"{state} on {owner.host}"


def _plain(resource: Resource) -> dict[str, object]:
    return {
        "kind": resource.kind,
        "id": resource.id,
        "name": resource.name,
        "run": resource.run_id,
        "trial": resource.trial,
        "status": resource.status,
        "host": resource.owner.host,
        "pid": resource.owner.pid,
        "ended": resource.owner.is_dead,
        "kept": resource.kept,
    }
