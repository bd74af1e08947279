"""Ansible callback ``provision_preload``: loads what workers need before Ansible forks them, one for each task.

A callback is what Ansible loads in its own process before the first task. It listens to nothing.
"""

from __future__ import annotations

from importlib import import_module

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: provision_preload
type: aggregate
author: provisioner
short_description: Loads what workers need before they are forked
description:
  - Ansible forks a worker for each task and host. What its own process has loaded, they need not load.
"""

MODULES = (
    "ansible.executor.module_common",
    "ansible.module_utils.basic",
    "ansible.plugins.action.command",
    "ansible.plugins.action.normal",
    "ansible.plugins.shell.sh",
    "provisioner.module_server.handing",
    "provisioner.providers.incus.endpoint",
    "provisioner.providers.incus.inside",
    "provisioner.providers.proxmox.access",
    "provisioner.providers.proxmox.framing",
    "provisioner.providers.proxmox.inside",
    "provisioner.providers.proxmox.pct",
    "provisioner.providers.proxmox.shell",
    "provisioner.values.errors",
    "provisioner.values.limits",
)
"""What each task that runs a module in a container loads."""

for _module in MODULES:
    import_module(_module)


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core ships no types
    """Listens to nothing."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "provision_preload"
