"""Turn ``defaults``, ``requests`` and ``matrix``, as they were written, into whole requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from ..errors import ConfigError, Finding
from .located import Key, LocatedList, LocatedMapping, Origin, merged, origins_of
from .matrix import Matrix, expanded
from .validation import validate

COMPONENTS = ("benchmark", "harness", "environment", "model")
SECTIONS = (*COMPONENTS, "execution", "runtime", "output")
"""What a request, and therefore its defaults, consists of besides its name."""


def with_requests(values: Mapping[Any, Any]) -> LocatedMapping:
    """
    Lay every request over the defaults, those of the matrix included.

    What does not have the right shape is left as it is, for the model to complain about.

    Raises:
        ConfigError: The matrix is wrong.
    """
    whole = LocatedMapping(values, origins_of(values))
    defaults, requests = values.get("defaults") or {}, values.get("requests", [])
    if not isinstance(defaults, Mapping) or not isinstance(requests, list | tuple):
        return whole
    _check_defaults(defaults)
    own = [_as_written(request) for request in requests]
    places: list[Origin | None] = [None] * len(own)
    if isinstance(requests, LocatedList):
        places = list(requests.origins)
    if (matrix := values.get("matrix")) is not None:
        added = _of_matrix(matrix)
        own += added
        places += [request.origins.get("name") for request in added]
    if own:
        whole["requests"] = LocatedList([_over(defaults, request) for request in own], places)
        whole.pop("defaults", None)
        whole.pop("matrix", None)
    return whole


def _of_matrix(matrix: Mapping[str, Any] | Matrix) -> list[LocatedMapping]:
    if isinstance(matrix, Matrix):
        return expanded(matrix.model_dump())
    validate(Matrix, matrix, what="matrix")
    return expanded(matrix)


def _check_defaults(defaults: Mapping[Any, Any]) -> None:
    """Refuse sections that do not exist; all else about defaults shows in the requests."""
    unknown = [name for name in defaults if name not in SECTIONS]
    if unknown:
        known = ", ".join(SECTIONS)
        findings = [Finding(("defaults", name), f"no such section (known: {known})") for name in unknown]
        raise ConfigError("; ".join(map(str, findings)), findings=findings)


def _as_written(request: object) -> Any:
    """Return the part of a request that was given, as plain data."""
    return request.model_dump(exclude_unset=True) if isinstance(request, BaseModel) else request


def _over(defaults: Mapping[Any, Any], request: object) -> object:
    if not isinstance(request, Mapping):
        return request
    whole = merged(_in_full(defaults), _in_full(request))
    if "model" not in request and isinstance(whole.get("model"), Mapping) and "id" not in whole["model"]:
        del whole["model"]  # defaults for whatever models there are; this request has none
    return whole


def _in_full(sections: Mapping[Any, Any]) -> LocatedMapping:
    """Write out ids that stand alone, and options of the model without their prefix: then all merges."""
    result = LocatedMapping(sections, origins_of(sections))
    for kind in COMPONENTS:
        if isinstance(result.get(kind), str):
            result[kind] = {"id": result[kind]}
    model = sections.get("model")
    if isinstance(model, Mapping):
        origins = origins_of(model)
        result["model"] = LocatedMapping(
            {_bare(name): value for name, value in model.items()},
            {_bare(name): origin for name, origin in origins.items()},
        )
    return result


def _bare(name: Key) -> Key:
    return name.removeprefix("model_") if isinstance(name, str) else name
