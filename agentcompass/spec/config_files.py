"""
Files with defaults for the arguments of a run.

They are read only where somebody named them: explicitly, by the variable ``AGENTCOMPASS_CONFIG``, or as the
user's own file in ``~/.config``. The first of these that there is holds alone. Nothing is ever picked up from
the current folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigError, Finding
from .documents import read_document
from .located import LocatedMapping, located, merged, origins_of
from .options import ExecutionOptions, ModelOptions, OutputOptions, RunArguments, RuntimeOptions
from .validation import validate

VARIABLE = "AGENTCOMPASS_CONFIG"
LOADS_CODE = ("plugins", "recipe_dirs", "auto_install_dependencies")
"""Options that bring code into this process; no file sets them that was not named in the call."""
_KINDS = ("benchmark", "harness", "environment", "model")


def user_config_path(environ: Mapping[str, str]) -> Path:
    """Return where the user's own file would be."""
    base = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".config"
    return Path(base) / "agentcompass" / "config.yaml"


def config_paths(
    named: Sequence[Path | str], *, environ: Mapping[str, str] | None = None
) -> tuple[list[Path], bool]:
    """Return the files that hold, lowest first, and whether the call itself named them."""
    environ = os.environ if environ is None else environ
    if named:
        return [Path(path) for path in named], True
    if VARIABLE in environ:
        return [Path(path) for path in environ[VARIABLE].split(os.pathsep) if path], False
    path = user_config_path(environ)
    return [path] if path.is_file() else [], False


def read_config(
    named: Sequence[Path | str] = (), *, environ: Mapping[str, str] | None = None
) -> LocatedMapping:
    """
    Read the files that hold; blocks.

    Returns:
        Flat arguments as those of ``run_evaluation``.

    Raises:
        ConfigError: Lists every finding with file, line, path, value and what is allowed.
    """
    paths, explicit = config_paths(named, environ=environ)
    whole = LocatedMapping()
    for path in paths:
        values = read_document(path, environ=environ)
        _check(values, explicit=explicit)
        whole = with_arguments(whole, values)
    return whole


def _check(values: LocatedMapping, *, explicit: bool) -> None:
    refused = ("config", *(() if explicit else LOADS_CODE))
    findings = [
        Finding((name,), _REFUSALS.get(name, "loads code, so name the file in the call, or set it there"))
        for name in refused
        if name in values
    ]
    problems = located(ConfigError("", findings=findings), values) if findings else []
    try:
        validate(RunArguments, {"benchmark": "", "harness": "", **values})
    except ConfigError as error:
        problems += located(error, values)
    if problems:
        raise ConfigError("\n".join(problems))


_REFUSALS = {"config": "a file names those below it with extends"}


def with_arguments(below: Mapping[Any, Any], above: Mapping[Any, Any]) -> LocatedMapping:
    """Lay arguments over others; parameters of one component are not those of another."""
    kept = LocatedMapping(below, origins_of(below))
    for kind in _KINDS:
        if kind in below and kind in above and below[kind] != above[kind]:
            for name in [name for name in kept if str(name).startswith(f"{kind}_")]:
                del kept[name]
    result = merged(kept, above)
    assert isinstance(result, LocatedMapping)
    return result


def as_document(arguments: LocatedMapping) -> LocatedMapping:
    """Turn flat arguments into the defaults and the common part of an orchestration."""
    defaults = LocatedMapping()
    for kind in ("benchmark", "harness", "environment"):
        _put(defaults, kind, _component(arguments, kind))
    model = _part(arguments, ModelOptions.model_fields)
    if arguments.get("model"):
        model["id"], model.origins["id"] = arguments["model"], arguments.origins["model"]
    _put(defaults, "model", model)
    _put(defaults, "execution", _part(arguments, ExecutionOptions.model_fields))
    _put(defaults, "output", _part(arguments, OutputOptions.model_fields))
    document = _part(arguments, ["task_concurrency"])
    _put(document, "defaults", defaults)
    _put(document, "runtime", _part(arguments, RuntimeOptions.model_fields))
    return document


def _put(target: LocatedMapping, name: str, value: LocatedMapping) -> None:
    if value:
        target[name] = value


def _part(arguments: LocatedMapping, names: Iterable[str]) -> LocatedMapping:
    names = [name for name in names if name in arguments]
    return LocatedMapping(
        {name: arguments[name] for name in names}, {name: arguments.origins[name] for name in names}
    )


def _component(arguments: LocatedMapping, kind: str) -> LocatedMapping:
    params = arguments.get(f"{kind}_params", {})
    section = LocatedMapping(params, origins_of(params))
    if kind in arguments:
        section["id"], section.origins["id"] = arguments[kind], arguments.origins[kind]
    return section
