"""A double of Proxmox VE's HTTPS API for tests: a cluster in memory that answers as PVE 9.2 does.

What it answers was measured on a real control plane, or read in PVE's own source; calls are checked against PVE's own
schema (``tests/data/pve-api-schema.json``). Where neither says anything, the strictest reading was taken:

* A template that is compressed or named in whatever way unpacks, unless the test has declared it corrupt.
* A full storage refuses what is larger than what is left, also where thin volumes would let it pass at first.
* Volumes on a storage of type ``dir`` are raw files: no snapshots (``snapshot feature is not available``).
* A bridge is looked for at start and at a change, not when a container is created.
* ``/cluster/resources`` shows a guest's state as its node last told it (every 10 s); tags and lock are live.
* A start after a create is a task of its own, which the create does not wait for.

Where it knows less than PVE, it says so: a method of the schema that is not built answers 501 and is noted in
``world.unanswered``, so that no test can take it for PVE's word. Known to differ: ``/api2/extjs`` and web sockets are
not there; realms are ``pam`` and ``pve`` only; a second factor is asked for and never taken; what PVE has beyond the
136 paths of the schema (virtual machines, Ceph) looks as if it were not there.
"""

from tests.lab.pve.double import Double, double

__all__ = ["Double", "double"]
