"""``provision cluster check`` where no node is stale: off, cut off, dead, ghosts, leftovers, hosts of no use."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.doubles.corosync.cluster import Cluster, GuestSpec
from tests.doubles.proxmox.ssh_host import NoServerError, ssh_host
from tests.integration.cluster.cluster_box import check, provision, said
from tests.lab.incus import Lab

pytestmark = [pytest.mark.incus, pytest.mark.corosync]


@pytest.mark.slow
def test_last_version_is_taken_from_the_user_where_nobody_knows_it(cluster: Cluster) -> None:
    cluster.power_off("pve3")
    for name in ("pve1", "pve2"):  # what corosync knew of it ends with corosync
        node = cluster.node(name)
        node.run("systemctl restart corosync pve-cluster")
        node.wait("quorate", lambda node=node: node.is_quorate(2))  # type: ignore[misc]
    unseen = check(cluster, "pve1").of("do-not-power-on")
    assert "not known" in unseen["message"]
    assert "--last-version pve3=N" in unseen["advice"]
    assert "1 version behind" in check(cluster, "pve1", "--last-version", "pve3=6").of("do-not-power-on")["message"]
    assert check(cluster, "pve1", "--last-version", "7").conditions == [("offline", "pve3")]


def test_dead_corosync_lost_quorum_and_a_single_node_are_told_and_nothing_is_repaired_then(
    cluster: Cluster, tmp_path: Path
) -> None:
    environment = {**cluster.environment, "XDG_STATE_HOME": str(tmp_path)}
    first, third = (f"root@{cluster.node(name).address}" for name in ("pve1", "pve3"))
    cluster.node("pve3").run("systemctl stop corosync")
    found = check(cluster, "pve3")
    assert (found.code, found.conditions) == (3, [("corosync-dead", "pve3")]), found.raw

    cluster.node("pve2").run("systemctl stop corosync")
    cluster.node("pve1").wait("without quorum", lambda: not cluster.node("pve1").is_quorate())
    found = check(cluster, "pve1")
    assert (found.code, found.result["is_quorate"]) == (3, False)
    assert ("no-quorum", "") in found.conditions, found.raw
    assert "pve1: 1 of 3 votes, 2 needed" in found.of("no-quorum")["evidence"]
    for words in (("rejoin", "pve3"), ("forget", "pve3", "--off-for-good", "pve3")):
        refused = said(provision(environment, "cluster", *words, first, "--yes", "--json"))
        assert (refused.code, "no node that answers" in refused.diagnostic["message"]) == (4, True), refused.raw

    cluster.make_single("pve3")
    cluster.node("pve3").run("mkdir -p /etc/pve/nodes/oldname/lxc")
    found = check(cluster, "pve3")
    assert (found.code, found.conditions) == (3, [("unclustered", "pve3")]), found.raw
    refused = said(provision(environment, "cluster", "forget", "oldname", third, "--yes", "--json"))
    assert (refused.code, "it is in no cluster" in refused.diagnostic["message"]) == (4, True), refused.raw
    assert "oldname" in cluster.node("pve3").run("ls /etc/pve/nodes")


@pytest.mark.slow
def test_node_that_is_cut_off_is_told_from_a_stale_one(cluster: Cluster) -> None:
    cluster.partition(["pve1", "pve2"], ["pve3"])
    found = check(cluster, "pve1")
    assert (found.code, found.conditions) == (3, [("partition", "pve3")]), found.raw


def test_ghosts_are_told_with_their_guests(cluster: Cluster) -> None:
    cluster.add_ghost("old", guests=[GuestSpec(103, volumes=("local-lvm:vm-103-disk-0",))])
    cluster.add_ghost("older")
    found = check(cluster, "pve2")
    told = [one for one in found.conditions if one[0].startswith("ghost")]
    assert told == [("ghost-with-guests", "old"), ("ghost", "older")], found.raw
    assert any("lxc 103 ct103: local-lvm:vm-103-disk-0" in line for line in found.of("ghost-with-guests")["evidence"])


@pytest.mark.slow
def test_removed_node_that_is_off_is_a_ghost_with_leftovers(cluster: Cluster) -> None:
    cluster.make_stale("pve3", "removed")
    cluster.power_off("pve3")
    found = check(cluster, "pve1")
    assert found.conditions == [("ghost", "pve3"), ("leftovers", "pve3")], found.raw


@pytest.mark.slow
def test_hanging_pmxcfs_does_not_hang_the_check(cluster: Cluster) -> None:
    node = cluster.node("pve2")
    pid = node.read("/run/pve-cluster.pid").strip()
    try:
        node.run(f"kill -STOP {pid}")
        found = check(cluster, "pve2")
    finally:
        node.run(f"kill -CONT {pid}")
    assert found.code == 3
    assert ("unknown", "pve2") in found.conditions, found.raw
    assert any("did not answer in time" in line for line in found.of("unknown")["evidence"])


def test_member_whose_host_key_is_unknown_is_not_called_healthy(cluster: Cluster, tmp_path: Path) -> None:
    lines = (cluster.folder / "known_hosts").read_text(encoding="ascii").splitlines()
    known, config = tmp_path / "known_hosts", tmp_path / "ssh_config"
    kept = [line for line in lines if not line.startswith(f"{cluster.node('pve2').address} ")]
    known.write_text("\n".join([*kept, ""]), encoding="ascii")
    text = cluster.ssh_config.read_text(encoding="ascii")
    config.write_text(text.replace(str(cluster.folder / "known_hosts"), str(known)), encoding="ascii")
    found, asked = (check(cluster, name, config=config) for name in ("pve1", "pve2"))
    assert (found.code, found.conditions) == (3, [("unknown", "pve2")]), found.raw
    assert "host key" in found.of("unknown")["evidence"][0].lower()
    assert asked.code == 4
    assert "ssh-keyscan" in asked.diagnostic["resolution"]


def test_host_that_is_no_proxmox_is_refused(incus_lab: Lab) -> None:
    with tempfile.TemporaryDirectory(prefix="ssh-") as folder:
        (Path(folder) / "bin").mkdir()
        try:
            with ssh_host(incus_lab, Path(folder), Path(folder) / "bin") as host:
                environment = {"PROVISION_SSH_CONFIG": str(host.config)}
                found = said(provision(environment, "cluster", "check", host.destination, "--json"))
        except NoServerError as error:
            pytest.skip(str(error))
    assert found.code == 4
    assert "is no Proxmox VE host" in found.diagnostic["message"]


def test_secrets_stay_on_the_nodes(cluster: Cluster) -> None:
    """A guest's password, the key of corosync and those of /etc/pve/priv are in nothing that is said."""
    node = cluster.node("pve1")
    guest = b"name: vm\ncipassword: canary-7d1f\nscsi0: local-lvm:vm-150-disk-0\n"
    node.run("cat > /etc/pve/nodes/pve1/qemu-server/150.conf", stdin=guest)
    node.run("printf 'ssh-rsa AAAAcanary7d1f root@pve1\\n' >> /etc/pve/priv/authorized_keys")
    found = check(cluster, "pve2", "-v")
    assert 150 in found.result["nodes"][0]["guests"]["pve1"]
    assert "canary" not in found.raw
