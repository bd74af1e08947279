"""The fixtures ``cluster`` (three nodes) and ``cluster_of_five``: made once for a folder, each test finds all well.

They belong to the package whose ``conftest.py`` imports them, so that no node runs on beside other folders' tests.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.doubles.corosync import machines
from tests.doubles.corosync.cluster import Cluster
from tests.lab.incus import Lab


def _nodes(lab: Lab, count: int) -> Iterator[Cluster]:
    machines.remove_dead(lab)
    nodes = machines.create(lab, [f"pve{n}" for n in range(1, count + 1)], machines.owner())
    with closing(Cluster(nodes, Path(tempfile.mkdtemp(prefix="corosync-")))) as made:
        yield made


@pytest.fixture(scope="package")
def three_nodes(incus_lab: Lab) -> Iterator[Cluster]:
    """Three nodes; use ``cluster``, which is healthy."""
    yield from _nodes(incus_lab, 3)


@pytest.fixture(scope="package")
def five_nodes(incus_lab: Lab) -> Iterator[Cluster]:
    """Five nodes; use ``cluster_of_five``, which is healthy."""
    yield from _nodes(incus_lab, 5)


@pytest.fixture
def cluster(three_nodes: Cluster) -> Cluster:
    """pve1, pve2 and pve3, quorate, with nothing else."""
    three_nodes.heal()
    return three_nodes


@pytest.fixture
def cluster_of_five(five_nodes: Cluster) -> Cluster:
    """pve1 to pve5, quorate, with nothing else."""
    five_nodes.heal()
    return five_nodes
