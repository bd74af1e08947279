"""From the file to the lab that it asks for: ``resolve``, ``problems`` (all at once) and ``desired_fleet``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from provisioner.lab.artifacts import ModelFile
from provisioner.lab.resolved import Known, ResolvedLab, resolve
from provisioner.lab.rules import problems
from provisioner.labfile.spec import LOCAL_HOST

if TYPE_CHECKING:
    from provisioner.values.state import Fleet, HostState

__all__ = [
    "LOCAL_HOST",
    "Known",
    "ModelFile",
    "ResolvedLab",
    "desired_fleet",
    "images_by_host",
    "problems",
    "resolve",
]


def desired_fleet(
    lab: ResolvedLab, files: Mapping[str, ModelFile], hosts: Mapping[str, HostState] | None = None
) -> Fleet:
    """The lab as the file wants it (``fleet.desired_fleet``), whose module no file needs that is only checked."""
    from provisioner.lab import fleet

    return fleet.desired_fleet(lab, files, hosts)


def images_by_host(lab: ResolvedLab) -> dict[str, frozenset[str]]:
    """The images that the file's containers are made of (``fleet.images_by_host``)."""
    from provisioner.lab import fleet

    return fleet.images_by_host(lab)
