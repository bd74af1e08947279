"""``provision cluster check`` of three nodes: corosync, systemd and ssh are real, and Proxmox VE's programs as slow.

Those are Perl, which takes 1.1 s to start on a node; the double's are slowed by as much. Each check connects anew.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.labs import Labs
from benchmarks.measuring import BIN, ROOT, Cost, Row, cost, cost_row, say
from provisioner.cluster.gather import Reach
from tests.doubles.corosync import machines
from tests.doubles.corosync.cluster import Cluster
from tests.lab.incus import LAB

NODES = ("pve1", "pve2", "pve3")
PROGRAMS = ("pveversion", "ha-manager")
CHECK = f"cluster check, {len(NODES)} nodes"
SLOW = """
for one in {programs}; do
  mv "/usr/bin/$one" "/usr/bin/$one.quick"
  printf '#!/bin/sh\\nsleep 1.1\\nexec /usr/bin/%s.quick "$@"\\n' "$one" >"/usr/bin/$one"
  chmod 0755 "/usr/bin/$one"
done
"""


def rows(_labs: Labs, rounds: int) -> list[Row]:
    """Seconds of a check of a healthy cluster."""
    machines.remove_dead(LAB)
    with (
        tempfile.TemporaryDirectory(prefix="bench-cluster-") as folder,
        closing(Cluster(machines.create(LAB, list(NODES), machines.owner()), Path(folder))) as cluster,
    ):
        cluster.heal()
        for node in cluster.nodes:
            node.run(SLOW.format(programs=" ".join(PROGRAMS)))
        return rows_of([_check(cluster) for _ in range(rounds)])


def rows_of(taken: Sequence[Cost]) -> list[Row]:
    """The row of what the checks took."""
    return [cost_row(CHECK, taken)]


def _check(cluster: Cluster) -> Cost:
    for node in cluster.nodes:
        Reach(node.name, f"root@{node.address}", cluster.ssh_config).shell.close()
    asked = f"root@{cluster.nodes[0].address}"
    taken = cost([str(BIN / "provision"), "cluster", "check", asked], cluster.environment, ROOT)
    say(f"{CHECK}: {taken.wall_s:.2f} s")
    return taken
