"""Proxmox VE over its API: every verb of ``Provider``; proxmoxer is imported here only."""
