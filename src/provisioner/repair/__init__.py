"""The diagnosis of a Proxmox VE cluster from gathered facts, and what may be done about it; all of it is pure."""
