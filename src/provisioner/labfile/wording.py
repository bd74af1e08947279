"""pydantic's errors as problems for people: which key, what was expected, what may have been meant; never a value."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from provisioner.labfile.options import FORMS
from provisioner.values.declared import Problem, Secret
from provisioner.values.refusals import REFUSED, KeyPath, did_you_mean, kind_of

SECRET_REFUSED = ("a secret cannot stand here", "write the value in clear")
_EXPECTED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "is_instance_of": "a secret",
}
_LIMITS = {
    "less_than_equal": ("at most", "le"),
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
}
_WORDING = {
    "missing": ("required key is missing", ""),
    "extra_forbidden": ("unknown key", ""),
    "literal_error": ("not one of the choices", ""),
    "string_pattern_mismatch": ("not the address of a service", 'write "container/service"'),
    "finite_number": ("expected a finite number", ""),
    "too_short": ("must not be empty", ""),
    "string_too_short": ("must not be empty", ""),
}


def problems_of(
    error: ValidationError, base: KeyPath, model: type[BaseModel], hints: Mapping[str, str]
) -> list[Problem]:
    """One problem per error, below ``base``; ``hints`` say for a missing key what to write there."""
    problems = []
    for fault in error.errors(include_url=False):
        path = tuple(step for step in fault["loc"] if step not in ("[key]", *FORMS))
        message, hint = _wording(fault["type"], fault.get("ctx", {}), fault["input"])
        if fault["type"] == "missing":
            hint = hints.get(str(path[-1]), "")
        elif fault["type"] == "extra_forbidden":
            hint = did_you_mean(str(path[-1]), _known_keys(model, path[:-1]))
        elif fault["type"] == "literal_error":
            hint = _choice_hint(fault["input"], model, path)
        problems.append(Problem((*base, *path), message or fault["msg"], hint))
    return problems


def _wording(kind: str, context: Mapping[str, Any], value: object) -> tuple[str, str]:
    if kind == REFUSED:
        return context["message"], context["hint"]
    if isinstance(value, Secret):
        return SECRET_REFUSED
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, got {kind_of(value)}", _type_hint(kind, value)
    if kind in _LIMITS:
        words, key = _LIMITS[kind]
        return f"must be {words} {context[key]}".removesuffix(".0"), ""
    return _WORDING.get(kind, ("", ""))


def _type_hint(kind: str, value: object) -> str:
    if kind == "is_instance_of":
        return "write `!secret NAME`"
    if kind == "string_type" and isinstance(value, bool | int | float):
        return "put it in quotes"
    return ""


def _known_keys(model: type[BaseModel], path: KeyPath) -> list[str]:
    inner = _annotation_at(model, path)
    return list(_annotations_by_key(inner)) if _is_model(inner) else []


def _choice_hint(value: object, model: type[BaseModel], path: KeyPath) -> str:
    annotation = _annotation_at(model, path)
    choices: list[str] = []
    if get_origin(annotation) is Literal:
        choices = [str(choice) for choice in get_args(annotation)]
    written = value if isinstance(value, str) else ""
    return did_you_mean(written, choices, always=True)


def _annotation_at(model: type[BaseModel], path: KeyPath) -> Any:
    annotation: Any = model
    for step in path:
        if _is_model(annotation):
            annotation = _annotations_by_key(annotation).get(str(step))
        elif get_origin(annotation) in (dict, list):
            annotation = get_args(annotation)[-1]
        annotation = _required(_plain(annotation))
    return annotation


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _annotations_by_key(model: type[BaseModel]) -> dict[str, Any]:
    """The annotations of a model's fields, by the keys that the file has for them."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _required(annotation: Any) -> Any:
    """The first choice of a union that is not None; any other annotation as it is."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    for choice in get_args(annotation):
        if choice is not type(None):
            return _plain(choice)
    return None


def _plain(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
