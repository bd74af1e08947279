"""The registry of providers: one driver per kind of host, which is the folder of that name below this one."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from provisioner.hosts.base import Kind, Provider


def kinds() -> tuple[str, ...]:
    """The kinds of hosts, by their drivers' folders."""
    from pkgutil import iter_modules  # nothing that a run needs

    return tuple(sorted(module.name for module in iter_modules(__path__) if module.ispkg))


def kind_of(name: str) -> Kind:
    """What the driver of that name says of all hosts of its kind."""
    found: Kind = import_module(f"{__name__}.{name}").KIND
    return found


def provider_for(host: str, kind: str, **settings: Any) -> Provider:
    """The provider of host ``host``, one of ``kind``, whose driver is imported now; ``settings``: that driver's own."""
    driver: Provider = import_module(f"{__name__}.{kind}").DRIVER(host, **settings)
    return driver
