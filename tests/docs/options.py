"""Write ``docs/options.md`` from the models of the options, so that there is no second list to keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from agentcompass.cli.key_values import RULES
from agentcompass.cli.main import main
from agentcompass.engine.registry import Kind, find_component
from agentcompass.spec.fields import default_in_words, type_in_words
from agentcompass.spec.options import (
    ConcurrencyOptions,
    ExecutionOptions,
    ModelOptions,
    NetworkParams,
    OutputOptions,
    RunArguments,
    RuntimeOptions,
    SelectionParams,
)
from agentcompass.spec.orchestration import OrchestrationSpec, RunRequestSpec

from .markdown import ROOT

PAGE = ROOT / "docs" / "options.md"

_GROUPS: Mapping[str, type[BaseModel]] = {
    "Model": ModelOptions,
    "Execution": ExecutionOptions,
    "Concurrency": ConcurrencyOptions,
    "Runtime": RuntimeOptions,
    "Output": OutputOptions,
}
_COMPONENTS: Sequence[tuple[Kind, str]] = (
    ("benchmark", "humaneval"),
    ("benchmark", "jsonl"),
    ("harness", "chat"),
    ("harness", "command"),
    ("harness", "oracle"),
    ("harness", "null"),
    ("harness", "forger"),
    ("harness", "snoop"),
    ("environment", "local"),
    ("environment", "docker"),
)
_INTRODUCTION = """\
# Options

Made from the code by `python -m tests.docs.update`; edit the docstrings there.

The same arguments serve `run_evaluation(...)` and `async_run_evaluation(...)` as keywords, `agentcompass run`
as options, and the file that `config` names as keys of a YAML or JSON mapping. What is given explicitly
wins over the file; mappings merge. An unknown name is an error that suggests the nearest one.

"""
_LAUNCH = """\
`launch(OrchestrationSpec(...))` takes the same options in groups: `task_concurrency` and `runtime` for the
whole, `execution` and `output` for each request. A component is `{"id": ..., ...}`, its parameters beside its
id, or just the id as text. A model is `{"id": ..., "base_url": ..., "api_key": ..., "params": ...}`: the
options of a model, with or without their prefix.

"""


def render() -> str:
    """Return the page."""
    return "".join(_parts()).rstrip("\n") + "\n"


def _parts() -> Iterator[str]:
    yield _INTRODUCTION
    own = {name: RunArguments.model_fields[name] for name in RunArguments.__annotations__}
    yield "## Components\n\n"
    yield from _arguments(own)
    for title, model in _GROUPS.items():
        yield f"## {title}\n\n"
        yield from _arguments({name: model.model_fields[name] for name in model.__annotations__})
    yield "## Selecting tasks\n\nPart of `benchmark_params` for every benchmark.\n\n"
    yield from _fields(SelectionParams)
    yield "## Network policies\n\nPart of `environment_params` for every environment; see [Environments]"
    yield "(environments.md#network-policies).\n\n"
    yield from _fields(NetworkParams)
    for kind, component_id in _COMPONENTS:
        yield from _component(kind, component_id)
    yield f"## Several requests\n\n{_LAUNCH}`OrchestrationSpec`:\n\n"
    yield from _fields(OrchestrationSpec)
    yield "`RunRequestSpec`:\n\n"
    yield from _fields(RunRequestSpec)
    yield from _command_line()


def _component(kind: Kind, component_id: str) -> Iterator[str]:
    component = find_component(kind, component_id)
    yield f"## {kind.capitalize()} {component_id}\n\n{_sentence(component.cls.__doc__)}\n\n"
    if component.params_model.model_fields:
        yield f"In `{kind}_params`:\n\n"
        yield from _fields(component.params_model)


def _command_line() -> Iterator[str]:
    yield f"## Command line\n\n{RULES}\n\n"
    shown = {("run", field) for field in RunArguments.model_fields}
    rows = [
        (f"`agentcompass {name}`", _names(parameter), _cell(parameter.help or ""))
        for name, command in commands().items()
        for parameter in command.params
        if isinstance(parameter, click.Option) and (name, parameter.name) not in shown
    ]
    yield from _table(("command", "option", "meaning"), rows)


def commands() -> dict[str, click.Command]:
    """Return the commands of the command line by name."""
    return dict(_commands(main, ""))


def _commands(group: click.Group, prefix: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, f"{prefix}{name} ")
        elif command is not None:
            yield f"{prefix}{name}", command


def _arguments(fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    options = {parameter.name: parameter for parameter in commands()["run"].params}
    rows = [
        (
            f"`{name}`",
            _names(options[name]) if name in options else "",
            type_in_words(field.annotation),
            _default(field),
            _meaning(field),
        )
        for name, field in fields.items()
    ]
    yield from _table(("argument", "command line", "type", "default", "meaning"), rows)


def _fields(model: type[BaseModel]) -> Iterator[str]:
    rows = [
        (f"`{name}`", type_in_words(field.annotation), _default(field), _meaning(field))
        for name, field in model.model_fields.items()
    ]
    yield from _table(("name", "type", "default", "meaning"), rows)


def _names(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        return f"`{str(parameter.name).upper()}`"
    return " ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])


def _default(field: FieldInfo) -> str:
    words = default_in_words(field)
    return words if words in ("", "required", "yes", "no") else f"`{words}`"


def _meaning(field: FieldInfo) -> str:
    return _cell(field.description or "")


def _sentence(docstring: str | None) -> str:
    return " ".join((docstring or "").split()).replace("``", "`")


def _cell(text: str) -> str:
    """Fit a docstring into a cell: one line, its code as it is, nothing else taken for HTML."""
    text = " ".join(text.split()).replace("``", "`").replace("|", "\\|")
    parts = text.split("`")
    return "`".join([part if at % 2 else part.replace("<", "&lt;") for at, part in enumerate(parts)])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(row)} |\n"
    yield "\n"
