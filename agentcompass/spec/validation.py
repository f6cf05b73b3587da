"""Turn pydantic's findings into one ``ConfigError`` that names field, value and way out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ..errors import ConfigError, Finding, nearest

ModelT = TypeVar("ModelT", bound=BaseModel)


def validate(model: type[ModelT], values: Mapping[str, Any], *, what: str = "") -> ModelT:
    """
    Build a model from untrusted values.

    Args:
        what: What the values belong to, as the prefix of every field name in messages.

    Raises:
        ConfigError: Lists every finding at once.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise explained(model, error, what=what) from None


def explained(model: type[BaseModel], error: ValidationError, *, what: str = "") -> ConfigError:
    """Return pydantic's findings about values for a model as one error of ours."""
    details = error.errors(include_url=False, include_context=False)
    findings = [_finding(model, detail, what) for detail in details]
    return ConfigError("; ".join(map(str, findings)), findings=findings)


def _finding(model: type[BaseModel], detail: ErrorDetails, what: str) -> Finding:
    path = tuple(part for part in detail["loc"] if not _is_type_tag(str(part)))
    whole = (what, *path) if what else path
    return Finding(whole, _text(model, detail, [str(part) for part in path]))


def _text(model: type[BaseModel], detail: ErrorDetails, names: list[str]) -> str:
    wrong = detail["input"]
    match detail["type"]:
        case "extra_forbidden":
            known = _field_names(model, names[:-1])
            hint = nearest(names[-1], known)
            listing = f" (known: {', '.join(sorted(known))})" if known and not hint else ""
            return f"no such option{hint}{listing}"
        case "missing":
            return "is required"
    message = detail["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if not names:
        return message  # about the whole, which is too much to repeat
    hint = nearest(wrong, re.findall(r"'([^']+)'", message)) if isinstance(wrong, str) else ""
    return f"{message}, got {_shown(wrong, names)}{hint}"


def _is_type_tag(part: str) -> bool:
    """Pydantic adds the branch of a union to the location, e.g. ``list[str]``."""
    return "[" in part or part in {"bool", "str", "int", "float", "function-after"}


def _shown(value: object, names: list[str]) -> str:
    if any("key" in name for name in names) or _holds_a_key(value):
        return "a value that is not shown"
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."


def _holds_a_key(value: object) -> bool:
    match value:
        case Mapping():
            return any("key" in str(name) or _holds_a_key(item) for name, item in value.items())
        case list() | tuple():
            return any(map(_holds_a_key, value))
    return isinstance(value, BaseModel)


def _field_names(model: type[BaseModel], path: list[str]) -> list[str]:
    """Return the fields of the model that ``path`` leads to, if it leads to one."""
    for name in path:
        if name.isdecimal():
            continue  # an item of a list of models
        field = model.model_fields.get(name)
        inner = _model_in(field.annotation) if field else None
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Return the model of ``Model``, ``Model | None`` or ``list[Model]``."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None
