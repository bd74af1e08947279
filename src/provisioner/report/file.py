"""A lab's file as it is understood, as YAML: every default filled in, every secret masked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.lab.resolved import ResolvedContainer, ResolvedLab
from provisioner.report.lines import plain_value
from provisioner.services.base import HOLD_OPTION, LAN, ResolvedService
from provisioner.values.address import Address
from provisioner.values.quantities import size_text
from provisioner.values.state import Fleet, Instance

_SIZES = ("memory", "disk")


def file_value(lab: ResolvedLab, fleet: Fleet) -> dict[str, Any]:
    """The file with all defaults, in its own format."""
    whole: dict[str, Any] = {
        "name": lab.name,
        "hosts": {name: _written(host) for name, host in lab.hosts.items()},
        "models": {name: _written(model) for name, model in lab.models.items()},
        "upstreams": {name: _written(upstream) for name, upstream in lab.upstreams.items()},
        "containers": {one.name: _container_value(lab.containers[one.name], one) for one in fleet.instances},
    }
    return {key: plain_value(value) for key, value in whole.items() if value}


def fleet_value(lab: ResolvedLab, fleet: Fleet) -> dict[str, Any]:
    """Everything that the file resolves to: containers with devices and every variable of every role, artifacts.

    A service that is exposed because other hosts need it names them (``needed_by``).
    """
    value: dict[str, Any] = plain_value(fleet)
    del value["hosts"]
    for one in value["instances"]:
        del one["status"], one["address"]  # only a host knows them
        one.update({name: _size(one[name]) for name in _SIZES})
        for shown in one["services"]:
            service = lab.services.get(Address.of(one["name"], shown["role"]))
            if service is None:  # it comes with the card
                continue
            shown["expose"] = _expose(service)
            if service.needed_by:
                shown["needed_by"] = [str(user) for user in service.needed_by]
    return value


def yaml_text(value: Mapping[str, Any]) -> str:
    """``value``, made of plain types, as YAML without anchors."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # PyYAML's signature
            return True

    return yaml.dump(dict(value), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110).rstrip("\n")


def _container_value(container: ResolvedContainer, instance: Instance) -> dict[str, Any]:
    value: dict[str, Any] = {
        "host": instance.host,
        "image": instance.image,
        "cpu": instance.cpu,
        "memory": _size(instance.memory),
        "disk": _size(instance.disk),
    }
    if container.written.gpu is not None:
        value["gpu"] = _written(container.written.gpu) or "any"
    shown = {name: one for name, one in value.items() if one is not None}
    return {**shown, "services": {service.role: _service_value(service) for service in container.services}}


def _service_value(service: ResolvedService) -> dict[str, Any]:
    page = service.page
    # the default of a reference to nothing is no name that a file could say
    unsaid = {name for name in page.references if page.options[name].default in ("", [])}
    if not service.share:
        unsaid.add(HOLD_OPTION)  # refused of a service that takes no turns
    defaults = {
        name: option.default
        for name, option in page.options.items()
        if option.default is not None and name not in page.internal | unsaid
    }
    return {**defaults, **service.written, "expose": _expose(service)}


def _expose(service: ResolvedService) -> str:
    return LAN if service.is_on_lan else service.expose


def _written(part: Any) -> dict[str, Any]:
    """The fields of a pydantic value that are set; a secret stays a ``Secret``."""
    fields = {name: value for name, value in dict(part).items() if value not in (None, [])}
    return {name: _written(value) if hasattr(value, "model_fields_set") else value for name, value in fields.items()}


def _size(size: int | None) -> str | None:
    return None if size is None else size_text(size)
