"""
Read the YAML and JSON files that people write: ``extends``, ``${VARIABLE}`` and the place of every item.

YAML is read with the value rules of JSON: only ``true`` and ``false`` are booleans, numbers are decimal, and
anything else that is not quoted is text, also ``yes``, ``007`` and ``2026-01-31``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from .located import Key, LocatedList, LocatedMapping, Origin, merged
from .located import Path as KeyPath

if TYPE_CHECKING:
    import yaml

_EXTENDS = "extends"
_REFERENCE = re.compile(r"\$?\$\{([^}]*)(\}?)")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def read_document(path: Path | str, *, environ: Mapping[str, str] | None = None) -> LocatedMapping:
    """
    Read a file, with what it extends underneath, and put in the environment variables that it names.

    Args:
        environ: The variables; those of this process by default.

    Raises:
        ConfigError: A file cannot be read or is not a mapping, or variables are missing; names every place.
    """
    return _read(Path(path), os.environ if environ is None else environ, ())


def _read(path: Path, environ: Mapping[str, str], extending: tuple[Path, ...]) -> LocatedMapping:
    if path in extending:
        chain = " -> ".join(map(str, (*extending, path)))
        raise ConfigError(f"{path}: extends itself ({chain})")
    document = _parse(path)
    problems: list[str] = []
    document = _expanded(document, environ, problems)
    if problems:
        raise ConfigError("\n".join(problems))
    own = LocatedMapping({name: value for name, value in document.items() if name != _EXTENDS})
    own.origins = document.origins
    below: Any = LocatedMapping()
    for name in _extended(path, document):
        below = merged(below, _read(path.parent / name, environ, (*extending, path)))
    result = merged(below, own)
    assert isinstance(result, LocatedMapping)
    return result


def _extended(path: Path, document: LocatedMapping) -> list[str]:
    names = document.get(_EXTENDS, [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f"{document.origins[_EXTENDS]}: extends: needs the path of a file, or a list of them"
        )
    return names


# --- parsing ----------------------------------------------------------------------------------------


def _parse(path: Path) -> LocatedMapping:
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text: {error}") from error
    if path.suffix == ".json":
        _check_json(path, text)
        text = text.replace("\t", " ")  # outside of its strings, where JSON permits none
    return _compose(path, text)


def _check_json(path: Path, text: str) -> None:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error


def _compose(path: Path, text: str) -> LocatedMapping:
    import yaml

    loader = _loader_class()(text)
    try:
        node = loader.get_single_node()
        value = _Builder(str(path), loader).build(node, ()) if node is not None else LocatedMapping()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None
    finally:
        loader.dispose()
    if not isinstance(value, LocatedMapping):
        raise ConfigError(
            f"{path}:1: must hold a mapping, not {type(value).__name__.removeprefix('Located').lower()}"
        )
    return value


def _loader_class() -> type[yaml.SafeLoader]:
    import yaml

    class Loader(yaml.SafeLoader):
        """Knows the scalars of JSON and nothing else."""

        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # PyYAML's own declaration

    for tag, pattern, first in (
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("int", r"-?(?:0|[1-9][0-9]*)", "-0123456789"),
        ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", "-0123456789"),
        ("merge", r"<<", "<"),
    ):
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"), list(first))
    return Loader


class _Builder:
    """Turns YAML nodes into values with their places."""

    def __init__(self, file: str, loader: yaml.SafeLoader) -> None:
        self._file = file
        self._loader = loader
        self._open: set[int] = set()
        self._flat: set[int] = set()

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        import yaml

        if id(node) in self._open:
            raise ConfigError(f"{self._file}:{node.start_mark.line + 1}: contains itself")
        self._open.add(id(node))
        try:
            match node:
                case yaml.MappingNode():
                    return self._mapping(node, path)
                case yaml.SequenceNode():
                    return self._list(node, path)
            return self._loader.construct_object(node)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> LocatedMapping:
        if id(node) not in self._flat:  # an anchor's node is built once for each alias
            self._refuse_twins(node)
            self._loader.flatten_mapping(node)
            self._flat.add(id(node))
        result = LocatedMapping()
        for key_node, value_node in node.value:
            key = self._loader.construct_object(key_node)
            if not isinstance(key, str | int):
                raise ConfigError(f"{self._place(key_node)}: keys must be text, got {key!r}")
            result[key] = self.build(value_node, (*path, key))
            result.origins[key] = self._origin(key_node, (*path, key))
        return result

    def _refuse_twins(self, node: yaml.MappingNode) -> None:
        seen: dict[str, yaml.Node] = {}
        for key_node, _ in node.value:
            name = str(key_node.value)
            if key_node.tag.endswith(":merge"):
                continue
            if name in seen:
                first = seen[name].start_mark.line + 1
                raise ConfigError(f"{self._place(key_node)}: {name!r} is there already, in line {first}")
            seen[name] = key_node

    def _list(self, node: yaml.SequenceNode, path: KeyPath) -> LocatedList:
        places = [self._origin(item, (*path, index)) for index, item in enumerate(node.value)]
        values = [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        return LocatedList(values, places)

    def _origin(self, node: yaml.Node, path: KeyPath) -> Origin:
        return Origin(self._file, node.start_mark.line + 1, path)

    def _place(self, node: yaml.Node) -> str:
        return f"{self._file}:{node.start_mark.line + 1}"


# --- environment variables --------------------------------------------------------------------------


def _expanded(value: LocatedMapping, environ: Mapping[str, str], problems: list[str]) -> LocatedMapping:
    """Put in the variables of all texts inside; missing ones are added to the problems."""
    result = LocatedMapping(origins=value.origins)
    for key, item in value.items():
        result[key] = _expanded_item(item, value.origins[key], environ, problems)
    return result


def _expanded_item(item: Any, origin: Origin, environ: Mapping[str, str], problems: list[str]) -> Any:
    match item:
        case LocatedMapping():
            return _expanded(item, environ, problems)
        case LocatedList():
            pairs = zip(item, item.origins, strict=True)
            values = [_expanded_item(one, place or origin, environ, problems) for one, place in pairs]
            return LocatedList(values, item.origins)
        case str() if "${" in item:
            text, missing = _substituted(item, environ)
            problems.extend(f"{origin}: {_dotted(origin.path)}: {problem}" for problem in missing)
            return text
    return item


def _dotted(path: tuple[Key, ...]) -> str:
    return ".".join(map(str, path))


def _substituted(text: str, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    problems: list[str] = []

    def value(match: re.Match[str]) -> str:
        if match[0].startswith("$$"):
            return match[0][1:]
        named = _VARIABLE.fullmatch(match[1])
        if named is None or not match[2]:
            problems.append(
                f"{match[0]!r} is not ${{NAME}} or ${{NAME:-default}}; write $${{ for a literal ${{"
            )
            return ""
        name, default = named[1], named[2]
        if environ.get(name) or (name in environ and default is None):
            return environ[name]
        if default is None:
            problems.append(
                f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
            )
        return default or ""

    return _REFERENCE.sub(value, text), problems


def leaves(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """Yield what is neither a mapping nor a list, with the way there."""
    match value:
        case Mapping():
            for key, item in value.items():
                yield from leaves(item, (*path, key))
        case list():
            for index, item in enumerate(value):
                yield from leaves(item, (*path, index))
        case _:
            yield path, value
