"""Everything here is asked of a double of Proxmox VE."""

from __future__ import annotations

from tests.lab.pve.fixture import pve

__all__ = ["pve"]
