"""The optional dependencies of our own components: which are missing, and, if asked, their installation."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, requires, version

from ..errors import ConfigError
from ..progress.output import Output
from ..spec.orchestration import OrchestrationSpec
from .registry import Kind, find_component

_DISTRIBUTION = "agentcompass"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")
_OUTPUT_SHOWN = 2000


def install_extras(spec: OrchestrationSpec) -> None:
    """
    Make sure that the declared optional dependencies of a specification's components are there; blocks.

    Raises:
        ConfigError: Some are missing and may not or cannot be installed; has the command that does.
    """
    missing = {
        requirement: component
        for component, extra in _extras(spec)
        for requirement in missing_requirements(extra)
    }
    if not missing:
        return
    command = install_command(list(missing))
    if not spec.runtime.auto_install_dependencies:
        names = ", ".join(dict.fromkeys(missing.values()))
        raise ConfigError(
            f"{names} needs packages that are not installed; run: {shlex.join(command)}\n"
            "(or set auto_install_dependencies)"
        )
    install(command)


def _extras(spec: OrchestrationSpec) -> Iterator[tuple[str, str]]:
    """Yield the components of ours that declare an extra, and that extra."""
    kinds: tuple[Kind, ...] = ("benchmark", "harness", "environment")
    wanted = {(kind, getattr(request, kind).id) for request in spec.requests for kind in kinds}
    for kind, component_id in sorted(wanted):
        try:
            cls = find_component(kind, component_id).cls
        except ConfigError:
            continue  # told with all else that is wrong
        extra = getattr(cls, "extra", "")
        if extra and cls.__module__.startswith(f"{_DISTRIBUTION}."):
            yield f"{kind} {component_id!r}", extra


def declared_requirements(extra: str) -> list[str]:
    """Return the requirements of one of our extras, as pip takes them."""
    found = []
    for line in requires(_DISTRIBUTION) or []:
        requirement, _, marker = line.partition(";")
        named = _EXTRA.search(marker)
        if named is not None and named[1] == extra:
            found.append(requirement.strip())
    return found


def declared_extras() -> list[str]:
    """Return the names of our extras."""
    names = (named[1] for line in requires(_DISTRIBUTION) or [] if (named := _EXTRA.search(line)))
    return sorted(set(names))


def missing_requirements(extra: str) -> list[str]:
    """Return those requirements of an extra whose distribution is not installed at all."""
    return [requirement for requirement in declared_requirements(extra) if not _is_installed(requirement)]


def _is_installed(requirement: str) -> bool:
    name = _NAME.match(requirement)
    assert name is not None  # our own metadata
    try:
        version(name[0])
    except PackageNotFoundError:
        return False
    return True


def install_command(requirements: Sequence[str]) -> list[str]:
    """
    Return the command that installs into the running environment, with its own pip or with uv.

    Raises:
        ConfigError: There is neither.
    """
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", *requirements]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable, *requirements]
    raise ConfigError(
        f"{', '.join(requirements)} must be installed, but {sys.executable} has no pip and there is no uv"
    )


def install(command: Sequence[str]) -> None:
    """
    Run a command that installs, and say so; blocks.

    Raises:
        ConfigError: It failed; has the end of its output.
    """
    Output(sys.stderr).write(f"installing: {shlex.join(command)}\n")
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-_OUTPUT_SHOWN:]
        raise ConfigError(f"{shlex.join(command)} failed with exit code {done.returncode}:\n{said}")
    importlib.invalidate_caches()
