"""Ansible callback ``provision_preload``: has ready what workers need before Ansible forks them, one for each task.

A callback is what Ansible loads in its own process before the first task. Modules of Python are loaded once, and
modules of Ansible that an earlier run has packed need not be packed again. Imports of ours stand inside functions: an
ejected lab brings its own copies (``provisioner.eject.eject``).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import ansible
from ansible import constants, context
from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import module_loader, module_utils_loader
from ansible.release import __version__

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
    "provisioner.inside.module_server.handing",
    "provisioner.hosts.incus.api",
    "provisioner.hosts.incus.inside",
    "provisioner.hosts.proxmox.access",
    "provisioner.hosts.proxmox.execute",
    "provisioner.hosts.proxmox.ssh",
    "provisioner.values.errors",
    "provisioner.values.limits",
    "provisioner.values.one_version",
)
"""What each task that runs a module in a container loads."""

OF_ROLES_AND_PLAYBOOKS = ("library", "module_utils")
"""Folders that Ansible searches beside a playbook and in a role."""


def searched() -> list[Path]:
    """The folders in which this run of Ansible looks for modules, and for the library that they import."""
    library = Path(ansible.__file__).parent
    folders = [library / "modules", library / "module_utils"]
    given = context.CLIARGS.get("module_path") or ()
    configured = (*given, *constants.DEFAULT_MODULE_PATH, *constants.DEFAULT_MODULE_UTILS_PATH)
    folders += [Path(folder).expanduser() for folder in configured]
    playbooks = {Path(playbook).resolve().parent for playbook in context.CLIARGS.get("args") or ()}
    of_roles = [Path(folder) for folder in constants.DEFAULT_ROLES_PATH] + [one / "roles" for one in sorted(playbooks)]
    for name in OF_ROLES_AND_PLAYBOOKS:
        folders += [playbook / name for playbook in sorted(playbooks)]
        for roles in of_roles:
            folders += sorted(roles.glob(f"*/{name}"))
    return folders


def load(folder: Path) -> None:
    """Load what tasks load; of ours what is in the folder of packages, where an ejected lab has a part alone."""
    for module in MODULES:
        is_ours = module.startswith("provisioner.")
        if not is_ours or folder.joinpath(*module.split(".")).with_suffix(".py").is_file():
            import_module(module)


def is_all(folders: Iterable[Path]) -> bool:
    """Whether Ansible has looked nowhere else; a playbook may have led it to one that lies in another folder."""
    known = {folder.resolve() for folder in folders}
    for loader in (module_loader, module_utils_loader):
        found = (Path(path).resolve() for path in loader.print_paths().split(os.pathsep))
        if not all(any(path.is_relative_to(folder) for folder in known) for path in found):
            return False
    return True


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core ships no types
    """Lays packed modules ready at the beginning, and keeps those of this run at its end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "provision_preload"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        from provisioner.inside.module_server import packed_modules
        from provisioner.values import paths

        load(paths.PACKAGE.parent)
        self._searched = searched()
        self._run = Path(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache")
        self._kept: Path | None = None
        try:
            self._kept = packed_modules.folder_of(paths.cache(), __version__, self._searched)
            packed_modules.bring(self._kept, self._run)
        except OSError as error:  # they are packed anew
            self._display.v(f"Unable to use modules that were packed before: {error}")

    def v2_playbook_on_play_start(self, play: Any) -> None:  # noqa: ARG002  # Ansible's signature
        """Leave all that is loaded out of garbage collection, which would have each worker copy the pages of it."""
        gc.freeze()

    def v2_playbook_on_stats(self, stats: Any) -> None:  # noqa: ARG002  # Ansible's signature
        """Keep what was packed."""
        from provisioner.inside.module_server import packed_modules

        if self._kept is None or not is_all(self._searched):
            return
        try:
            packed_modules.keep(self._run, self._kept)
        except OSError as error:  # the next run packs them anew
            self._display.v(f"Unable to keep packed modules: {error}")
