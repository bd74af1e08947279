"""Everything here is asked of a double of Proxmox VE."""

from __future__ import annotations

from tests.doubles.proxmox.fixture import pve

__all__ = ["pve"]
