"""Turn pydantic's findings into one ``ConfigError`` that names field, value and way out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ..errors import ConfigError, nearest

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
    findings = error.errors(include_url=False, include_context=False)
    return ConfigError("; ".join(_sentence(model, finding, what) for finding in findings))


def _sentence(model: type[BaseModel], finding: ErrorDetails, what: str) -> str:
    names = [str(part) for part in finding["loc"] if not _is_type_tag(str(part))]
    field = ".".join([what, *names] if what else names) or model.__name__
    wrong = finding["input"]
    match finding["type"]:
        case "extra_forbidden":
            known = _field_names(model, names[:-1])
            hint = nearest(names[-1], known)
            listing = f" (known: {', '.join(sorted(known))})" if known and not hint else ""
            return f"{field}: no such option{hint}{listing}"
        case "missing":
            return f"{field}: is required"
    message = finding["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    hint = nearest(wrong, re.findall(r"'([^']+)'", message)) if isinstance(wrong, str) else ""
    return f"{field}: {message}, got {_shown(wrong, names)}{hint}"


def _is_type_tag(part: str) -> bool:
    """Pydantic adds the branch of a union to the location, e.g. ``list[str]``."""
    return "[" in part or part in {"bool", "str", "int", "float", "function-after"}


def _shown(value: object, names: list[str]) -> str:
    if any("key" in name for name in names):
        return "a value that is not shown"
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."


def _field_names(model: type[BaseModel], path: list[str]) -> list[str]:
    """Return the fields of the model that ``path`` leads to, if it leads to one."""
    for name in path:
        field = model.model_fields.get(name)
        inner = field.annotation if field else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)
