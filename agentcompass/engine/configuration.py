"""Arguments and specifications with what the configuration files hold underneath."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..spec.config_files import as_document, read_config, with_arguments
from ..spec.documents import read_document
from ..spec.options import RunArguments
from ..spec.orchestration import OrchestrationSpec
from ..spec.validation import validate


def run_arguments(values: dict[str, Any]) -> RunArguments:
    """
    Validate the arguments of a run, with those of the configuration files underneath; blocks.

    Raises:
        ConfigError: Lists every finding.
    """
    return validate(RunArguments, with_arguments(read_config(_named_files(values)), values))


def _named_files(values: Mapping[str, Any]) -> list[Path | str]:
    named = values.get("config") or []
    return [named] if isinstance(named, str | Path) else list(named)


def configured(spec: OrchestrationSpec) -> OrchestrationSpec:
    """
    Return a specification with what the configuration files hold underneath; blocks.

    Raises:
        ConfigError: A file is wrong.
    """
    below = read_config()
    return OrchestrationSpec.configured(spec, as_document(below)) if below else spec


def read_orchestration(
    path: Path | str,
    *,
    config: Sequence[Path | str] = (),
    above: Mapping[str, Any] | None = None,
) -> OrchestrationSpec:
    """
    Read a specification from a YAML or JSON file; blocks.

    Args:
        config: Configuration files that lie underneath, in place of the user's own.
        above: Laid over what the file holds.

    Raises:
        ConfigError: Lists every finding with file, line, path, value and what is allowed.
    """
    below = as_document(read_config(config))
    return OrchestrationSpec.configured(read_document(path), below, above=above or {})
