"""Where roles, playbooks and inventory templates are, in a checkout or a wheel; where a lab keeps its things."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT = PACKAGE.parents[1]


def share() -> Path:
    """The folder of ``roles/``, ``playbooks/`` and ``inventory/``: the checkout, else the wheel's copy."""
    if PACKAGE.parent.name == "src" and (_CHECKOUT / "pyproject.toml").is_file():
        return _CHECKOUT
    return PACKAGE / "share"


def roles() -> Path:
    """The folder of all roles."""
    return share() / "roles"


def playbooks() -> Path:
    """The folder of all playbooks."""
    return share() / "playbooks"


def inventory_templates() -> Path:
    """The folder of the inventory templates."""
    return share() / "inventory"


def plugins() -> Path:
    """The folder of our Ansible plugins: ``connection/``, ``lookup/``, ``callback/``, ``modules/``."""
    return PACKAGE / "ansible"


def data() -> Path:
    """The folder of the package's data files."""
    return PACKAGE / "data"


def cache() -> Path:
    """What can be made again but costs time: images, built artifacts (``$XDG_CACHE_HOME/provisioner``)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "provisioner"


def state(lab: str) -> Path:
    """What a lab has learned and nobody could make again (``$XDG_STATE_HOME/provisioner/<lab>``)."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "provisioner" / lab


def config() -> Path:
    """What this user shows others, such as a client certificate (``$XDG_CONFIG_HOME/provisioner``)."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "provisioner"


def lab_folder(file: Path) -> Path:
    """``.provision/`` beside the file: only what can be rebuilt."""
    return file.resolve().parent / ".provision"


def lock_file(file: Path) -> Path:
    """The lock file of a lab's file: ``homelab.lock`` of ``homelab.yml``."""
    return file.with_suffix(".lock")
