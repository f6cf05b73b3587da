"""``agentcompass list``: which components there are, and where each comes from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..errors import ConfigError
from .table import Table, print_tables
from .terminal import print_json, print_text

if TYPE_CHECKING:
    from ..engine.registry import Kind

_KINDS: dict[str, Kind] = {
    "benchmarks": "benchmark",
    "harnesses": "harness",
    "environments": "environment",
    "recipes": "recipe",
}


@click.command("list")
@click.argument("kind", type=click.Choice(list(_KINDS)))
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    type=click.Path(),
    metavar="TEXT",
    help="Module or .py file that registers further components. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the table.")
def command(kind: str, plugins: Sequence[str], as_json: bool) -> None:
    """List the components of a kind; one that cannot be imported is listed with its error."""
    from ..engine.registry import component_ids, load_plugins

    load_plugins(list(plugins))
    entries = [_entry(_KINDS[kind], component_id) for component_id in component_ids(_KINDS[kind])]
    if as_json:
        print_json(entries)
    elif entries:
        rows = [(entry["id"], entry["source"], entry.get("error") or entry["summary"]) for entry in entries]
        print_tables(Table(("id", "source", ""), rows))
    else:
        print_text(f"no {kind}")


def _entry(kind: Kind, component_id: str) -> dict[str, str]:
    from ..engine.registry import find_component

    try:
        component = find_component(kind, component_id)
    except ConfigError as error:
        return {"id": component_id, "source": "", "summary": "", "error": str(error)}
    return {"id": component_id, "source": component.source, "summary": _first_sentence(component.cls.__doc__)}


def _first_sentence(docstring: str | None) -> str:
    text = " ".join((docstring or "").split())
    match = re.match(r".+?\.(?=\s|$)", text)
    return match[0] if match else text
