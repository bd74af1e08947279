"""An engine that is measured: where it runs, and by what it is stopped and started. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.services.base import ResolvedService
from provisioner.values.state import Instance

WITHOUT = (
    "/switch/control.py",
    "switch-",
    "OnSuccess=",
    "OnFailure=",
    "StartLimit",
    "Restart",
    "ExecStop=",
    "TimeoutStopSec=",
    "WantedBy=",
)
"""Lines of an engine's unit that lead requests to it, start it again, or have its answers finished."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A service of the file that computes answers, with its container."""

    service: ResolvedService
    instance: Instance

    @property
    def container(self) -> str:
        """Where it runs."""
        return self.service.container

    @property
    def unit(self) -> str:
        """Its unit."""
        return self.service.page.unit or ""

    @property
    def switch(self) -> str:
        """The socket by which the switch before it is asked; empty where there is none."""
        return switch_socket(self.service)


def switch_socket(service: ResolvedService) -> str:
    """The socket by which the switch before a service is asked; empty where there is none."""
    before, unit = service.behind, service.page.unit or ""
    return f"/run/{before}-{unit.removesuffix('.service')}/control.sock" if before else ""
