"""``provision cluster watch`` on real corosync: a line for each change, fit for a timer."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.doubles.corosync.cluster import Cluster
from tests.integration.cluster.cluster_box import provision, stream_of
from tests.integration.cluster.rejoin_lab import PROGRAM
from tests.processes import killed_at_end
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.incus, pytest.mark.corosync]

Change = tuple[str, str, bool]
LOST = ("change", "membership", "pve1")


def once(cluster: Cluster, state: Path, name: str = "pve1") -> tuple[int, list[Change]]:
    environment = {**cluster.environment, "XDG_STATE_HOME": str(state)}
    words = ("cluster", "watch", f"root@{cluster.node(name).address}", "--once", "--json")
    done: subprocess.CompletedProcess[str] = provision(environment, *words)
    lines = stream_of(done)
    return done.returncode, [(one["kind"], one["node"], one["is_worse"]) for one in lines if one["type"] == "change"]


def test_timer_is_told_of_a_lost_node_and_of_its_return(cluster: Cluster, tmp_path: Path) -> None:
    assert once(cluster, tmp_path) == (0, [])
    assert once(cluster, tmp_path) == (0, [])
    cluster.node("pve3").run("systemctl stop corosync")
    code, changes = once(cluster, tmp_path)
    assert code == 3
    assert ("membership", "pve3", True) in changes
    assert once(cluster, tmp_path) == (0, [])
    cluster.node("pve3").run("systemctl start corosync pve-cluster")
    cluster.node("pve1").wait("all joined", lambda: cluster.node("pve1").is_quorate(3))
    cluster.node("pve3").wait("quorate", lambda: cluster.node("pve3").is_quorate(3))
    code, changes = once(cluster, tmp_path)
    assert code == 0
    assert ("membership", "pve3", False) in changes


@pytest.mark.slow
def test_watch_goes_on_when_the_node_that_it_asks_loses_power(cluster: Cluster, tmp_path: Path) -> None:
    """Nobody closes its connection, so that the next command on it hangs."""
    environment = {**os.environ, **cluster.environment, "XDG_STATE_HOME": str(tmp_path)}
    address = cluster.node("pve1").address
    words = ["cluster", "watch", f"root@{address}", "--interval", "1", "--json"]
    with killed_at_end(
        subprocess.Popen([PROGRAM, *words], env=environment, stdout=subprocess.PIPE, text=True), grace_s=PATIENCE_S
    ) as watch:
        assert watch.stdout
        lines = map(json.loads, watch.stdout)
        assert any(one["type"] == "look" for one in lines)
        cluster.power_off("pve1")
        ended = provision(environment, "cluster", "check", f"root@{address}")
        assert ended.returncode == 4, ended.stderr
        assert any((one["type"], one.get("kind"), one.get("node")) == LOST for one in lines)
        assert watch.poll() is None


@pytest.mark.slow
def test_rejected_packets_and_the_new_version_are_told(cluster: Cluster, tmp_path: Path) -> None:
    assert once(cluster, tmp_path) == (0, [])
    cluster.make_stale("pve3", "readdr")
    code, changes = once(cluster, tmp_path)
    assert code == 3
    assert ("version", "", False) in changes
    assert ("version", "pve3", True) in changes
    assert ("rejected", "pve1", True) in changes
    assert ("rejected", "pve2", True) in changes
