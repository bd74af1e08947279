"""``provision cluster check`` where no node is stale: off, cut off, dead, ghosts, leftovers, hosts of no use."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from tests.integration.cluster_box import check, provision, said
from tests.lab.corosync.cluster import Cluster, GuestSpec
from tests.lab.incus import Lab
from tests.lab.pve.ssh_host import NoServerError, ssh_host

pytestmark = [pytest.mark.incus, pytest.mark.corosync]


def new_version(cluster: Cluster) -> int:
    """The members that are there get the next version of the same list, as after any change; the new version."""
    node = cluster.quorate()
    text = node.read("/etc/pve/corosync.conf")
    version = int(re.findall(r"config_version: (\d+)", text)[0]) + 1
    node.write("/etc/pve/corosync.conf.new", re.sub(r"config_version: \d+", f"config_version: {version}", text), 0o640)
    node.run("mv /etc/pve/corosync.conf.new /etc/pve/corosync.conf")
    running = f"corosync-cmapctl totem.config_version | grep -q '= {version}$'"
    for one in cluster.nodes:
        if not one.is_off:
            one.wait("told", lambda one=one: one.can(running))  # type: ignore[misc]
    return version


def test_what_is_said_of_a_node_that_is_off_comes_true_when_it_is_powered_on(cluster: Cluster) -> None:
    cluster.power_off("pve3")
    found = check(cluster, "pve1")
    assert (found.code, found.conditions) == (3, [("offline", "pve3")]), found.raw
    for _ in range(2):
        new_version(cluster)
    found = check(cluster, "pve1")
    assert found.conditions == [("offline", "pve3"), ("do-not-power-on", "pve3")], found.raw
    assert "2 versions behind, its corosync will end itself" in found.of("do-not-power-on")["message"]
    cluster.power_on("pve3")
    node = cluster.node("pve3")
    node.wait("ended", lambda: node.can("journalctl -q -t corosync -g 'Received config version' -n 1 | grep -q ."))
    assert ("behind", "pve3") in check(cluster, "pve1").conditions


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


def test_no_quorum_is_said_with_votes(cluster: Cluster) -> None:
    cluster.power_off("pve2")
    cluster.power_off("pve3")
    found = check(cluster, "pve1")
    assert found.code == 3
    assert ("no-quorum", "") in found.conditions, found.raw
    assert "pve1: 1 of 3 votes, 2 needed" in found.of("no-quorum")["evidence"]
    assert found.result["is_quorate"] is False


def test_dead_corosync_is_told(cluster: Cluster) -> None:
    cluster.node("pve3").run("systemctl stop corosync")
    found = check(cluster, "pve3")
    assert (found.code, found.conditions) == (3, [("corosync-dead", "pve3")]), found.raw


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


def test_unclustered_node_proves_nothing(cluster: Cluster) -> None:
    cluster.make_single("pve3")
    found = check(cluster, "pve3")
    assert (found.code, found.conditions) == (3, [("unclustered", "pve3")]), found.raw


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
