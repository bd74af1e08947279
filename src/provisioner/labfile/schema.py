"""The file format as a JSON schema, for editors: the models of ``spec`` and the options of every service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from provisioner.catalog import Catalog, Limit, Option, Reference, ServiceType
from provisioner.labfile import SCHEMA_ID
from provisioner.labfile.fields import ALIAS, HOST_NAME, VARIABLE
from provisioner.labfile.options import SERVICE_ADDRESS, AliasOptions, file_options
from provisioner.labfile.spec import Spec
from provisioner.values.declared import INTERNET

DIALECT = "http://json-schema.org/draft-07/schema#"  # what yaml-language-server reads best
_TYPES = {"str": "string", "path": "string", "int": "integer", "float": "number", "bool": "boolean"}
_REFERENCES: dict[str, dict[str, Any]] = {
    "model": {"type": "string"},
    "stack": {"type": "string"},
    "file": {"type": "string", "minLength": 1},
    "files": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "uniqueItems": True},
    "models": {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
    "service": {"type": "string", "pattern": SERVICE_ADDRESS},
    "services": {
        "type": "array",
        "items": {"type": "string", "pattern": SERVICE_ADDRESS},
        "minItems": 1,
        "uniqueItems": True,
    },
    "sites": {
        "type": "object",
        "propertyNames": {"pattern": HOST_NAME},
        "additionalProperties": {"type": "string", "pattern": SERVICE_ADDRESS},
        "minProperties": 1,
    },
    "reaches": {"anyOf": [{"const": INTERNET}, {"type": "array", "items": {"type": "string"}, "uniqueItems": True}]},
}
_NO_REFERENCES: Mapping[str, Reference] = {}
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
    return {"$schema": DIALECT, "$id": SCHEMA_ID, "title": "A lab of provisioner", **schema}


def _simple(value: Any) -> Any:
    """What pydantic wrote, without titles and nulls (what is not wanted is left out), and with closed mappings."""
    if isinstance(value, list):
        return [_simple(item) for item in value]
    if not isinstance(value, dict):
        return value
    simple: dict[str, Any] = {}
    for key, inner in value.items():
        # `title` is a word of the schema only where its value is a string: a property may have that name.
        is_title = key == "title" and isinstance(inner, str)
        if not is_title:
            simple[key] = _simple(inner)
    if simple.get("default", ...) in (None, {}):
        del simple["default"]
    if "patternProperties" in simple:
        simple["additionalProperties"] = False
    return _without_null(simple)


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, with the only other form in the place of the choice between that and null."""
    forms = [form for form in schema.get("anyOf", ()) if form != {"type": "null"}]
    if len(forms) != 1:
        return schema
    del schema["anyOf"]
    return {**forms[0], **schema}


def _service(service: ServiceType) -> dict[str, Any]:
    schema = _mapping(file_options(service).values(), service.references)
    schema["properties"].setdefault("expose", _EXPOSE)
    either = []
    for name, reference in service.references.items():
        if reference.instead_of:
            either.append({"oneOf": [{"required": [name]}, {"required": [reference.instead_of]}]})
    if either:
        schema["allOf"] = either
    return {"description": service.title, **schema, "type": ["object", "null"]}


def _mapping(options: Iterable[Option], references: Mapping[str, Reference] = _NO_REFERENCES) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for option in options:
        reference = references.get(option.name)
        properties[option.name] = (
            _referring(option, reference) if reference and not reference.is_described else _described(option)
        )
        if option.required:
            required.append(option.name)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _referring(option: Option, reference: Reference) -> dict[str, Any]:
    """An option that names something else in the file; its default is the role's alone."""
    return {**_reference(reference.kind), "description": _description(option)}


def _described(option: Option) -> dict[str, Any]:
    schema = {**_typed(option), "description": _description(option)}
    is_told = option.default not in (None, "", [], {})
    if is_told and not option.secret:
        schema["default"] = option.default
    return schema


def _description(option: Option) -> str:
    return f"{option.description} {_HIDDEN_NOTE}".strip() if option.secret else option.description


def _reference(kind: str) -> dict[str, Any]:
    if kind != "aliases":
        return _REFERENCES[kind]
    names = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    alias = {"anyOf": [names, _simple(AliasOptions.model_json_schema())]}
    return {"type": "object", "propertyNames": {"pattern": ALIAS}, "additionalProperties": alias}


def _typed(option: Option) -> dict[str, Any]:
    if option.type == "list":
        return {"type": "array", "items": _single(option, option.elements or "raw")}
    return _single(option, option.type)


def _single(option: Option, kind: str) -> dict[str, Any]:
    """One value of that kind, which is the option's, or that of each item of its list."""
    if kind == "dict" and option.options:
        return _mapping(option.options.values())
    if kind == "dict":
        return {"type": "object", "propertyNames": {"pattern": VARIABLE}}
    if kind == "list":
        return {"type": "array"}
    schema: dict[str, Any] = {}
    if kind in _TYPES:
        schema["type"] = _TYPES[kind]
    if option.limit:
        schema |= _limit(option.limit)
    if option.choices:
        schema["enum"] = list(option.choices)
    return schema


def _limit(limit: Limit) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    if limit.min is not None:
        schema["minimum"] = limit.min
    if limit.max is not None:
        schema["maximum"] = limit.max
    if limit.pattern:
        schema["pattern"] = f"^({limit.pattern})$"
    return schema
