"""How containers of a Proxmox node are reached, every one of which is in the LAN itself, and what they reach."""

from __future__ import annotations

from provisioner.hosts import base
from provisioner.hosts.proxmox import confinement
from provisioner.hosts.proxmox.guest import address_in
from provisioner.hosts.proxmox.host import ProxmoxHost, worded
from provisioner.values.state import Instance, Status


class Network(base.Network):
    """The addresses of one node's containers, and their firewalls."""

    _host: ProxmoxHost

    def confine(self, instance: Instance) -> str:
        """Write rules into the container's own firewall, as addresses are now."""
        with worded(f"Unable to keep container {instance.name} in"):
            return confinement.hold(self._host, instance)

    def address(self, name: str) -> str | None:
        """The address on its card."""
        host = self._host
        with worded(f"Unable to look at the address of container {name}"):
            vmid = host.find_vmid(name)
            if vmid is None or host.status(vmid) is not Status.RUNNING:
                return None
            return address_in(host.client.find(*host.path(vmid, "interfaces")))
