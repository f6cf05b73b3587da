"""The options of ``agentcompass run``, made from the fields of ``RunArguments``: there is no second list."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from ..spec.options import RunArguments
from .key_values import read_key_values

_ARGUMENTS = ("benchmark", "harness", "model")
_SHORT = {
    "benchmark_params": "-b",
    "harness_params": "-H",
    "environment_params": "-e",
    "model_params": "-m",
    "k": "-k",
}
ENVIRONMENT_VARIABLES = {
    "model": "MODEL_NAME",
    "model_base_url": "MODEL_BASE_URL",
    "model_api_key": "MODEL_API_KEY",
}
_NO_PLURAL = {"env_open_qps"}
_KEY_HINT = "Prefer the environment variable: other users of the machine can read arguments."
_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


class FieldOption(click.Option):
    """
    The option of one field.

    Args:
        section: Heading in the help.
        optional_value: What the option stands for without a value; empty if it needs one.
        takes_key_values: Whether its values are assignments.
    """

    def __init__(
        self,
        declarations: Sequence[str],
        *,
        section: str,
        optional_value: str = "",
        takes_key_values: bool = False,
        **attributes: Any,
    ) -> None:
        super().__init__(declarations, **attributes)
        self.section = section
        self.optional_value = optional_value
        self.takes_key_values = takes_key_values

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return names and help; of a pair of flags the short form."""
        record = super().get_help_record(ctx)
        if record is None or not self.secondary_opts:
            return record
        return f"--[no-]{self.opts[-1][2:]}", record[1]


class FieldArgument(click.Argument):
    """
    The positional argument of one field.

    Whether it is required is for the model of the options to say: the configuration file may have it.
    """

    section = "Arguments"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return name and help."""
        assert self.name is not None
        variable = f" [env var: {self.envvar}]" if self.envvar else ""
        return self.name.upper(), f"{RunArguments.model_fields[self.name].description}{variable}"


class _Suggestion(click.Choice[str]):
    """Values to complete and to show in the help; the model of the options judges them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value


def run_parameters() -> list[click.Parameter]:
    """Return the parameters of the command: benchmark, harness and model by position, the rest as options."""
    fields = RunArguments.model_fields
    own = [name for name in RunArguments.__annotations__ if name not in _ARGUMENTS]
    names = [*own, *(name for name in fields if name not in RunArguments.__annotations__)]
    return [*map(_argument, _ARGUMENTS), *field_options(names)]


def field_options(names: Iterable[str]) -> list[FieldOption]:
    """Return the options of these fields, but for those that only Python can give."""
    fields = RunArguments.model_fields
    return [_option(name, fields[name]) for name in names if not is_python_only(fields[name])]


def chosen_parameters(names: Sequence[str]) -> list[click.Parameter]:
    """Return the parameters of some of the fields, in that order."""
    fields = RunArguments.model_fields
    return [_argument(name) if name in _ARGUMENTS else _option(name, fields[name]) for name in names]


def _argument(name: str) -> FieldArgument:
    field = RunArguments.model_fields[name]
    return FieldArgument(
        [name],
        required=False,
        metavar=name.upper() if field.is_required() else f"[{name.upper()}]",
        envvar=ENVIRONMENT_VARIABLES.get(name),
        shell_complete=None if name == "model" else _complete_ids,
    )


def _complete_ids(_ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from ..engine.registry import component_ids

    ids = component_ids(parameter.name)  # type: ignore[arg-type]  # these parameters are named by their kind
    return [CompletionItem(known) for known in ids if known.startswith(incomplete)]


def is_python_only(field: FieldInfo) -> bool:
    """Whether only Python can give the option, e.g. a function."""
    extra = field.json_schema_extra
    return isinstance(extra, dict) and bool(extra.get("python_only"))


def _option(name: str, field: FieldInfo) -> FieldOption:
    long = option_name(name)
    attributes = _value_attributes(name, field)
    declaration = f"{long}/--no-{long[2:]}" if attributes.pop("is_pair", False) else long
    short = [_SHORT[name]] if name in _SHORT else []
    return FieldOption(
        [*short, declaration, name],
        section=_section(name),
        help=_help(name, field),
        default=None,
        envvar=ENVIRONMENT_VARIABLES.get(name),
        show_envvar=True,
        shell_complete=_complete_ids if name == "environment" else None,
        **attributes,
    )


def option_name(field: str) -> str:
    """Return the option of a field; what can be repeated is named in the singular."""
    if field in _ARGUMENTS:
        return field.upper()
    name = field.removesuffix("_list")
    if _is_repeatable(RunArguments.model_fields[field]) and field not in _NO_PLURAL:
        name = name.removesuffix("s")
    return f"--{name.replace('_', '-')}"


def _is_repeatable(field: FieldInfo) -> bool:
    return any(get_origin(kind) in (list, dict) for kind in _kinds(field.annotation))


def _kinds(annotation: Any) -> list[Any]:
    """Return the alternatives of an annotation, None left out."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for part in get_args(annotation) for kind in _kinds(part)]
    return [] if annotation is type(None) else [annotation]


def _value_attributes(name: str, field: FieldInfo) -> dict[str, Any]:
    """Say how click takes the value: as text, which the model of the options judges."""
    kinds = _kinds(field.annotation)
    origins = [get_origin(kind) for kind in kinds]
    if bool in kinds and Literal in origins:
        [words] = (get_args(kind) for kind in kinds if get_origin(kind) is Literal)
        suggestion = _Suggestion(["true", "false", *words])
        return {"type": suggestion, "optional_value": "true", "metavar": f"[={'|'.join(words)}]"}
    if bool in kinds:
        return {"is_pair": True}
    if dict in origins:
        return {"multiple": True, "takes_key_values": True, "metavar": "KEY=VALUE"}
    if Literal in origins:
        return {"type": _Suggestion(get_args(kinds[0]))}
    multiple = list in origins
    item = _kinds(get_args(kinds[-1])[0])[0] if multiple else kinds[0]
    return {"multiple": multiple, **_item_attributes(name, item)}


def _item_attributes(name: str, kind: Any) -> dict[str, Any]:
    if kind is Path:
        return {"type": click.Path(), "metavar": "PATH"}
    if kind is int:
        return {"type": str, "metavar": "N"}
    if kind is float:
        return {"type": str, "metavar": "SECONDS" if name.endswith("_seconds") else "NUMBER"}
    return {"type": str, "metavar": "KEY" if kind is SecretStr else "TEXT"}


def _section(name: str) -> str:
    """Name the group of options that declares a field, e.g. ``Execution options``."""
    owner = next(model for model in RunArguments.__mro__ if name in getattr(model, "__annotations__", ()))
    if owner is RunArguments:
        return "Component options"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", owner.__name__).capitalize()


def _help(name: str, field: FieldInfo) -> str:
    parts = [field.description or ""]
    if SecretStr in _kinds(field.annotation):
        parts.append(_KEY_HINT)
    if _is_repeatable(field):
        parts.append("Repeatable.")
    if field.default not in (None, "", False, [], {}):
        shown = f"{field.default:g}" if isinstance(field.default, float) else field.default
        parts.append(f"[default: {shown}]")
    return " ".join(parts)


# --- the values that were given ---------------------------------------------------------------------


def given_values(ctx: click.Context) -> dict[str, Any]:
    """
    Return the arguments that were given explicitly or by the environment.

    Defaults are left out, so that those of the configuration file hold.

    Raises:
        ConfigError: An assignment cannot be read.
    """
    return {
        name: _python_value(parameter, ctx.params[name])
        for parameter, name in _fields_of(ctx)
        if ctx.get_parameter_source(name) in _GIVEN
    }


def _fields_of(ctx: click.Context) -> Iterator[tuple[click.Parameter, str]]:
    for parameter in ctx.command.params:
        if parameter.name in RunArguments.model_fields:
            yield parameter, parameter.name


def _python_value(parameter: click.Parameter, value: Any) -> Any:
    if isinstance(parameter, FieldOption) and parameter.takes_key_values:
        return read_key_values(value, option=parameter.opts[-1])
    return list(value) if isinstance(value, tuple) else value


def resume_command(ctx: click.Context, run_id: str) -> str:
    """Return the command that continues a run: the same arguments, but for the key."""
    words = [
        word
        for parameter, name in _fields_of(ctx)
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE and name not in ("run_id", "resume")
        for word in _words(parameter, ctx.params[name])
    ]
    return " ".join(["agentcompass run", *words, "--run-id", shlex.quote(run_id)])


def _words(parameter: click.Parameter, value: Any) -> list[str]:
    name = parameter.opts[-1]
    if parameter.name == "model_api_key":
        return [name, '"$MODEL_API_KEY"']
    if not isinstance(parameter, FieldOption):
        return [shlex.quote(value)]
    if parameter.is_flag:
        return [name if value else parameter.secondary_opts[-1]]
    if parameter.optional_value:
        return [f"{name}={shlex.quote(value)}"]
    values = value if isinstance(value, tuple) else (value,)
    return [word for item in values for word in (name, shlex.quote(item))]


# --- messages ---------------------------------------------------------------------------------------


def with_option_names(message: str) -> str:
    """Put the options' names, as one would type them, in place of the fields' names in a message."""
    return _field_names().sub(_typed_name, message)


@cache
def _field_names() -> re.Pattern[str]:
    """Match fields where a finding starts and, if the name cannot be an ordinary word, anywhere else."""
    names = sorted(RunArguments.model_fields, key=len, reverse=True)
    anywhere = "|".join(name for name in names if "_" in name)
    return re.compile(
        rf"(?:(?:^|(?<=; ))(?P<start>{'|'.join(names)})(?=[.:])"
        rf"|(?<![\w'\"./-])(?P<within>{anywhere})(?![\w'\"]))"
        r"(?:\.(?P<path>[\w.-]*\w))?"
    )


def _typed_name(match: re.Match[str]) -> str:
    name = option_name(match["start"] or match["within"])
    path = match["path"]
    return name if path is None or path.isdecimal() else f"{name} {path}"
