"""From the file to the lab that it asks for: ``resolve``, ``problems`` (all at once) and ``desired_fleet``. Pure."""

from __future__ import annotations

from provisioner.lab.artifacts import ModelFile
from provisioner.lab.fleet import desired_fleet, images_by_host
from provisioner.lab.resolved import Known, ResolvedLab, resolve
from provisioner.lab.rules import problems
from provisioner.labfile.spec import LOCAL_HOST

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
