"""Plans for the tests of what is looked at before one is carried out, and tokens that may do only some things."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from provisioner.hosts.proxmox.access import Access
from provisioner.labfile.hosts import ProxmoxContainer, ProxmoxHost
from provisioner.values.plan import Action, Change
from provisioner.values.state import Artifact, Device, Instance, Secret, Service, Status
from tests.doubles.proxmox import Double

GIB = 2**30
PAGE = (Path(__file__).parents[4] / "docs" / "proxmox.md").read_text()
ROLE = frozenset(re.findall(r'pveum role add Provisioner --privs "([^"]+)"', PAGE)[0].split())
"""What the page says that a token needs."""
BASE = Service("base", "web", "base", {})
ARTIFACT = Artifact("tool", "pve", "ab" * 32, "tool", "/opt/tool", "debian/12", mounted_at=f"/opt/tool/{'ab' * 8}")


def wanted(name: str = "web", **changes: Any) -> Instance:
    """A container as a file asks for it; ``proxmox`` is its block of that name."""
    host = ProxmoxHost.model_validate({"proxmox": "https://pve:8006", "user": "root@pam", "password": Secret("p", "x")})
    settings = host.settings_of(ProxmoxContainer.model_validate(changes.pop("proxmox", {})))
    given = {"image": "debian/12", "memory": GIB, "disk": 4 * GIB, "settings": settings, **changes}
    return Instance(name, "pve", "homelab", **given)


def there(instance: Instance, vmid: int = 105, **settings: Any) -> Instance:
    """The same as a node shows it."""
    seen = {**instance.settings, "vmid": vmid, "storage": "local-lvm", **settings}
    return dataclasses.replace(instance, settings=seen, status=Status.RUNNING)


def creation(instance: Instance) -> Change:
    """That it is made."""
    return Change("create", instance.name, None, instance, "in the file, not on the host")


def update(before: Instance, after: Instance) -> Change:
    """That it is changed."""
    return Change("update", after.name, before, after, "differs")


def step(action: Action, instance: Instance) -> Change:
    """Anything else that is done to one that is there."""
    return Change(action, instance.name, instance, instance, "was asked for")


def published() -> Device:
    """A port of the host that leads into a container."""
    return Device("lan", "publish", {"listen": "0.0.0.0:80", "connect": "127.0.0.1:80"})


def limited(
    pve: Double, access: Access, *, without: frozenset[str] = frozenset(), paths: tuple[str, ...] = ("/",)
) -> Access:
    """The token of a user who has, on ``paths``, what the page says, but for some privileges."""
    known = pve.world.access
    known.add_user("penny@pve", "unused")
    known.permissions.add_role("Provisioner", *(ROLE - without))
    for path in paths:
        known.permissions.grant(path, "penny@pve", "Provisioner")
    secret = known.add_token("penny@pve", "lab", privsep=False)
    return dataclasses.replace(access, user="penny@pve", token_id="lab", token_secret=Secret("token", secret))


def down(*nodes: str) -> Callable[[Double], None]:
    """Return what takes these nodes down, or nothing."""

    def take_down(pve: Double) -> None:
        for node in nodes:
            pve.take_down(node)

    return take_down
