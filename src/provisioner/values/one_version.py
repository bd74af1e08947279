"""Whether the collection that a plugin belongs to is of the version of the installed package.

The collection carries a copy of this file, into which its build writes the collection's version. So it is the
collection that compares, and any package can be told apart, an older one too. Used from the package there is no
collection, and nothing to compare.
"""

from __future__ import annotations

from pathlib import Path

NAME = "provisioner.inference"
COLLECTION = ""
"""The collection's version; empty in the package."""


def refusal(plugin: str) -> str:
    """Why this plugin of the collection may not use the installed package; empty where both are of one version."""
    if not COLLECTION:
        return ""
    try:
        from provisioner import __file__ as package
        from provisioner import __version__ as installed
    except ImportError:  # the plugin itself says that it needs the package
        return ""
    if installed == COLLECTION:
        return ""
    return (
        f"Unable to use {NAME}.{plugin}: the collection {NAME} ({_place()}) is of version {COLLECTION}, "
        f"and the Python package provisioner ({Path(package).parent}) of version {installed}. "
        "Install both of one version."
    )


def _place() -> str:
    """Where the collection lies: a module was packed into an archive, and does not know from where."""
    root = Path(__file__).parents[3]
    return str(root) if root.is_dir() else f"ansible-galaxy collection list {NAME} says where it lies"
