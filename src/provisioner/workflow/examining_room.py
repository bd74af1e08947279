"""The verb ``doctor``: memory, disks and ports that a file asks for, held against one of its hosts."""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.doctor.diagnosis import Diagnosis, Verdict, diagnosed
from provisioner.lab.opening import Lab
from provisioner.providers.base import Provider
from provisioner.reconcile.capacity import PORTS_HINT, taken_ports
from provisioner.reconcile.plan import make_plan
from provisioner.values.capacity import DISK_HINT, MEMORY_HINT
from provisioner.values.plan import ImpossiblePlanError
from provisioner.values.state import Fleet


def room_diagnoses(lab: Lab, desired: Fleet, there: Fleet, provider: Provider) -> Iterator[Diagnosis]:
    """Yield which ports of the provider's host are taken, what was seen of its memory, and which storages are tight.

    Raises ``PreflightError`` in the end for new disks that the host cannot have.
    """
    host = provider.host
    containers = tuple(container for container in desired.instances if container.host == host)
    taken = "; ".join(taken_ports(lab, containers, there))
    if taken:
        yield diagnosed(host, "ports", Verdict("", taken, PORTS_HINT))
    try:
        plan = make_plan(Fleet(lab.name, containers), there)
    except ImpossiblePlanError as error:
        plan = error.plan
    has = provider.capacity(plan.growing_on(host))
    short = has.short_memory(containers)
    if short:
        yield diagnosed(host, "memory", Verdict(short, warning=MEMORY_HINT))
    elif has.memory:
        yield diagnosed(host, "memory", Verdict("it has what the containers of the file may take together"))
    for words in has.require_room(host):
        yield diagnosed(host, "room", Verdict(words, warning=DISK_HINT))
