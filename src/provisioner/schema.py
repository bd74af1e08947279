"""The file format as a JSON schema, for editors: the models of ``spec`` and the options of every service."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from provisioner.catalog import Catalog, Limit, Option, Reference, ServiceType
from provisioner.spec import Spec
from provisioner.spec.aliases import AliasOptions
from provisioner.spec.fields import ALIAS, VARIABLE
from provisioner.spec.options import SERVICE_ADDRESS, file_options

DIALECT = "http://json-schema.org/draft-07/schema#"  # what yaml-language-server reads best
_TYPES = {"str": "string", "path": "string", "int": "integer", "float": "number", "bool": "boolean"}
_REFERENCES: dict[str, dict[str, Any]] = {
    "model": {"type": "string"},
    "stack": {"type": "string"},
    "models": {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
    "service": {"type": "string", "pattern": SERVICE_ADDRESS},
}
_HIDDEN_NOTE = "A secret: write `!secret NAME`."
_EXPOSE = {"enum": ["host", "lan"], "default": "host", "description": "Who reaches the service"}


def file_schema(catalog: Catalog) -> dict[str, Any]:
    """The JSON schema of a lab's file with the services of ``catalog``; the loader checks more than it can say."""
    schema: dict[str, Any] = _simple(Spec.model_json_schema())
    definitions = schema["$defs"]
    del definitions["ServiceSpec"]
    container = definitions["Container"]["properties"]
    container["gpu"] = {
        "description": container["gpu"]["description"],
        "anyOf": [{"enum": ["none", "any"]}, {"$ref": "#/$defs/Gpu"}],
    }
    container["services"] = {
        "type": "object",
        "properties": {role: _service(service) for role, service in catalog.offered.items()},
        "additionalProperties": False,
    }
    return {"$schema": DIALECT, "title": "A lab of provisioner", **schema}


def _simple(value: Any) -> Any:
    """What pydantic wrote, without titles and nulls (what is not wanted is left out), and with closed mappings."""
    if isinstance(value, list):
        return [_simple(one) for one in value]
    if not isinstance(value, dict):
        return value
    # `title` is a word of the schema only where its value is a string: a property may have that name.
    kept = {key: _simple(one) for key, one in value.items() if not (key == "title" and isinstance(one, str))}
    if kept.get("default", ...) in (None, {}):
        del kept["default"]
    if "patternProperties" in kept:
        kept["additionalProperties"] = False
    present = [one for one in kept.get("anyOf", ()) if one != {"type": "null"}]
    if len(present) == 1:
        del kept["anyOf"]
        return {**present[0], **kept}
    return kept


def _service(service: ServiceType) -> dict[str, Any]:
    schema = _mapping(file_options(service).values(), service)
    schema["properties"].setdefault("expose", _EXPOSE)
    either = [(name, one.instead_of) for name, one in service.references.items() if one.instead_of]
    if either:
        schema["allOf"] = [{"oneOf": [{"required": [word]} for word in words]} for words in either]
    return {"description": service.title, **schema, "type": ["object", "null"]}


def _mapping(options: Iterable[Option], service: ServiceType | None = None) -> dict[str, Any]:
    options = list(options)
    references = service.references if service else {}
    return {
        "type": "object",
        "properties": {one.name: _described(one, references.get(one.name)) for one in options},
        "required": [one.name for one in options if one.required],
        "additionalProperties": False,
    }


def _described(option: Option, reference: Reference | None) -> dict[str, Any]:
    schema = _reference(reference.kind) if reference else _typed(option)
    schema["description"] = f"{option.description} {_HIDDEN_NOTE}".strip() if option.secret else option.description
    if option.default not in (None, "", [], {}) and not option.secret and not reference:
        schema["default"] = option.default
    return schema


def _reference(kind: str) -> dict[str, Any]:
    if kind == "aliases":
        names = {"type": "array", "items": {"type": "string"}, "minItems": 1}
        alias = {"anyOf": [names, _simple(AliasOptions.model_json_schema())]}
        return {"type": "object", "propertyNames": {"pattern": ALIAS}, "additionalProperties": alias}
    return dict(_REFERENCES[kind])


def _typed(option: Option) -> dict[str, Any]:
    if option.type == "list":
        return {"type": "array", "items": _single(option, option.elements or "raw")}
    return _single(option, option.type)


def _single(option: Option, kind: str) -> dict[str, Any]:
    if kind == "dict":
        free = {"type": "object", "propertyNames": {"pattern": VARIABLE}}
        return _mapping(option.options.values()) if option.options else free
    if kind == "list":
        return {"type": "array"}
    schema: dict[str, Any] = {"type": _TYPES[kind]} if kind in _TYPES else {}
    if option.limit:
        schema |= _limit(option.limit)
    return {**schema, "enum": list(option.choices)} if option.choices else schema


def _limit(limit: Limit) -> dict[str, Any]:
    words = {"minimum": limit.min, "maximum": limit.max, "pattern": f"^({limit.pattern})$" if limit.pattern else None}
    return {word: value for word, value in words.items() if value is not None}
