"""The fields of options and parameters in words: what people read about them, made from the models."""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

_WORDS = {"str": "text", "int": "whole number", "float": "number", "bool": "yes or no", "Path": "text"}


def type_in_words(annotation: Any) -> str:
    """Say what type a value has; allowed values are in back quotes."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_in_words(inner[0])
    if origin in (Union, UnionType):
        names = [type_in_words(part) for part in inner if part not in (type(None), SecretStr)]
        return " or ".join(dict.fromkeys(names))
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin in (list, tuple):
        return f"list of {type_in_words(inner[0])}s".replace("`s", "`")
    if origin is dict:
        return "mapping"
    name = getattr(annotation, "__name__", "function")
    return _WORDS.get(name, "function" if name == "Callable" else f"`{name}`")


def default_in_words(field: FieldInfo) -> str:
    """Say what holds when nothing is given; ``required`` if something must be, empty if there is nothing."""
    if field.is_required():
        return "required"
    match field.default:
        case None | "" | [] | {}:
            return ""
        case bool(value):
            return "yes" if value else "no"
        case float(value):
            return f"{value:g}"
        case BaseModel() as value:
            return str(getattr(value, "id", ""))
        case value:
            return str(value)
