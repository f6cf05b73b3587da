"""
Find components by id.

Built-in ones and entry points are imported on first use, so naming one component never imports the
packages that another one needs. Components in a user's own code register through the decorators.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar, cast, get_type_hints

from pydantic import BaseModel, ConfigDict

from ..errors import CompassError, ConfigError, UnknownComponentError
from ..spec.validation import validate
from .source_files import load_source

Kind = Literal["benchmark", "harness", "environment", "recipe"]
ClassT = TypeVar("ClassT", bound=type)

_BUILT_IN: dict[tuple[Kind, str], str] = {
    ("benchmark", "humaneval"): "agentcompass.benchmarks.humaneval:HumanEval",
    ("benchmark", "swebench"): "agentcompass.benchmarks.swebench:SweBench",
    ("benchmark", "swebench_lite"): "agentcompass.benchmarks.swebench:SweBenchLite",
    ("benchmark", "swebench_multilingual"): "agentcompass.benchmarks.swebench:SweBenchMultilingual",
    ("benchmark", "swebench_verified"): "agentcompass.benchmarks.swebench:SweBenchVerified",
    ("benchmark", "jsonl"): "agentcompass.benchmarks.jsonl:Jsonl",
    ("benchmark", "fake"): "agentcompass.benchmarks.fake:FakeBenchmark",
    ("harness", "chat"): "agentcompass.harnesses.chat:ChatHarness",
    ("harness", "command"): "agentcompass.harnesses.command:CommandHarness",
    ("harness", "mini_swe_agent"): "agentcompass.harnesses.mini_swe_agent:MiniSweAgent",
    ("harness", "oracle"): "agentcompass.harnesses.oracle:OracleHarness",
    ("harness", "null"): "agentcompass.harnesses.null:NullHarness",
    ("harness", "forger"): "agentcompass.harnesses.forger:ForgerHarness",
    ("harness", "snoop"): "agentcompass.harnesses.snoop:SnoopHarness",
    ("harness", "replay"): "agentcompass.engine.replay:ReplayHarness",
    ("environment", "local"): "agentcompass.environments.local:LocalEnvironment",
    ("environment", "host_process"): "agentcompass.environments.local:LocalEnvironment",
    ("environment", "docker"): "agentcompass.environments.docker:DockerEnvironment",
}
_ENTRY_POINT_GROUPS: dict[Kind, str] = {
    "benchmark": "agentcompass.benchmarks",
    "harness": "agentcompass.harnesses",
    "environment": "agentcompass.environments",
    "recipe": "agentcompass.recipes",
}


class BrokenComponentError(ConfigError):
    """A component cannot be made; costs the request that needs it."""


class NoParams(BaseModel):
    """For components without parameters."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """
    A registered class.

    Args:
        source: Where it comes from, e.g. ``"package.module:Class"``.
    """

    kind: Kind
    id: str
    source: str
    cls: type

    @property
    def version(self) -> str:
        """Results of different versions of a component are never mixed; ``version`` of the class."""
        return str(getattr(self.cls, "version", "1"))

    @property
    def params_model(self) -> type[BaseModel]:
        """The pydantic model of its parameters: the type of its constructor's ``params``."""
        if not signature(self.cls).parameters:
            return NoParams
        try:
            model = get_type_hints(self.cls.__init__)["params"]  # type: ignore[misc]
        except (KeyError, NameError) as error:
            raise ConfigError(
                f"{self.kind} {self.id!r} ({self.source}): its constructor must take one argument, "
                f"params, annotated with a pydantic model of its module ({error!r})"
            ) from error
        return cast("type[BaseModel]", model)

    def build(self, values: Mapping[str, Any]) -> tuple[Any, BaseModel]:
        """
        Validate the parameters and construct the component.

        Raises:
            ConfigError: A parameter is wrong; the message names ``<kind>_params.<field>``.
            BrokenComponentError: The parameters are right by themselves, but its constructor raised.
        """
        params = validate(self.params_model, values, what=f"{self.kind}_params")
        try:
            return (self.cls() if isinstance(params, NoParams) else self.cls(params)), params
        except CompassError as error:
            raise BrokenComponentError(str(error)) from error
        except Exception as error:  # a component that cannot be made cannot run: the input is wrong
            raise BrokenComponentError(
                f"{self.kind} {self.id!r} cannot be made: {type(error).__name__}: {error}"
            ) from error


# The decorators of a process's modules write here; the lock is for imports from several threads.
_registered: dict[tuple[Kind, str], dict[str, Component]] = {}
_lock = threading.Lock()
_scope_lock = threading.Lock()


def _decorator(kind: Kind) -> Callable[[str], Callable[[ClassT], ClassT]]:
    def register(component_id: str) -> Callable[[ClassT], ClassT]:
        def add(cls: ClassT) -> ClassT:
            component = Component(kind=kind, id=component_id, source=_source(cls), cls=cls)
            with _lock:
                # The same source again is a module imported twice, or a notebook cell run twice.
                _registered.setdefault((kind, component_id), {})[component.source] = component
            return cls

        return add

    register.__name__ = register.__qualname__ = kind
    register.__doc__ = f"Register a class as the {kind} of that id."
    return register


benchmark = _decorator("benchmark")
harness = _decorator("harness")
environment = _decorator("environment")
recipe = _decorator("recipe")


def find_component(kind: Kind, component_id: str) -> Component:
    """
    Return the component of that id; ``source/id`` selects among several of the same id.

    Raises:
        UnknownComponentError: There is none.
        ConfigError: Several sources claim the id, or it cannot be imported.
    """
    candidates = _candidates(kind, component_id)
    if not candidates:
        raise UnknownComponentError(kind, component_id, component_ids(kind))
    if len(candidates) > 1:
        ways = " or ".join(f"{source}/{component_id}" for source in sorted(candidates))
        raise ConfigError(f"{kind} {component_id!r} is registered by several sources; name one: {ways}")
    [load] = candidates.values()
    return load()


def component_ids(kind: Kind) -> list[str]:
    """Return every id of that kind, sorted; of built-in ones and entry points nothing is imported."""
    built_in = {known for known_kind, known in _BUILT_IN if known_kind == kind and known != "fake"}
    with _lock:
        registered = {known for known_kind, known in _registered if known_kind == kind}
    shipped = {component.id for component in _shipped(kind)}
    return sorted(built_in | registered | shipped | {entry.name for entry in _entry_points(kind)})


def all_components(kind: Kind) -> Iterator[Component]:
    """Import and yield every component of that kind, by id."""
    for component_id in component_ids(kind):
        yield from (load() for load in _candidates(kind, component_id).values())


def _candidates(kind: Kind, component_id: str) -> dict[str, Callable[[], Component]]:
    """Return what could be meant, by source."""
    source, _, bare_id = component_id.rpartition("/")
    found: dict[str, Callable[[], Component]] = {}
    if target := _BUILT_IN.get((kind, bare_id)):
        found[target] = lambda: _import_component(kind, bare_id, target)
    for entry in _entry_points(kind):
        if entry.name == bare_id:
            found[entry.value] = lambda entry=entry: _import_component(kind, bare_id, entry.value)  # type: ignore[misc]
    with _lock:
        registered = list(_registered.get((kind, bare_id), {}).values())
    for component in (*_shipped(kind), *registered):
        if component.id == bare_id:
            found[component.source] = lambda component=component: component  # type: ignore[misc]
    if source:
        found = {name: load for name, load in found.items() if name == source}
    return found


@cache
def _entry_points(kind: Kind) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=_ENTRY_POINT_GROUPS[kind]))


def _import_component(kind: Kind, component_id: str, target: str) -> Component:
    module_name, _, class_name = target.partition(":")
    try:
        cls = getattr(importlib.import_module(module_name), class_name)
    except Exception as error:  # whatever a package raises on import, its component cannot be used
        raise ConfigError(
            f"{kind} {component_id!r} cannot be imported from {target}: {type(error).__name__}: {error}"
        ) from error
    return Component(kind=kind, id=component_id, source=target, cls=cls)


def _source(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


@cache
def _shipped(kind: Kind) -> tuple[Component, ...]:
    """Load the recipe packages that come with us: inside the package when installed, else beside it."""
    if kind != "recipe":
        return ()
    package = Path(__file__).parents[1]
    folder = next(path for path in (package / "_recipes", package.parent / "recipes") if path.is_dir())
    modules = [
        load_source(path, f"agentcompass_recipes_{path.parent.name}").__name__
        for path in sorted(folder.glob("*/__init__.py"))
    ]
    with _lock:
        registered = [component for by_source in _registered.values() for component in by_source.values()]
    return tuple(component for component in registered if component.cls.__module__ in modules)


def load_plugins(names: list[str]) -> None:
    """
    Import modules, or ``.py`` files, whose decorators register components.

    Raises:
        ConfigError: One cannot be found or fails to import; nothing has run yet.
    """
    for name in names:
        try:
            _load_file(Path(name)) if name.endswith(".py") else importlib.import_module(name)
        except ConfigError:
            raise
        except Exception as error:  # whatever a user's module raises is a mistake in the input
            raise ConfigError(f"plugin {name!r} cannot be loaded: {type(error).__name__}: {error}") from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"plugin {str(path)!r}: no such file")
    resolved = path.resolve()
    return load_source(resolved, f"{resolved.stem}_{sha256(bytes(resolved)).hexdigest()[:8]}")


# What packages of `recipe_dirs` have registered, by module: such a package is imported once per process.
_scoped: dict[str, list[Component]] = {}


@contextmanager
def registering() -> Iterator[Callable[[str], list[Component]]]:
    """
    Keep what is registered within the block out of the registry.

    Yields:
        Returns the components that a module and its submodules have registered, also in an earlier block.
    """
    with _scope_lock:
        before = {key: dict(by_source) for key, by_source in _registered.items()}
        try:
            yield lambda module: _scoped.get(module, [])
        finally:
            with _lock:
                for key, by_source in _registered.items():
                    for source, component in by_source.items():
                        if before.get(key, {}).get(source) is not component:
                            top = component.cls.__module__.partition(".")[0]
                            _scoped.setdefault(top, []).append(component)
                _registered.clear()
                _registered.update(before)
