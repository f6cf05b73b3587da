"""The package ``mini-swe-agent``: imported on first use, kept from reading and writing a person's files."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from ...errors import ConfigError

_PACKAGED = "swebench.yaml"
_PACKAGED_WORKDIR = "/testbed"
_PACKAGED_START_UP = "/root/.bashrc"
_SECTIONS = ("agent", "environment", "model")
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """
    The sections of a configuration of mini-swe-agent.

    Args:
        own_cost_limit: The one that a person has set, not the packaged one; 0 for none.
    """

    agent: Mapping[str, Any]
    environment: Mapping[str, Any]
    model: Mapping[str, Any]
    own_cost_limit: float = 0.0

    @property
    def interpreter(self) -> list[str]:
        """What a command is an argument of."""
        return [str(part) for part in self.environment.get("interpreter", ["bash", "-c"])]

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of commands."""
        return {str(name): str(value) for name, value in self.environment.get("env", {}).items()}

    @property
    def templates(self) -> dict[str, str]:
        """How observations and format errors are told."""
        return {
            "observation_template": str(self.model.get("observation_template", "{{ output.output }}")),
            "format_error_template": str(self.model.get("format_error_template", "{{ error }}")),
        }

    def at(self, workdir: str) -> AgentSettings:
        """
        Return settings for a work directory.

        The packaged ones are for the images of SWE-bench. Elsewhere the prompts must speak of another
        directory, and the shell must not read the start-up file in which those images select an environment.
        """
        if workdir == _PACKAGED_WORKDIR:
            return self
        texts = {
            name: value.replace(_PACKAGED_WORKDIR, workdir) if isinstance(value, str) else value
            for name, value in self.agent.items()
        }
        variables = dict(self.environment.get("env", {}))
        if variables.get("BASH_ENV") == _PACKAGED_START_UP:
            del variables["BASH_ENV"]
        return replace(self, agent=texts, environment={**self.environment, "env": variables})


def load_settings(config: Path | None, *, agent: Mapping[str, Any]) -> AgentSettings:
    """
    Read the packaged configuration, and lay a person's own over it.

    Args:
        config: A file of theirs.
        agent: What goes over its section ``agent``.

    Raises:
        ConfigError: The package is not installed, or a file is no such configuration.
    """
    package = Path(str(_import("minisweagent").__file__)).parent
    packaged = _read(package / "config" / "benchmarks" / _PACKAGED)
    own = _merged(_read(config) if config else {}, {"agent": dict(agent)})
    merged = _merged(packaged, own)
    limit = own["agent"].get("cost_limit", 0)
    settings = AgentSettings(
        agent=merged["agent"],
        environment=merged.get("environment", {}),
        model=merged.get("model", {}),
        own_cost_limit=float(limit),
    )
    for name in ("system_template", "instance_template"):
        if not isinstance(settings.agent.get(name), str):
            raise ConfigError(f"harness_params.config: agent.{name} must be a text")
    return settings


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"harness_params.config: cannot read {str(path)!r}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"harness_params.config: {str(path)!r} is no YAML: {error}") from error
    if not isinstance(content, dict) or not all(
        isinstance(content.get(section, {}), dict) for section in _SECTIONS
    ):
        raise ConfigError(
            f"harness_params.config: {str(path)!r} must have sections of {', '.join(_SECTIONS)}"
        )
    return content


def _merged(base: Any, over: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return {**base, **{name: _merged(base.get(name), value) for name, value in over.items()}}


def new_agent(model: object, environment: object, settings: Mapping[str, Any]) -> Any:
    """Return an agent of the package."""
    return _import("minisweagent.agents.default").DefaultAgent(model, environment, **settings)


def exceptions() -> Any:
    """Return the module with which the loop is told what happened."""
    return _import("minisweagent.exceptions")


def tool_calls() -> Any:
    """Return the module that parses tool calls and renders observations."""
    return _import("minisweagent.models.utils.actions_toolcall")


def bash_tool() -> dict[str, Any]:
    """Return name, description and parameters of the one tool."""
    function: dict[str, Any] = tool_calls().BASH_TOOL["function"]
    return function


@cache
def _import(name: str) -> Any:
    try:
        with _lock, _quiet():
            return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"the harness needs mini-swe-agent ({error}): pip install 'agentcompass[mini-swe-agent]'"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """
    Keep the first import to itself.

    It would greet on the terminal, make a folder in the person's home, take variables from a file there, and
    print its log lines ever after.
    """
    with tempfile.TemporaryDirectory() as nowhere:
        wanted = {"MSWEA_SILENT_STARTUP": "1", "MSWEA_GLOBAL_CONFIG_DIR": nowhere}
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
    logging.getLogger("minisweagent").handlers.clear()
