"""Memory and disks that a plan asks for, held against what the hosts have: before anything is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provisioner.values.capacity import DISK_HINT, MEMORY_HINT
from provisioner.values.errors import ProviderError
from provisioner.values.events import Diagnostic
from provisioner.values.plan import Plan
from provisioner.values.state import Fleet

if TYPE_CHECKING:
    from provisioner.workflow.effects import Effects


def check_capacity(desired: Fleet, plan: Plan, effects: Effects) -> None:
    """Warn of memory that the hosts do not have; raise ``PreflightError`` for disks that they cannot have.

    Only hosts are asked on which something is made or enlarged.
    """
    for name, provider in effects.providers.items():
        growing = plan.growing_on(name)
        if not growing:
            continue
        try:
            has = provider.capacity(growing)
        except ProviderError as error:
            effects.emit(Diagnostic("warning", f"Whether host {name} has room is not known: {error.message}"))
            continue
        for words in has.require_room(name):
            effects.emit(Diagnostic("warning", f"Host {name}: {words}", resolution=DISK_HINT))
        short = has.short_memory(container for container in desired.instances if container.host == name)
        if short:
            effects.emit(Diagnostic("warning", f"Host {name}: {short}", resolution=MEMORY_HINT))
