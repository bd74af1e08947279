"""Everything here is asked of a double of Proxmox VE."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doubles.proxmox import Double
from tests.doubles.proxmox.client import proxmoxer
from tests.doubles.proxmox.fixture import pve

__all__ = ["api", "pve"]


@pytest.fixture
def api(pve: Double) -> Any:
    """Proxmoxer's client, as root@pam."""
    return proxmoxer(pve)
