"""The JSON Schema of launch files, made from the models of the options and of the built-in components."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticOmit
from pydantic_core import core_schema as cs

from ..errors import ConfigError
from ..spec.options import NetworkParams, SelectionParams
from ..spec.orchestration import ModelSpec, OrchestrationSpec, RunRequestSpec
from ..spec.requests import SECTIONS
from .registry import Kind, component_ids, find_component

_COMMON: dict[Kind, type[BaseModel]] = {"benchmark": SelectionParams, "environment": NetworkParams}
_REFERENCE = "#/$defs/{model}"


class _Schema(GenerateJsonSchema):
    """Leaves out what only Python can give."""

    def callable_schema(self, schema: cs.CallableSchema) -> dict[str, Any]:
        raise PydanticOmit

    def is_instance_schema(self, schema: cs.IsInstanceSchema) -> dict[str, Any]:
        return {}


def launch_schema() -> dict[str, Any]:
    """Return the schema; component ids that are not built in are permitted."""
    schema = OrchestrationSpec.model_json_schema(schema_generator=_Schema, ref_template=_REFERENCE)
    definitions = schema["$defs"]
    request = definitions[RunRequestSpec.__name__]
    for kind in ("benchmark", "harness", "environment"):
        definitions[f"{kind}_section"] = _component_section(kind)
        request["properties"][kind] = {"$ref": f"#/$defs/{kind}_section"}
    request["properties"]["model"] = _model_section(definitions)
    request["required"] = ["name"]  # the rest may come from the defaults
    properties = schema["properties"]
    properties["defaults"] = {
        "type": "object",
        "description": properties["defaults"].get("description", ""),
        "additionalProperties": False,
        "properties": {name: request["properties"][name] for name in SECTIONS},
    }
    properties["extends"] = {
        "description": "Files, relative to this one, that lie under it.",
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
    }
    for owner in (schema, *definitions.values()):
        _drop_long_defaults(owner)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _drop_long_defaults(owner: dict[str, Any]) -> None:
    """Leave out defaults that are whole groups of options: each of those tells its own."""
    for value in owner.get("properties", {}).values():
        if isinstance(value.get("default"), dict):
            del value["default"]


def _component_section(kind: Kind) -> dict[str, Any]:
    ids = component_ids(kind)
    return {
        "description": f"The id of a {kind}, or a mapping of its id and its parameters.",
        "anyOf": [
            {"type": "string", "examples": ids},
            {
                "type": "object",
                "properties": {"id": {"type": "string", "examples": ids}},
                "allOf": [
                    {
                        "if": {"properties": {"id": {"const": component_id}}, "required": ["id"]},
                        "then": {"properties": _parameters(kind, component_id)},
                    }
                    for component_id in ids
                ],
            },
        ],
    }


def _parameters(kind: Kind, component_id: str) -> dict[str, Any]:
    """Return the parameters by name, without references, so that they stand for themselves."""
    try:
        models = [find_component(kind, component_id).params_model]
    except ConfigError:
        return {}  # a plug-in that cannot be imported
    if kind in _COMMON:
        models.append(_COMMON[kind])
    return {
        name: {"description": " ".join((field.description or "").split())}
        for model in models
        for name, field in model.model_fields.items()
    }


def _model_section(definitions: dict[str, Any]) -> dict[str, Any]:
    """Permit the options of a model without their prefix as well."""
    section = definitions[ModelSpec.__name__]
    bare = {name.removeprefix("model_"): value for name, value in section["properties"].items()}
    section["properties"] |= bare
    section["required"] = []
    return {"anyOf": [{"type": "string"}, {"$ref": f"#/$defs/{ModelSpec.__name__}"}, {"type": "null"}]}
