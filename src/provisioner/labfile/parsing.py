"""Plain values of a file → ``Spec``, or everything that is wrong with them at once, in words for people.

No word says a value. What is left of a file without its refused parts is judged as well, in the same run.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from provisioner.catalog import Catalog, Option, ServiceType
from provisioner.labfile.hosts import IncusHost, ProxmoxHost
from provisioner.labfile.options import FORMS, options_model
from provisioner.labfile.spec import UNKNOWN_MODEL, ServiceSpec, Spec
from provisioner.values.declared import Problem, Secret
from provisioner.values.refusals import REFUSED, KeyPath, did_you_mean, kind_of, path_text

ROUNDS = 4
"""An option that is taken out may be one that its service needs, and that one all that its container has."""
_STAND_INS: Mapping[tuple[str, int], Any] = {
    ("model", 5): UNKNOWN_MODEL,
    ("models", 5): [UNKNOWN_MODEL],
    ("models", 6): UNKNOWN_MODEL,
}
"""By the kind of an option and the length of a path: to the option, or to one item of it."""
_SECRET_REFUSED = ("a secret cannot stand here", "write the value in clear")
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
_HOST_KINDS: dict[str, type[IncusHost | ProxmoxHost]] = {"incus": IncusHost, "proxmox": ProxmoxHost}
_IN_CLEAR = "a secret in clear"
_IN_CLEAR_HINT = "write `!secret NAME` here and NAME=VALUE in secrets.env"
# Take the place of a part that was refused, so that the whole does not report it again; never given out.
_HOST_STAND_IN = IncusHost.model_construct(incus="local")
_SERVICE_STAND_IN = ServiceSpec.model_construct(role="")
_M = TypeVar("_M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Remainder:
    """A valid file, and the places of what was taken out of the one that somebody wrote.

    ``unknown``: the places of secrets and models that were missing or no such thing: something stands there, and nobody
    knows what it is.
    """

    spec: Spec
    removed: frozenset[KeyPath]
    unknown: frozenset[KeyPath] = frozenset()

    def is_about(self, problem: Problem) -> bool:
        """Return whether a problem of what is left may come of what was taken out, and not of what was written."""
        said = f"{problem.message} {problem.hint}"
        if problem.path in self.unknown or f'"{UNKNOWN_MODEL}"' in said:
            return True
        for path in self.removed:
            shared = min(len(path), len(problem.path))
            if path[:shared] == problem.path[:shared]:
                return True
            if any(word in said for word in _called(path)):
                return True
        return False


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a file's values gave: ``spec`` is None when there are ``problems``; ``warnings`` stop nothing."""

    spec: Spec | None
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def parse_spec(data: Mapping[str, Any], catalog: Catalog) -> Parsed:
    """Check plain values (``!secret`` already a ``Secret``) against the file format and the services' options."""
    return _Parse(data, catalog).result()


class _Parse:
    # Hosts and services are chosen and checked here, one by one, before the whole: a union in pydantic would report
    # the errors of every alternative, and which options a service has is known by the catalog only.
    def __init__(self, data: Mapping[str, Any], catalog: Catalog) -> None:
        self.data = dict(data)
        self.catalog = catalog
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def result(self) -> Parsed:
        converters = {"hosts": self.host, "upstreams": self.upstream, "containers": self.container}
        for key, convert in converters.items():
            entries = self.data.get(key)
            if isinstance(entries, dict):
                self.data[key] = {name: convert(value, (key, name)) for name, value in entries.items()}
        spec = self.check(Spec, self.data, ())
        different_problems = tuple(dict.fromkeys(self.problems))
        return Parsed(None if self.problems else spec, different_problems, tuple(self.warnings))

    def check(self, model: type[_M], data: Any, path: KeyPath, hints: Mapping[str, str] | None = None) -> _M | None:
        try:
            return model.model_validate(data)
        except ValidationError as error:
            self.problems += _problems_of(error, path, model, hints or {}, self.catalog)
            return None

    def refuse(self, path: KeyPath, message: str, hint: str = "") -> None:
        self.problems.append(Problem(path, message, hint))

    def host(self, value: Any, path: KeyPath) -> IncusHost | ProxmoxHost:
        if not isinstance(value, dict):
            self.refuse(path, f"expected a mapping, got {kind_of(value)}", "write { incus: local }")
            return _HOST_STAND_IN
        kinds = [kind for kind in _HOST_KINDS if kind in value]
        if not kinds:
            self.refuse(path, "a host of no kind", "write { incus: local } or { proxmox: … }")
            return _HOST_STAND_IN
        if len(kinds) > 1:
            self.refuse(path, f"a host of two kinds: {' and '.join(kinds)}", "keep one of them")
            return _HOST_STAND_IN
        model = _HOST_KINDS[kinds[0]]
        return self.check(model, self.with_hidden_token(value, path), path) or _HOST_STAND_IN

    def with_hidden_token(self, value: dict[str, Any], path: KeyPath) -> dict[str, Any]:
        token = value.get("token")
        if not isinstance(token, dict) or "secret" not in token:
            return value
        secret = self.hidden(token["secret"], (*path, "token", "secret"))
        return {**value, "token": {**token, "secret": secret}}

    def upstream(self, value: Any, path: KeyPath) -> Any:
        if not isinstance(value, dict) or value.get("api_key") is None:
            return value
        return {**value, "api_key": self.hidden(value["api_key"], (*path, "api_key"))}

    def container(self, value: Any, path: KeyPath) -> Any:
        services = value.get("services") if isinstance(value, dict) else None
        if isinstance(services, list | str):
            from provisioner.labfile.advice import listed_services  # nothing that a good file needs

            hint = listed_services(services, self.catalog)
            self.refuse((*path, "services"), f"expected a mapping, got {kind_of(services)}", hint)
            return {**value, "services": {}}
        if not isinstance(services, dict):
            return value
        checked = {role: self.service(role, options, (*path, "services", role)) for role, options in services.items()}
        return {**value, "services": checked}

    def service(self, role: str, value: Any, path: KeyPath) -> ServiceSpec:
        service = self.catalog.offered.get(role)
        if service is None:
            from provisioner.labfile.advice import unknown_service  # nothing that a good file needs

            self.refuse(path, "unknown service", unknown_service(role, self.catalog))
            return _SERVICE_STAND_IN
        written = {} if value is None else value
        if not isinstance(written, dict):
            from provisioner.labfile.advice import written_service  # nothing that a good file needs

            hint = f"write {written_service(service)}"
            self.refuse(path, f"expected the options of {role}, got {kind_of(value)}", hint)
            return _SERVICE_STAND_IN
        return self.options(service, dict(written), path)

    def options(self, service: ServiceType, written: dict[str, Any], path: KeyPath) -> ServiceSpec:
        whole: dict[str, Any] = {"role": service.role}
        if "expose" in written and "expose" not in service.options:
            whole["expose"] = written.pop("expose")
        for name in service.internal & written.keys():
            self.refuse((*path, name), "an option that is filled in from the rest of the file", "leave it out")
            del written[name]
        for name, option in service.options.items():
            if name in written:
                written[name] = self.secrets(option, written[name], (*path, name))
        try:
            options_model(service, written).model_validate(written)
        except ValidationError:
            self.check(options_model(service), written, path, self.reference_hints(service))
        return self.check(ServiceSpec, {**whole, "options": written}, path) or _SERVICE_STAND_IN

    def reference_hints(self, service: ServiceType) -> dict[str, str]:
        models = self.data.get("models")
        hint = "define one under models and write its name"
        if isinstance(models, dict) and models:
            hint = f"write one of the file's models: {', '.join(models)}"
        hints: dict[str, str] = {}
        for name, reference in service.references.items():
            if reference.kind in ("model", "models"):
                hints[name] = hint
        for container, value in self.data["containers"].items():
            services = value.get("services") if isinstance(value, dict) else None
            for role in services if isinstance(services, dict) else ():
                hints |= dict.fromkeys((f"{container}/", f"{role}/"), f'write "{container}/{role}"')
        return hints

    def secrets(self, option: Option, value: Any, path: KeyPath) -> Any:
        """The value with every string of a secret option hidden; a ``!secret`` in any other option is refused."""
        if option.secret:
            return self.hidden(value, path)
        if not isinstance(value, dict | list):
            return value
        if not option.options:
            self.refuse_secrets(value, path)
            return value
        if isinstance(value, list):
            inner = Option(name=option.name, options=option.options)
            return [self.secrets(inner, item, (*path, index)) for index, item in enumerate(value)]
        checked: dict[str, Any] = {}
        for name, part in value.items():
            is_known = name in option.options
            checked[name] = self.secrets(option.options[name], part, (*path, name)) if is_known else part
        return checked

    def hidden(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, dict):
            return {name: self.hidden(part, (*path, name)) for name, part in value.items()}
        if isinstance(value, list):
            return [self.hidden(part, (*path, index)) for index, part in enumerate(value)]
        if not isinstance(value, str):
            return value
        if value.startswith(("secret ", "!secret", "$", "{{")):
            from provisioner.labfile.advice import secret_reference  # nothing that a good file needs

            self.problems += secret_reference(path, value)
        if value:
            self.warnings.append(Problem(path, _IN_CLEAR, _IN_CLEAR_HINT))
        else:
            self.refuse(path, "an empty secret", "leave the key out, or write `!secret NAME`")
        return Secret(path_text(path), value)

    def refuse_secrets(self, value: Any, path: KeyPath) -> None:
        if isinstance(value, Secret):
            self.refuse(path, *_SECRET_REFUSED)
        elif isinstance(value, dict):
            for key, part in value.items():
                self.refuse_secrets(part, (*path, key))
        elif isinstance(value, list):
            for index, part in enumerate(value):
                self.refuse_secrets(part, (*path, index))


def _problems_of(
    error: ValidationError, base: KeyPath, model: type[BaseModel], hints: Mapping[str, str], catalog: Catalog
) -> list[Problem]:
    """One problem per error, below ``base``; ``hints`` say what to write for a key that is missing or no address."""
    from provisioner.labfile.advice import MISSING, unknown_key  # nothing that a good file needs

    problems = []
    for fault in error.errors(include_url=False):
        path = tuple(step for step in fault["loc"] if step not in ("[key]", *FORMS))
        message, hint = _wording(fault["type"], fault.get("ctx", {}), fault["input"])
        if fault["type"] == "missing":
            whole = (*base, *path)
            hint = hints.get(str(path[-1]), MISSING.get((whole[0] if whole[1:] else "", path[-1]), ""))
        elif fault["type"] == "extra_forbidden":
            hint = unknown_key((*base, *path), _known_keys(model, path[:-1]), catalog)
        elif fault["type"] == "literal_error":
            hint = _choice_hint(fault["input"], model, path)
        elif fault["type"] == "string_pattern_mismatch":
            hint = hints.get(f"{fault['input']}/", hint)
        problems.append(Problem((*base, *path), message or fault["msg"], hint))
    return problems


def _wording(kind: str, context: Mapping[str, Any], value: object) -> tuple[str, str]:
    from provisioner.labfile.advice import form_hint, kind_hint  # nothing that a good file needs

    if kind == REFUSED:
        return context["message"], form_hint(kind, value) or context["hint"]
    if isinstance(value, Secret):
        return _SECRET_REFUSED
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, got {kind_of(value)}", kind_hint(kind, context, value)
    if kind in _LIMITS:
        words, key = _LIMITS[kind]
        return f"must be {words} {context[key]}".removesuffix(".0"), ""
    return _WORDING.get(kind, ("", ""))


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


def _called(path: KeyPath) -> tuple[str, ...]:
    """Return what other places call a part that was taken out as a whole: a model, a container, a service of one."""
    match list(map(str, path)):
        case [_, name]:
            return (f'"{name}"', f"{name}/")
        case [_, container, "services", role]:
            return (f"{container}/{role}",)
    return ()


def remainder(data: Mapping[str, Any], problems: Iterable[Problem], catalog: Catalog) -> Remainder | None:
    """Return what is left of the values without the places of the problems; None where that is no file either.

    A service without a secret or a model that it needs stays, with one that nobody knows: its other options are judged
    as well.
    """
    left: dict[str, Any] = deepcopy(dict(data))
    removed: set[KeyPath] = set()
    unknown: set[KeyPath] = set()
    for _ in range(ROUNDS):
        before = len(removed) + len(unknown)
        for problem in problems:
            if problem.path not in unknown and _is_filled_in(left, problem.path, catalog):
                unknown.add(problem.path)
                continue
            # What was taken out and is needed takes what needs it along.
            path = problem.path[:-1] if problem.path in removed else problem.path
            if not any(path[: len(one)] == one for one in removed):
                removed |= {_taken_out(left, path)} - {()}
        if len(removed) + len(unknown) == before:
            return None
        parsed = parse_spec(left, catalog)
        if parsed.spec is not None:
            return Remainder(parsed.spec, frozenset(removed), frozenset(unknown))
        problems = parsed.problems
    return None


def _is_filled_in(data: dict[str, Any], path: KeyPath, catalog: Catalog) -> bool:
    """Put what nobody knows where a service lacks or miswrites a secret or a model; return whether that was done."""
    match list(path):
        case ["containers", _, "services", role, option, *_] if role in catalog.services:
            page, name = catalog.services[str(role)], str(option)
            kind = page.references[name].kind if name in page.references else ""
            stand_in = _STAND_INS.get((kind, len(path)))
            if name in page.options and page.options[name].secret:
                stand_in = Secret(name, None)
            if stand_in is None:
                return False
            left: Any = data
            try:
                holder = reduce(getitem, path[:-1], left)
                holder[path[-1]] = stand_in
            except (KeyError, TypeError):  # of that service nothing is written, or nothing is left
                return False
            return True
    return False


def _taken_out(data: dict[str, Any], path: KeyPath) -> KeyPath:
    """Take out what lies at a path, or the mapping that lacks it; return where that was, nothing where it is all."""
    at: Any = data
    holders: list[dict[str, Any]] = []
    for step in path:
        if not isinstance(at, dict) or step not in at:
            break
        holders.append(at)
        at = at[str(step)]
    # Of a list all goes: what stands behind one item would be at another place.
    depth = len(holders)
    if depth == 0:
        return ()
    del holders[depth - 1][str(path[depth - 1])]
    return path[:depth]
