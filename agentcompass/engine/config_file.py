"""Read the file that ``config_path`` names: defaults for the arguments of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError


def with_config_file(values: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the values with those of their ``config_path`` underneath; mappings merge, lists replace.

    Raises:
        ConfigError: The file cannot be read or is not a mapping.
    """
    path = values.get("config_path")
    return dict(values) if path is None else _merged(_read(Path(path)), values)


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"config_path: cannot read {str(path)!r}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"config_path: {str(path)!r} is not YAML or JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"config_path: {str(path)!r} must hold a mapping of arguments")
    return content


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[name] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return merged
