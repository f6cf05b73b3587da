"""Recipes: where they come from, in which order they apply, and what they may change of a plan."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import CompassError, ConfigError, UnknownComponentError
from ..protocols import Plan, Recipe
from ..records import RecipeRecord
from .registry import Component, all_components, registering
from .source_files import hash_of, load_source, package_files, source_hash

_FIXED = ("benchmark", "harness", "environment", "task")


class RecipeError(CompassError):
    """A recipe broke, or returned what is not a changed plan; its task is missing data."""


@dataclass(frozen=True, slots=True)
class NamedRecipe:
    """A recipe with what identifies it."""

    id: str
    source: str
    recipe: Recipe

    def record(self) -> RecipeRecord:
        """Say which recipe it is, for the record of a run; reads its source."""
        return RecipeRecord(
            id=self.id,
            source=self.source,
            priority=self.recipe.priority,
            hash=source_hash(type(self.recipe)),
        )


def find_recipes(recipe_dirs: Sequence[Path], *, enabled: Sequence[str] | None) -> tuple[NamedRecipe, ...]:
    """
    Return the recipes that may apply, by priority, then id.

    Args:
        recipe_dirs: Trusted folders of packages whose recipes there are besides the registered ones.
        enabled: Their ids; None for all.

    Raises:
        ConfigError: A package cannot be loaded, an id is used twice or does not exist.
    """
    components = [*all_components("recipe"), *_of_dirs(recipe_dirs)]
    by_id: dict[str, Component] = {}
    for component in components:
        twin = by_id.setdefault(component.id, component)
        if twin is not component:
            raise ConfigError(
                f"recipe {component.id!r} is there twice: {twin.source} and {component.source}; rename one"
            )
    for name in enabled or ():
        if name not in by_id:
            raise UnknownComponentError("recipe", name, by_id)
    chosen = [by_id[name] for name in (by_id if enabled is None else dict.fromkeys(enabled))]
    built = [NamedRecipe(component.id, component.source, component.build({})[0]) for component in chosen]
    return tuple(sorted(built, key=lambda named: (named.recipe.priority, named.id)))


def _of_dirs(recipe_dirs: Sequence[Path]) -> list[Component]:
    return [component for folder in recipe_dirs for component in _of_dir(Path(folder))]


def _of_dir(folder: Path) -> list[Component]:
    if not folder.is_dir():
        raise ConfigError(f"recipe_dirs: {str(folder)!r} is not a folder")
    own = folder / "__init__.py"
    packages = [own] if own.is_file() else sorted(folder.glob("*/__init__.py"))
    if not packages:
        raise ConfigError(
            f"recipe_dirs: there is no package in {str(folder)!r}; "
            "a recipe package is a folder with an __init__.py"
        )
    return [component for package in packages for component in _of_package(package.resolve())]


def _of_package(package: Path) -> list[Component]:
    """Load a package for this run only: what it registers is taken out of the registry again."""
    folder = package.parent
    readable = re.sub(r"\W", "_", folder.name)
    content = hash_of(package_files(folder), salt=str(folder))
    name = f"agentcompass_recipe_dir_{readable}_{content}"
    try:
        with registering() as registered:
            load_source(package, name)
    except Exception as error:  # whatever a user's package raises is a mistake in the input
        raise ConfigError(
            f"recipe_dirs: {str(package)!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    recipes = [component for component in registered(name) if component.kind == "recipe"]
    others = [component for component in registered(name) if component.kind != "recipe"]
    if others:
        raise ConfigError(
            f"recipe_dirs: {str(package)!r} registers the {others[0].kind} {others[0].id!r}; "
            "a recipe package may hold recipes only, use plugins for the rest"
        )
    if not recipes:
        raise ConfigError(f"recipe_dirs: {str(package)!r} registers no recipe")
    return recipes


def apply_recipes(plan: Plan, recipes: Sequence[NamedRecipe]) -> Plan:
    """
    Return the plan as adapted by every recipe that matches it.

    Raises:
        RecipeError: One broke, or changed more than how the task is run.
    """
    for named in recipes:
        try:
            changed = named.recipe.apply(plan) if named.recipe.matches(plan) else plan
        except Exception as error:  # it is the recipe's failure, named
            raise RecipeError(f"recipe {named.id!r} raised {type(error).__name__}: {error}") from error
        plan = _checked(named, plan, changed)
    return plan


def _checked(named: NamedRecipe, before: Plan, after: object) -> Plan:
    if not isinstance(after, Plan):
        raise RecipeError(f"recipe {named.id!r} returned a {type(after).__name__}, not a Plan")
    changed = [name for name in _FIXED if getattr(before, name) != getattr(after, name)]
    if changed:
        raise RecipeError(
            f"recipe {named.id!r} changed {' and '.join(changed)}; it may only change how the task is run"
        )
    return after


def matching(named: NamedRecipe, plan: Plan) -> bool:
    """Whether a recipe applies to a plan; one that breaks is found out when the task runs."""
    try:
        return bool(named.recipe.matches(plan))
    except Exception:  # noqa: BLE001  # `apply_recipes` raises it for the task that it concerns
        return False
