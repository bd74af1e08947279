"""Ansible callback ``provision_preload``: has ready what workers need before Ansible forks them, one for each task.

A callback is what Ansible loads in its own process before the first task. Modules of Python are loaded once, and
modules of Ansible that an earlier run has packed need not be packed again.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import ansible
from ansible import constants
from ansible.plugins.callback import CallbackBase
from ansible.release import __version__

from provisioner.runner import packed_modules
from provisioner.values import paths

DOCUMENTATION = r"""
name: provision_preload
type: aggregate
author: provisioner
short_description: Has ready what workers need before they are forked
description:
  - Ansible forks a worker for each task and host. What its own process has loaded, they need not load.
  - Modules that an earlier run has packed from the same files are used again.
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
    """Lays packed modules ready at the beginning, and keeps those of this run at its end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "provision_preload"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        library = Path(ansible.__file__).parent
        sources = [library / "modules", library / "module_utils", paths.plugins() / "modules"]
        # A role may bring its own, and a user may lay some over Ansible's.
        sources += sorted([*paths.roles().glob("*/module_utils"), *paths.roles().glob("*/library")])
        sources += [Path(folder) for folder in constants.DEFAULT_MODULE_UTILS_PATH]
        self._run = Path(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache")
        self._kept: Path | None = None
        try:
            self._kept = packed_modules.folder_of(paths.cache(), __version__, sources)
            packed_modules.bring(self._kept, self._run)
        except OSError as error:  # they are packed anew
            self._display.v(f"Unable to use modules that were packed before: {error}")

    def v2_playbook_on_stats(self, stats: Any) -> None:  # noqa: ARG002  # Ansible's signature
        """Keep what was packed."""
        if self._kept is None:
            return
        try:
            packed_modules.keep(self._run, self._kept)
        except OSError as error:  # the next run packs them anew
            self._display.v(f"Unable to keep packed modules: {error}")
