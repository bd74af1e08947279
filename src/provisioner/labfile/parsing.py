"""Plain values of a file → ``Spec``, or everything that is wrong with them at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from provisioner.catalog import Catalog, Option, ServiceType
from provisioner.labfile.hosts import IncusHost, ProxmoxHost
from provisioner.labfile.options import options_model
from provisioner.labfile.spec import ServiceSpec, Spec
from provisioner.values.declared import Problem, Secret
from provisioner.values.refusals import KeyPath, did_you_mean, kind_of, path_text

_HOST_KINDS: dict[str, type[IncusHost | ProxmoxHost]] = {"incus": IncusHost, "proxmox": ProxmoxHost}
_IN_CLEAR = "a secret in clear"
_IN_CLEAR_HINT = "write `!secret NAME` here and NAME=VALUE in secrets.env"
# Take the place of a part that was refused, so that the whole does not report it again; never given out.
_HOST_STAND_IN = IncusHost.model_construct(incus="local")
_SERVICE_STAND_IN = ServiceSpec.model_construct(role="")
_M = TypeVar("_M", bound=BaseModel)


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
            from provisioner.labfile.wording import problems_of  # nothing that a good file needs

            self.problems += problems_of(error, path, model, hints or {})
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
        if not isinstance(services, dict):
            return value
        checked = {role: self.service(role, options, (*path, "services", role)) for role, options in services.items()}
        return {**value, "services": checked}

    def service(self, role: str, value: Any, path: KeyPath) -> ServiceSpec:
        service = self.catalog.offered.get(role)
        if service is None:
            self.refuse(path, "unknown service", did_you_mean(role, self.catalog.offered, always=True))
            return _SERVICE_STAND_IN
        written = {} if value is None else value
        if not isinstance(written, dict):
            self.refuse(path, f"expected the options of {role}, got {kind_of(value)}", f"write {role}: {{}} for none")
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
        if value:
            self.warnings.append(Problem(path, _IN_CLEAR, _IN_CLEAR_HINT))
        else:
            self.refuse(path, "an empty secret", "leave the key out, or write `!secret NAME`")
        return Secret(path_text(path), value)

    def refuse_secrets(self, value: Any, path: KeyPath) -> None:
        if isinstance(value, Secret):
            from provisioner.labfile.wording import SECRET_REFUSED

            self.refuse(path, *SECRET_REFUSED)
        elif isinstance(value, dict):
            for key, part in value.items():
                self.refuse_secrets(part, (*path, key))
        elif isinstance(value, list):
            for index, part in enumerate(value):
                self.refuse_secrets(part, (*path, index))
