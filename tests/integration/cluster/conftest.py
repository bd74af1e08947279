"""The nodes of this folder's tests: made for the first that needs them, gone with the last test of the folder."""

from __future__ import annotations

from tests.doubles.corosync.fixture import cluster, cluster_of_five, five_nodes, three_nodes

__all__ = ["cluster", "cluster_of_five", "five_nodes", "three_nodes"]
