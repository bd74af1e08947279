"""A service's options as a pydantic model, made from its role's argument_specs when a file uses the service."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, StringConstraints, Tag, create_model

from provisioner.catalog import Option, Reference, ServiceType
from provisioner.labfile.fields import AliasName, Duration, FreeValue, HostName, Part, VariableName
from provisioner.values.declared import INTERNET, Secret
from provisioner.values.quantities import UP_TO_A_DAY, UP_TO_AN_HOUR

Names = Annotated[list[str], Field(min_length=1)]
Seconds = Annotated[float, Field(gt=0)]


class AliasOptions(Part):
    """The engines behind an alias, and what it asks of them; what is None is as for the whole gateway."""

    engines: Names = Field(description="Models, services, upstreams or aliases; first the primary, then the fallbacks")
    timeout: Seconds | None = Field(default=None, description="Seconds that each engine has for a whole answer")
    stream_timeout: Seconds | None = Field(
        default=None, description="Seconds that each engine has for each part of a streamed answer"
    )
    retries: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="How often each engine is asked again before the next one"
    )
    context_window_fallbacks: Names | None = Field(
        default=None, description="Who answers what is too long for an engine; without it the next engines"
    )
    thinking: Literal["on", "off"] | None = Field(
        default=None, description="Whether engines think before they answer; without it as the model does by itself"
    )
    thinking_budget: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Tokens after which a thought is ended, with thinking: on"
    )


def _form(value: Any) -> str:
    return "[mapping]" if isinstance(value, dict | AliasOptions) else "[list]"


# The mapping first: wording.py takes the keys that there are from it.
Alias = Annotated[Annotated[AliasOptions, Tag("[mapping]")] | Annotated[Names, Tag("[list]")], Discriminator(_form)]
FORMS = ("[mapping]", "[list]")
"""What pydantic puts into an error's path to say which of both forms it took."""


SERVICE_ADDRESS = r"^[^/\s]+/[^/\s]+$"
_CONFIG = ConfigDict(
    extra="forbid", strict=True, arbitrary_types_allowed=True, allow_inf_nan=False, protected_namespaces=()
)
_SCALARS: dict[str, Any] = {"str": str, "path": str, "int": int, "bool": bool, "float": float, "raw": FreeValue}
_REFERENCES: dict[str, Any] = {
    "model": str,
    "models": Annotated[list[str], Field(min_length=1)],
    "service": Annotated[str, StringConstraints(pattern=SERVICE_ADDRESS)],
    "services": Annotated[list[Annotated[str, StringConstraints(pattern=SERVICE_ADDRESS)]], Field(min_length=1)],
    "stack": str,
    "file": Annotated[str, Field(min_length=1)],
    "files": Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)],
    "aliases": dict[AliasName, Alias],
    "sites": Annotated[dict[HostName, Annotated[str, StringConstraints(pattern=SERVICE_ADDRESS)]], Field(min_length=1)],
    "reaches": Annotated[list[str], BeforeValidator(lambda value: [value] if value == INTERNET else value)],
}
_MADE: dict[tuple[int, tuple[str, ...]], tuple[ServiceType, type[BaseModel]]] = {}
"""The models by service and options; each holds its service, so that no other one comes to have its id."""


def file_options(service: ServiceType) -> dict[str, Option]:
    """The options that a file may set: all but those that are filled in from elsewhere in the file."""
    return {name: option for name, option in service.options.items() if name not in service.internal}


def options_model(service: ServiceType, written: Collection[str] | None = None) -> type[BaseModel]:
    """The model that refuses what the service's role would refuse; only what was written counts, not its defaults.

    ``written``: the model knows these options alone, beside those that are required. It takes and refuses the same of
    such options, and is made in a fraction of the time; what it refuses, the whole model words.
    """
    options = [
        option
        for option in file_options(service).values()
        if written is None or option.required or option.name in written
    ]
    known = (id(service), tuple(option.name for option in options))
    if known not in _MADE:
        _MADE[known] = (service, _model(service.role, options, service.references))
    return _MADE[known][1]


def _model(name: str, options: Iterable[Option], references: Mapping[str, Reference]) -> type[BaseModel]:
    # Fields have a prefix and an alias, as an option may be called like a method of BaseModel ("copy", "json").
    fields: dict[str, Any] = {}
    for option in options:
        annotation = _annotation(option, references.get(option.name))
        default = ... if option.required else None
        fields[f"option_{option.name}"] = (annotation, Field(default, alias=option.name))
    return create_model(name, __config__=_CONFIG, **fields)


def _annotation(option: Option, reference: Reference | None = None) -> Any:
    if reference and not reference.is_described:
        return _REFERENCES[reference.kind]
    if option.type == "list":
        return list[_single(option, option.elements or "raw")]  # type: ignore[misc]
    return _single(option, option.type)


def _single(option: Option, kind: str) -> Any:
    if kind == "dict":
        if option.options:
            return _model(option.name, option.options.values(), {})
        return dict[VariableName, FreeValue]
    if kind == "list":
        return list[FreeValue]
    if option.secret:
        return Secret
    if option.limit and option.limit.pattern in (UP_TO_AN_HOUR, UP_TO_A_DAY):
        return Duration
    return Literal[option.choices] if option.choices else _SCALARS[kind]
