"""From the file to the lab it asks for: ``problems`` (cross-rules, all at once) and ``desired_fleet``. Pure."""

from __future__ import annotations

from provisioner.resolve.artifacts import ModelFile
from provisioner.resolve.fleet import desired_fleet, images_by_host
from provisioner.resolve.hosts import LOCAL_HOST, host_of, hosts_of
from provisioner.resolve.rules import problems

__all__ = ["LOCAL_HOST", "ModelFile", "desired_fleet", "host_of", "hosts_of", "images_by_host", "problems"]
