"""A cluster of real corosync nodes with stand-ins for Proxmox VE's own programs, in containers of the test lab."""
