"""From the file to the lab it asks for: ``problems`` (cross-rules, all at once) and ``desired_fleet``. Pure."""

from __future__ import annotations

from provisioner.lab.artifacts import ModelFile
from provisioner.lab.fleet import desired_fleet, images_by_host
from provisioner.lab.hosts import LOCAL_HOST, host_of, hosts_of
from provisioner.lab.rules import problems

__all__ = ["LOCAL_HOST", "ModelFile", "desired_fleet", "host_of", "hosts_of", "images_by_host", "problems"]
