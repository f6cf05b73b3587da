"""The combinations of a ``matrix``: benchmarks x harnesses x models x environments, as named requests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from pydantic import Field

from ..errors import ConfigError, Finding, nearest
from .located import LocatedList, LocatedMapping, Origin, origins_of
from .options import Options

Entry: TypeAlias = str | dict[str, Any]
Axis: TypeAlias = list[Entry] | dict[str, Entry]

AXES = {"benchmarks": "benchmark", "harnesses": "harness", "models": "model", "environments": "environment"}
"""The axes of a matrix, and the section of a request that each one fills."""


class Matrix(Options):
    """
    Every combination of its axes is one request.

    An axis is a list of components, or a mapping of labels to components where one id stands in it twice.
    """

    benchmarks: Axis = Field(default=[])
    """Benchmarks; none: that of the defaults."""
    harnesses: Axis = Field(default=[])
    """Harnesses; none: that of the defaults."""
    models: Axis = Field(default=[])
    """Models; none: that of the defaults."""
    environments: Axis = Field(default=[])
    """Environments; none: that of the defaults."""
    exclude: list[dict[str, str | list[str]]] = Field(default=[])
    """Combinations to leave out: labels, or lists of them, by section, e.g. {"model": "a"}."""
    include: list[dict[str, Any]] = Field(default=[])
    """Requests to add, each with a name."""


def expanded(matrix: Mapping[str, Any]) -> list[LocatedMapping]:
    """
    Return the requests of a matrix that has the right shape, without defaults.

    Raises:
        ConfigError: A label is used twice or does not exist, or nothing is left.
    """
    axes = {
        section: _labelled(name, matrix[name], origins_of(matrix).get(name))
        for name, section in AXES.items()
        if matrix.get(name)
    }
    _check_exclusions(matrix.get("exclude", []), axes)
    combinations = (dict(zip(axes, labels, strict=True)) for labels in itertools.product(*axes.values()))
    requests = [
        _request(combination, axes)
        for combination in combinations
        if combination and not any(_excludes(one, combination) for one in matrix.get("exclude", []))
    ]
    requests += [LocatedMapping(one, origins_of(one)) for one in matrix.get("include", [])]
    if not requests:
        raise _wrong((), "makes no request; give it an axis, or leave it out")
    return requests


_Labelled: TypeAlias = dict[str, tuple[Entry, Origin | None]]


def _labelled(axis: str, entries: Axis, origin: Origin | None) -> _Labelled:
    if isinstance(entries, Mapping):
        origins = origins_of(entries)
        return {str(label): (entry, origins.get(label, origin)) for label, entry in entries.items()}
    places = entries.origins if isinstance(entries, LocatedList) else [origin] * len(entries)
    result: _Labelled = {}
    for index, (entry, place) in enumerate(zip(entries, places, strict=True)):
        label = entry if isinstance(entry, str) else entry.get("id")
        if label is None:
            raise _wrong((axis, index), "needs an id")
        if label in result:
            raise _wrong(
                (axis, index),
                f"{label!r} is there twice; write the axis as a mapping of labels to components",
            )
        result[str(label)] = (entry, place)
    return result


def _check_exclusions(exclusions: list[Mapping[str, Any]], axes: Mapping[str, _Labelled]) -> None:
    for index, exclusion in enumerate(exclusions):
        for section, labels in exclusion.items():
            if section not in axes:
                raise _wrong(("exclude", index, section), f"no such axis (there are: {', '.join(axes)})")
            for label in _as_list(labels):
                if label not in axes[section]:
                    known = ", ".join(axes[section])
                    hint = nearest(label, axes[section])
                    raise _wrong(
                        ("exclude", index, section), f"no such label {label!r}{hint} (there are: {known})"
                    )


def _excludes(exclusion: Mapping[str, Any], combination: Mapping[str, str]) -> bool:
    return all(combination[section] in _as_list(labels) for section, labels in exclusion.items())


def _as_list(labels: str | list[str]) -> list[str]:
    return [labels] if isinstance(labels, str) else labels


def _request(combination: Mapping[str, str], axes: Mapping[str, _Labelled]) -> LocatedMapping:
    request = LocatedMapping({"name": "-".join(_distinctive(combination, axes))})
    for section, label in combination.items():
        entry, origin = axes[section][label]
        request[section] = {"id": entry} if isinstance(entry, str) else entry
        if origin is not None:
            request.origins[section] = request.origins["name"] = origin
    return request


def _distinctive(combination: Mapping[str, str], axes: Mapping[str, _Labelled]) -> Iterator[str]:
    """Yield what tells a combination from the others: its labels on axes of several; all if there is none."""
    several = [label for section, label in combination.items() if len(axes[section]) > 1]
    yield from several or combination.values()


def _wrong(path: tuple[str | int, ...], text: str) -> ConfigError:
    finding = Finding(("matrix", *path), text)
    return ConfigError(str(finding), findings=[finding])
