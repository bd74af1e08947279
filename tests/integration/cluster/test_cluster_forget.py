"""``provision cluster forget`` on real corosync: what is off for good or a ghost goes; nothing else ever does."""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.doubles.corosync.cluster import Cluster, GuestSpec
from tests.integration.cluster.cluster_box import Said, check, provision, said

pytestmark = [pytest.mark.incus, pytest.mark.corosync]

STORAGES = "lvmthin: local-lvm\n\tvgname pve\n\nnfs: big\n\tpath /mnt/pve/big\n\tnodes pve1,pve3\n"
PVESM = """\
#!/bin/sh
# pvesm set NAME --nodes LIST, as storage.cfg has it afterwards
set -e
[ "$1" = set ] && [ "$3" = --nodes ]
sed "/: $2\\$/,/^\\$/s/nodes .*/nodes $4/" /etc/pve/storage.cfg > /tmp/storage.cfg
cat /tmp/storage.cfg > /etc/pve/storage.cfg
"""


def forget(cluster: Cluster, state: Path, *words: str, asked: str = "pve1") -> Said:
    """``cluster forget``, asked of that node; what it keeps lies in ``state``."""
    node, *options = words
    environment = {**cluster.environment, "XDG_STATE_HOME": str(state)}
    host = f"root@{cluster.node(asked).address}"
    return said(provision(environment, "cluster", "forget", node, host, *options, "--json"))


def listing(cluster: Cluster, name: str = "pve1") -> str:
    """All that ``/etc/pve`` has on a node, names and contents."""
    return cluster.node(name).run("cd /etc/pve && find . -type f ! -path './.*' | sort | xargs sha256sum")


def write(cluster: Cluster, path: str, text: str) -> None:
    """A file in ``/etc/pve``."""
    cluster.node("pve1").run(f"mkdir -p $(dirname /etc/pve/{path}); cat > /etc/pve/{path}", stdin=text.encode())


def files(folders: Sequence[str], pattern: str) -> list[Path]:
    """The files of that name in the folders of runs."""
    return sorted(file for folder in folders for file in Path(folder).rglob(pattern))


@pytest.mark.slow
def test_a_removed_node_that_corosync_has_forgotten_is_not_forgotten_while_it_answers(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.add_guest("pve3", 103, volumes=("big:103/disk.raw",))
    cluster.make_stale("pve3", "removed")
    for name in ("pve1", "pve2"):  # what corosync remembers of a node ends with corosync
        cluster.node(name).run("systemctl restart corosync")
        cluster.node(name).wait("of two", partial(cluster.node(name).is_quorate, 2))
    ended = forget(cluster, tmp_path, "pve3", "--archive-guests", "--yes")
    assert ended.code == 4, ended.raw
    assert "provision cluster rejoin pve3" in ended.diagnostic["details"]
    assert cluster.node("pve1").can("test -e /etc/pve/nodes/pve3/lxc/103.conf")


@pytest.mark.slow
def test_an_off_member_is_forgotten_with_everything_that_it_leaves_behind(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_guest("pve3", 103, volumes=("local-lvm:vm-103-disk-0", "big:103/disk.raw"))
    write(cluster, "storage.cfg", STORAGES)
    for name in ("pve1", "pve2"):  # whichever takes the lead
        cluster.node(name).write("/usr/bin/pvesm", PVESM, 0o755)
    address = cluster.node("pve3").address
    cluster.shut_down("pve3")
    before = listing(cluster)
    merely = forget(cluster, tmp_path, "pve3", "--yes")
    assert (merely.code, "pve3 may be merely off" in merely.diagnostic["details"]) == (4, True), merely.raw
    assert forget(cluster, tmp_path, "pve3", "--off-for-good", "pve2", "--yes").code == 64
    words = ("pve3", "--off-for-good", "pve3", "--move-guests-to", "pve2", "--storages")

    dry = forget(cluster, tmp_path, *words)
    assert (dry.code, dry.result["is_done"]) == (0, False), dry.raw
    assert listing(cluster) == before
    assert dry.result["guests"][0]["disks"] == [
        ["local-lvm:vm-103-disk-0", "local: gone with the node"],
        ["big:103/disk.raw", "shared: it is still there"],
    ]

    with cluster.quorum_tracker(["pve1", "pve2"]) as tracker:
        done = forget(cluster, tmp_path, *words, "--yes", asked="pve2")
    assert tracker.lost == []
    assert done.code == 0, done.raw
    assert [Path(one).name.split("-", 1)[1] for one in done.result["records"]] == [
        "retired-node-pve3",
        "ghost-node-pve3",
        "removed-node-leftovers-pve3",
    ]
    assert_nothing_names(cluster, address)
    assert check(cluster, "pve1").conditions == [("healthy", "")]

    again = forget(cluster, tmp_path, "pve3", "--yes")
    assert (again.code, again.result["runbooks"], again.result["is_done"]) == (0, [], True), again.raw


def assert_nothing_names(cluster: Cluster, address: str) -> None:
    """Nothing in ``/etc/pve`` names pve3, which had that address, and what names pve2 is still there."""
    node = cluster.node("pve1")
    assert [one.name for one in cluster.members()] == ["pve1", "pve2"]
    assert node.run("ls /etc/pve/nodes").split() == ["pve1", "pve2"]
    assert json.loads(node.read("/etc/pve/.vmlist"))["ids"]["103"]["node"] == "pve2"
    assert "root@pve3" not in node.read("/etc/pve/priv/authorized_keys")
    assert "root@pve2" in node.read("/etc/pve/priv/authorized_keys")
    hosts = node.read("/etc/pve/priv/known_hosts")
    assert "pve3" not in hosts
    assert address not in hosts
    assert "pve2" in hosts
    assert "nodes pve1\n" in node.read("/etc/pve/storage.cfg")


def test_a_ghost_goes_when_its_guests_have_a_place(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_ghost("pve9", [GuestSpec(109, "lxc", ("local-lvm:vm-109-disk-0",)), GuestSpec(110, "qemu")])
    node = cluster.node("pve1")
    folders = {109: "lxc", 110: "qemu-server"}
    kept = {vmid: node.read(f"/etc/pve/nodes/pve9/{folder}/{vmid}.conf") for vmid, folder in folders.items()}
    before = listing(cluster)

    undecided = forget(cluster, tmp_path, "pve9", "--yes")
    assert undecided.code == 4, undecided.raw
    assert "pve9 has the guests 109, 110" in undecided.diagnostic["details"]
    assert "no address of it is known" in undecided.diagnostic["details"]
    assert listing(cluster) == before

    with cluster.quorum_tracker(["pve1", "pve2", "pve3"]) as tracker:
        done = forget(cluster, tmp_path, "pve9", "--archive-guests", "--off-for-good", "pve9", "--yes")
    assert tracker.lost == []
    assert done.code == 0, done.raw
    assert node.run("ls /etc/pve/nodes").split() == ["pve1", "pve2", "pve3"]
    archived = files(done.result["records"], "guests/*/*.conf")
    assert {int(file.stem): file.read_text() for file in archived} == kept
    assert {stat.S_IMODE(file.stat().st_mode) for file in archived} == {0o600}
    assert len(files(done.result["records"], "report.html")) == 2
    assert len(files(done.result["records"], "backup/etc-pve.tar")) == 1
    assert check(cluster, "pve1").conditions == [("healthy", "")]
    assert forget(cluster, tmp_path, "pve9").result["runbooks"] == []


def test_nothing_that_runs_is_forgotten_whatever_is_said(cluster: Cluster, tmp_path: Path) -> None:
    before = listing(cluster)
    running = forget(cluster, tmp_path, "pve2", "--off-for-good", "pve2", "--yes")
    assert running.code == 4, running.raw
    for words in ("answers by ssh", "has joined pve2", f"answers at {cluster.node('pve2').address}"):
        assert words in running.diagnostic["details"]
    itself = forget(cluster, tmp_path, "pve1", "--off-for-good", "pve1", "--yes")
    assert itself.code == 4, itself.raw
    assert "it is the node that would do it" in itself.diagnostic["message"]
    address = forget(cluster, tmp_path, cluster.node("pve2").address, "--yes")
    assert (address.code, "that is an address" in address.diagnostic["message"]) == (64, True), address.raw
    unknown = forget(cluster, tmp_path, "pve8; rm -rf /etc/pve", "--yes")
    assert (unknown.code, "pve1, pve2, pve3" in unknown.diagnostic["details"]) == (64, True), unknown.raw
    assert listing(cluster) == before
    assert not (tmp_path / "provisioner/clusters").exists()


@pytest.mark.slow
def test_a_member_whose_corosync_is_stopped_is_not_off(cluster: Cluster, tmp_path: Path) -> None:
    cluster.node("pve3").run("systemctl stop corosync ssh ssh.socket 2>/dev/null || systemctl stop corosync ssh")
    found = forget(cluster, tmp_path, "pve3", "--off-for-good", "pve3", "--yes")
    assert found.code == 4, found.raw
    assert "(ssh: port 22 is refused)" in found.diagnostic["details"]
    assert [one.name for one in cluster.members()] == ["pve1", "pve2", "pve3"]


@pytest.mark.slow
def test_what_names_it_first_is_told_with_the_command(cluster: Cluster, tmp_path: Path) -> None:
    write(cluster, "replication.cfg", "local: 100-0\n\ttarget pve3\n\tschedule */15\n")
    write(cluster, "ha/groups.cfg", "group: fast\n\tnodes pve1:2,pve3:1\n")
    cluster.power_off("pve3")
    found = forget(cluster, tmp_path, "pve3", "--off-for-good", "pve3", "--yes")
    assert found.code == 4, found.raw
    assert "pvesr delete 100-0 --force" in found.diagnostic["details"]
    cluster.node("pve1").run("rm /etc/pve/replication.cfg")
    done = forget(cluster, tmp_path, "pve3", "--off-for-good", "pve3", "--yes")
    assert done.code == 0, done.raw
    assert [one["command"] for one in done.result["references"]] == ["ha-manager groupset fast --nodes pve1:2"]


@pytest.mark.slow
def test_without_quorum_nothing_is_forgotten_and_one_part_may_decide_alone_when_the_others_are_off(
    cluster: Cluster, tmp_path: Path
) -> None:
    environment = {**cluster.environment, "XDG_STATE_HOME": str(tmp_path)}
    node = cluster.node("pve1")
    words = ("runbook", "run", "lost-quorum", "--host", f"root@{node.address}", "--json")
    cluster.power_off("pve2", "pve3")
    refused = forget(cluster, tmp_path, "pve3", "--off-for-good", "pve3", "--yes")
    assert refused.code == 4, refused.raw
    assert "no node that answers is quorate" in refused.diagnostic["message"]

    unnamed = said(provision(environment, *words, "--off", "pve2", "--yes"))
    assert unnamed.code == 4, unnamed.raw
    assert "say so: --off pve3" in unnamed.diagnostic["details"]
    assert not node.is_quorate()

    done = said(provision(environment, *words, "--off", "pve2", "--off", "pve3", "--yes"))
    assert (done.code, done.result["votes"]) == (0, 1), done.raw
    assert node.can("touch /etc/pve/writable && rm /etc/pve/writable")
    for number, name in ((2, "pve2"), (3, "pve3")):
        cluster.power_on(name)
        node.wait(f"quorate with {name}", partial(node.is_quorate, number))
        assert f"Expected votes:   {number}" in node.run("corosync-quorumtool -s")


@pytest.mark.slow
def test_the_other_part_of_a_partition_is_not_off(cluster: Cluster, tmp_path: Path) -> None:
    environment = {**cluster.environment, "XDG_STATE_HOME": str(tmp_path)}
    words = ("runbook", "run", "lost-quorum", "--off", "pve2", "--off", "pve3", "--yes", "--json", "--host")
    needless = said(provision(environment, *words, f"root@{cluster.node('pve2').address}"))
    assert needless.code == 0, needless.raw
    assert (needless.result["is_needed"], needless.result["is_done"]) == (False, True)
    cluster.partition(["pve1"], ["pve2", "pve3"])
    refused = said(provision(environment, *words, f"root@{cluster.node('pve1').address}"))
    assert refused.code == 4, refused.raw
    assert "pve2 is running: it answers by ssh" in refused.diagnostic["details"]
    assert not cluster.node("pve1").is_quorate()


@pytest.mark.slow
def test_a_runbook_that_the_node_does_not_need_is_not_run(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_ghost("pve9")
    environment = {**cluster.environment, "XDG_STATE_HOME": str(tmp_path)}
    host = ("--host", f"root@{cluster.node('pve1').address}", "--node", "pve9", "--json")
    wrong = said(provision(environment, "runbook", "run", "retired-node", *host, "--yes"))
    assert wrong.code == 4, wrong.raw
    assert "It needs: ghost-node, removed-node-leftovers" in wrong.diagnostic["details"]
    right = said(provision(environment, "runbook", "run", "ghost-node", *host))
    assert (right.code, right.result["is_done"]) == (0, False), right.raw
