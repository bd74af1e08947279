"""Names the modules that a plugin of ours imports, and has its copy in an ejected folder find them. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath

PRELOAD = "provision_preload"
"""The callback that has ready what tasks load, as one process for each of them would load it again."""

SUPPORT = {
    PRELOAD: ("module_server/packed_modules", "values/paths"),
    "provision_incus": (
        "values/errors",
        "values/limits",
        "values/one_version",
        "module_server/client",
        "module_server/handing",
        "module_server/server",
        "module_server/start",
        "module_server/stop",
        "values/plain_data",
        "values/regular_files",
        "values/declared",
        "values/state",
        "values/address",
        "providers/incus/client",
        "providers/incus/distrust",
        "providers/incus/endpoint",
        "providers/incus/execute",
        "providers/incus/failures",
        "providers/incus/files",
        "providers/incus/graphics",
        "providers/incus/stopping",
        "providers/incus/inside",
        "providers/incus/tls",
        "providers/incus/translate",
        "providers/incus/websocket",
        "providers/incus/wire",
    ),
    "provision_proxmox": (
        "values/errors",
        "values/limits",
        "values/one_version",
        "module_server/client",
        "module_server/handing",
        "module_server/server",
        "module_server/start",
        "module_server/stop",
        "values/plain_data",
        "values/declared",
        "values/state",
        "values/address",
        "providers/proxmox/access",
        "providers/proxmox/framing",
        "providers/proxmox/frozen",
        "providers/proxmox/inside",
        "providers/proxmox/pct",
        "providers/proxmox/shell",
        "providers/proxmox/ssh_failures",
        "providers/proxmox/ssh_socket",
    ),
}
"""By plugin, the modules below ``provisioner``; a test runs each plugin with these alone."""

FOLDER = "python"
_TAIL = f"""

# Ejected: what this plugin imports lies beside it.
import sys  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "{FOLDER}"))
"""


def plugin_text(text: str) -> str:
    """The text of a plugin that finds its imports, which stand inside functions, in the folder beside it."""
    return text.rstrip("\n") + "\n" + _TAIL


def packages_of(modules: tuple[str, ...]) -> set[str]:
    """The folders that need an ``__init__.py``, each below ``FOLDER``."""
    folders = set()
    for module in modules:
        for parent in PurePosixPath("provisioner", module).parents:
            folders.add(str(parent))
    return folders - {"."}
