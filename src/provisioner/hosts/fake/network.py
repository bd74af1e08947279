"""How the fake's containers are reached, and what they reach."""

from __future__ import annotations

from dataclasses import replace

from provisioner.hosts import base
from provisioner.hosts.fake.world import World
from provisioner.values.state import Device, Instance


class Network(base.Network):
    """The network of one world."""

    _host: World

    def confine(self, instance: Instance) -> str:
        """Note what the container is held to."""
        container = self._host.existing(instance, "keep in")
        container.instance = replace(container.instance, reaches=instance.reaches, refused_by=self._host.refusal)
        return self._host.refusal

    def publications(self, name: str) -> tuple[Device, ...]:
        """Return those of the container, and of ``profile``."""
        container = self._host.container(name, f"Unable to look at container {name}")
        devices = (*container.instance.devices, *self._host.profile)
        return tuple(device for device in devices if device.kind == "publish")

    def address(self, name: str) -> str | None:
        """What it was given when it was ready."""
        found = self._host.containers.get(name)
        return found.instance.address if found else None
