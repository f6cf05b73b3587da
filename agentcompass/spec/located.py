"""
Mappings and lists that remember where in a file each of their items was written.

They are ordinary ``dict`` and ``list`` objects otherwise, so that merging and moving parts about keeps the
places without a second structure beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import ConfigError, Finding

Key: TypeAlias = str | int
Path: TypeAlias = tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """
    Where something was written.

    Args:
        path: Keys and indices that lead to it in its file.
    """

    file: str
    line: int
    path: Path

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class LocatedMapping(dict[Any, Any]):
    """A mapping that knows the origins of its items, as far as they come from files."""

    __slots__ = ("origins",)

    def __init__(self, items: Mapping[Any, Any] | None = None, origins: Mapping[Any, Origin] | None = None):
        super().__init__(items or {})
        self.origins: dict[Any, Origin] = dict(origins or {})


class LocatedList(list[Any]):
    """A list that knows the origins of its items."""

    __slots__ = ("origins",)

    def __init__(self, items: Sequence[Any], origins: Sequence[Origin | None]):
        super().__init__(items)
        self.origins = list(origins)


def origins_of(value: object) -> dict[Any, Origin]:
    """Return the origins of a mapping's items; none for an ordinary one."""
    return value.origins if isinstance(value, LocatedMapping) else {}


def merged(below: object, above: object) -> Any:
    """
    Lay one value over another: mappings merge, anything else replaces.

    A mapping whose ``id`` differs from that below it replaces it: the parameters of one component mean
    nothing to another. A component may be its id alone, as text.
    """
    below, above = _sections(below, above)
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    if "id" in below and "id" in above and below["id"] != above["id"]:
        return above
    result = LocatedMapping(below, origins_of(below))
    for name, value in above.items():
        result[name] = merged(below[name], value) if name in below else value
    result.origins |= origins_of(above)
    return result


def _sections(below: object, above: object) -> tuple[object, object]:
    """Write out a component's id where the other side has parameters."""
    if isinstance(below, Mapping) and "id" in below and isinstance(above, str):
        return below, {"id": above}
    if isinstance(below, str) and isinstance(above, Mapping):
        return {"id": below}, above
    return below, above


def find_origin(tree: object, path: Path) -> tuple[Origin, Path] | None:
    """Return the origin of the innermost item on the way along ``path``, and what of the path is left."""
    found: tuple[Origin, Path] | None = None
    for depth, (container, key) in enumerate(_steps(tree, path), start=1):
        origin = _own_origin(container, key)
        if origin is not None:
            found = origin, path[depth:]
    return found


def _steps(tree: object, path: Path) -> Iterator[tuple[object, Key]]:
    for key in path:
        name = _as_written(tree, key)
        yield tree, name
        match tree:
            case Mapping() if name in tree:
                tree = tree[name]
            case list() if isinstance(name, int) and name < len(tree):
                tree = tree[name]
            case _:
                return


def _as_written(container: object, key: Key) -> Key:
    """Undo what a prefix does to the key: a model's ``base_url`` is its ``model_base_url``."""
    if isinstance(container, Mapping) and key not in container and isinstance(key, str):
        bare = key.removeprefix("model_")
        return bare if bare in container else key
    return key


def _own_origin(container: object, key: Key) -> Origin | None:
    match container:
        case LocatedMapping():
            return container.origins.get(key)
        case LocatedList() if isinstance(key, int) and key < len(container.origins):
            return container.origins[key]
    return None


def located(error: ConfigError, tree: object, *, prefix: Path = ()) -> list[str]:
    """
    Say each finding of an error with file, line and path as they were written.

    Args:
        tree: What was validated.
        prefix: Leads from the tree to what the error is about.
    """
    findings = error.findings or (Finding((), str(error)),)
    return [_located(finding, tree, prefix) for finding in findings]


def _located(finding: Finding, tree: object, prefix: Path) -> str:
    path = (*prefix, *finding.path)
    found = find_origin(tree, path)
    if found is None:
        return str(Finding(path, finding.text))
    origin, left = found
    return f"{origin}: {Finding((*origin.path, *left), finding.text)}"
