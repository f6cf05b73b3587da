"""``agentcompass config``: which values hold and why, what a component takes, and launch files' schema."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from pydantic import BaseModel

from ..errors import ConfigError
from .table import Table, print_tables
from .terminal import print_json, print_text

if TYPE_CHECKING:
    from ..engine.registry import Kind
    from ..spec.located import LocatedMapping

_KINDS = ("benchmark", "harness", "environment", "recipe")
_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead.")


@click.group("config")
def command() -> None:
    """Show which values hold and why, what a component takes, and the schema of launch files."""


@command.command("show")
@click.option(
    "--config",
    "named",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration file, in place of the user's own. Repeatable.",
)
@_json_option
def show_command(named: Sequence[Path], as_json: bool) -> None:
    """
    Show the value of every option and where it comes from.

    Values come from the environment variables of the model, then from the files named with --config, else
    from those in AGENTCOMPASS_CONFIG, else from your own file, and then from the built-in defaults.
    """
    from ..spec.config_files import config_paths, read_config, user_config_path

    entries = list(_effective(read_config(named)))
    files = [str(path) for path in config_paths(named)[0]]
    if as_json:
        print_json({"files": files, "options": entries})
        return
    rows = [(entry["option"], _shown(entry["value"]), entry["source"]) for entry in entries]
    print_tables(Table(("option", "value", "from"), rows))
    print_text(f"files: {', '.join(files) or f'none; yours would be {user_config_path(os.environ)}'}")


def _effective(values: LocatedMapping) -> Iterator[dict[str, Any]]:
    from ..spec.options import RunArguments
    from .options import ENVIRONMENT_VARIABLES, is_python_only

    for name, field in RunArguments.model_fields.items():
        variable = ENVIRONMENT_VARIABLES.get(name)
        if is_python_only(field) or name == "config":
            continue
        value: Any
        if variable is not None and os.environ.get(variable):
            value, source = os.environ[variable], f"environment variable {variable}"
        elif name in values:
            value, source = values[name], str(values.origins[name])
        else:
            value = None if field.is_required() else field.default
            source = "built-in"
        yield {"option": name, "value": _hidden(name, value), "source": source}


def _hidden(name: str, value: Any) -> Any:
    if name == "model_api_key":
        return "(not shown)" if value else None
    return str(value) if isinstance(value, Path) else value


def _shown(value: Any) -> str:
    return "" if value in (None, "", [], {}) else str(value)


def _complete_ids(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from ..engine.registry import component_ids

    kind = ctx.params.get("kind")
    ids = component_ids(cast("Kind", kind)) if kind in _KINDS else []
    return [known for known in ids if known.startswith(incomplete)]


@command.command("docs")
@click.argument("kind", type=click.Choice([*_KINDS, "run", "launch", "request"]))
@click.argument("component_id", metavar="[ID]", required=False, shell_complete=_complete_ids)
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    type=click.Path(),
    metavar="TEXT",
    help="Module or .py file that registers further components. Repeatable.",
)
@_json_option
def docs_command(kind: str, component_id: str | None, plugins: Sequence[str], as_json: bool) -> None:
    """
    Tell what a component takes: each parameter with its type, default and meaning.

    KIND is benchmark, harness, environment or recipe, with the ID of one; or run, launch or request, without
    an ID, for the options of a run, the keys of a launch file, and those of each of its requests.
    """
    from ..engine.registry import load_plugins

    load_plugins(list(plugins))
    summary, models = _described(kind, component_id)
    entries = [entry for model in models for entry in _entries(model)]
    if as_json:
        print_json({"summary": summary, "parameters": entries})
        return
    print_text(f"{summary}\n")
    rows = [(entry["name"], entry["type"], entry["default"], entry["meaning"]) for entry in entries]
    print_tables(Table(("parameter", "type", "default", "meaning"), rows))
    if not rows:
        print_text("no parameters")


def _described(kind: str, component_id: str | None) -> tuple[str, list[type[BaseModel]]]:
    from ..engine.registry import find_component
    from ..spec.options import NetworkParams, RunArguments, SelectionParams
    from ..spec.orchestration import OrchestrationSpec, RunRequestSpec

    specs: dict[str, type[BaseModel]] = {
        "run": RunArguments,
        "launch": OrchestrationSpec,
        "request": RunRequestSpec,
    }
    if kind in specs:
        if component_id is not None:
            raise ConfigError(f"config docs {kind}: takes no id")
        return _text(specs[kind].__doc__), [specs[kind]]
    if component_id is None:
        raise ConfigError(
            f"config docs {kind}: name one; see agentcompass list {kind}s".replace("harnesss", "harnesses")
        )
    component = find_component(cast("Kind", kind), component_id)
    common: dict[str, list[type[BaseModel]]] = {
        "benchmark": [SelectionParams],
        "environment": [NetworkParams],
    }
    return _text(component.cls.__doc__), [component.params_model, *common.get(kind, [])]


def _entries(model: type[BaseModel]) -> Iterator[dict[str, str]]:
    from ..spec.fields import default_in_words, type_in_words

    for name, field in model.model_fields.items():
        yield {
            "name": name,
            "type": type_in_words(field.annotation).replace("`", ""),
            "default": default_in_words(field),
            "meaning": _text(field.description),
        }


def _text(docstring: str | None) -> str:
    return " ".join((docstring or "").split()).replace("``", "")


@command.command("schema")
def schema_command() -> None:
    """
    Print the JSON Schema of launch files, for editors.

    In VS Code with the YAML extension, write the schema to a file and begin a launch file with
    "# yaml-language-server: $schema=FILE".
    """
    from ..engine.schema import launch_schema

    print_json(launch_schema())
