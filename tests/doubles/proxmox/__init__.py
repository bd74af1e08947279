"""A double of Proxmox VE's HTTPS API for tests: a cluster in memory that answers as Proxmox VE 9.2 does.

Calls are checked against the schema of a live server (``api-schema.json``). ``README.md`` says what it plays, what it
does not, and what it was held against. Where nothing was measured or read, it takes the strictest reading.
"""

from tests.doubles.proxmox.double import Double, double

__all__ = ["Double", "double"]
