"""A lab's file as it is understood, as YAML: every default filled in, every secret masked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.catalog import Catalog, ServiceType
from provisioner.lab import hosts_of
from provisioner.lab.lan import implied_users, with_lan
from provisioner.report.lines import plain_value
from provisioner.sizes import size_text
from provisioner.spec import ServiceSpec, Spec
from provisioner.state import Fleet, Instance

_SIZES = ("memory", "disk")


def file_value(spec: Spec, catalog: Catalog, fleet: Fleet) -> dict[str, Any]:
    """The file with all defaults, in its own format."""
    spec = with_lan(spec, catalog)
    whole: dict[str, Any] = {
        "name": spec.name,
        "hosts": {name: _written(host) for name, host in hosts_of(spec).items()},
        "models": {name: _written(model) for name, model in spec.models.items()},
        "upstreams": {name: _written(upstream) for name, upstream in spec.upstreams.items()},
        "containers": {one.name: _container_value(spec, catalog, one) for one in fleet.instances},
    }
    return {key: plain_value(value) for key, value in whole.items() if value}


def fleet_value(spec: Spec, catalog: Catalog, fleet: Fleet) -> dict[str, Any]:
    """Everything that the file resolves to: containers with devices and every variable of every role, artifacts.

    A service that is exposed because other hosts need it names them (``needed_by``).
    """
    value: dict[str, Any] = plain_value(fleet)
    exposed, needed = with_lan(spec, catalog), implied_users(spec, catalog)
    del value["hosts"]
    for one in value["instances"]:
        del one["status"], one["address"]  # only a host knows them
        one.update({name: _size(one[name]) for name in _SIZES})
        written = exposed.containers[one["name"]].services
        for service in one["services"]:
            if service["role"] in written:
                service["expose"] = written[service["role"]].expose
            users = needed.get(f"{one['name']}/{service['role']}")
            service.update({"needed_by": list(users)} if users else {})
    return value


def yaml_text(value: Mapping[str, Any]) -> str:
    """``value``, made of plain types, as YAML without anchors."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # PyYAML's signature
            return True

    return yaml.dump(dict(value), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110).rstrip("\n")


def _container_value(spec: Spec, catalog: Catalog, instance: Instance) -> dict[str, Any]:
    written = spec.containers[instance.name]
    value: dict[str, Any] = {
        "host": instance.host,
        "image": instance.image,
        "cpu": instance.cpu,
        "memory": _size(instance.memory),
        "disk": _size(instance.disk),
    }
    if written.gpu is not None:
        value["gpu"] = _written(written.gpu) or "any"
    shown = {name: one for name, one in value.items() if one is not None}
    services = {role: _service_value(one, catalog.services[role]) for role, one in written.services.items()}
    return {**shown, "services": services}


def _service_value(service: ServiceSpec, page: ServiceType) -> dict[str, Any]:
    # the default of a reference to nothing is no name that a file could say
    unsaid = {name for name in page.references if page.options[name].default in ("", [])}
    defaults = {
        name: option.default
        for name, option in page.options.items()
        if option.default is not None and name not in page.internal | unsaid
    }
    return {**defaults, **service.options, "expose": service.expose}


def _written(part: Any) -> dict[str, Any]:
    """The fields of a pydantic value that are set; a secret stays a ``Secret``."""
    fields = {name: value for name, value in dict(part).items() if value is not None}
    return {name: _written(value) if hasattr(value, "model_fields_set") else value for name, value in fields.items()}


def _size(size: int | None) -> str | None:
    return None if size is None else size_text(size)
