"""How containers of a Proxmox node are reached: every one is in the LAN itself."""

from __future__ import annotations

from provisioner.hosts import base
from provisioner.hosts.proxmox.guest import address_in
from provisioner.hosts.proxmox.host import ProxmoxHost, worded
from provisioner.values.state import Status


class Network(base.Network):
    """The addresses of one node's containers."""

    _host: ProxmoxHost

    def address(self, name: str) -> str | None:
        """The address on its card."""
        host = self._host
        with worded(f"Unable to look at the address of container {name}"):
            vmid = host.find_vmid(name)
            if vmid is None or host.status(vmid) is not Status.RUNNING:
                return None
            return address_in(host.client.find(*host.path(vmid, "interfaces")))
