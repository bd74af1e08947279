"""The lab of corosync nodes: its own health, the ways of being stale, and each trap of what stands in for Proxmox VE.

A trap's test names the fact that it holds the stand-in to; all of them were seen on Proxmox VE 9.2 with corosync 3.1.
"""

from __future__ import annotations

import re
import subprocess
from functools import partial

import pytest

from tests.doubles.corosync import machines, stale
from tests.doubles.corosync.cluster import Cluster, GuestSpec
from tests.doubles.corosync.conf import entries_of
from tests.doubles.corosync.image import ensure_image
from tests.doubles.corosync.incus_cli import incus, query
from tests.doubles.corosync.node import Node
from tests.doubles.corosync.reset import VERSION
from tests.doubles.corosync.tracker import FILE
from tests.lab.incus import LAB

pytestmark = [pytest.mark.incus, pytest.mark.corosync]

FORCED = (
    "detected the following error(s):",
    "* authentication key '/etc/corosync/authkey' already exists",
    "* cluster config '/etc/pve/corosync.conf' already exists",
    "",
    "WARNING : detected error but forced to continue!",
    "",
    "forcing overwrite of configured node 'pve3'",
    "copy corosync auth key",
    "stopping pve-cluster service",
)
WAITED = "waiting for quorum...OK"
"""Said by ``add`` where it looked before corosync had quorum, which may be so or not."""
JOINED = (
    "(re)generate node files",
    "generate new node certificate",
    "merge authorized SSH keys",
    "generated new node certificate, restart pveproxy and pvedaemon services",
    "successfully added node 'pve3' to cluster.",
)


def ssh(cluster: Cluster, name: str, command: str) -> subprocess.CompletedProcess[str]:
    address = cluster.node(name).address
    call = [
        "ssh",
        "-F",
        str(cluster.ssh_config),
        "-oBatchMode=yes",
        "-oStrictHostKeyChecking=yes",
        "-oConnectTimeout=20",
        address,
        command,
    ]
    return subprocess.run(call, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=300)


def version(node: Node) -> int:
    return entries_of(node.read("/etc/pve/corosync.conf"))[0]


def forced(cluster: Cluster, name: str) -> str:
    lead, node = cluster.node("pve1").address, cluster.node(name)
    return f"pvecm add {lead} --use_ssh --force --link0 {node.home} --nodeid 3 --votes 1"


def add(cluster: Cluster, name: str) -> tuple[int, str]:
    return cluster.node(name).try_run(f"cd /tmp && timeout 240 {forced(cluster, name)} </dev/null")


# The lab itself


def test_every_node_is_quorate_has_the_one_tree_and_can_be_logged_in_to(cluster: Cluster) -> None:
    for node in cluster.nodes:
        assert ssh(cluster, node.name, "hostname").stdout.strip() == node.name
        assert node.is_quorate(votes=3)
        node.run(f"echo {node.name} > /etc/pve/nodes/{node.name}/config")
    for node in cluster.nodes:
        node.wait_for("told by all", "[ \"$(cat /etc/pve/nodes/*/config | xargs)\" = 'pve1 pve2 pve3' ]")
    identities = {node.read("/etc/machine-id") for node in cluster.nodes}
    assert len(identities) == 3


def test_nodes_trust_each_other_until_a_test_says_otherwise(cluster: Cluster) -> None:
    node = cluster.node("pve3")
    assert node.run("ssh -o BatchMode=yes pve1 hostname") == "pve1\n"
    cluster.break_trust("pve3", "pve1")
    code, said = node.try_run("ssh -o BatchMode=yes pve1 hostname")
    assert (code, "Host key verification failed." in said) == (255, True)


@pytest.mark.slow
def test_a_node_that_is_off_does_not_answer_and_comes_back_as_a_member(cluster: Cluster) -> None:
    cluster.power_off("pve2")
    assert ssh(cluster, "pve2", "true").returncode == 255
    cluster.power_on("pve2")
    node = cluster.node("pve2")
    node.wait("quorate", lambda: node.is_quorate(votes=3))


def test_the_tracker_misses_no_loss_and_reports_none_that_was_not(cluster: Cluster) -> None:
    with cluster.quorum_tracker(["pve1", "pve2"]) as calm:
        cluster.node("pve3").run("systemctl restart corosync")
    assert calm.lost == []
    node = cluster.node("pve1")
    node.wait("joined by pve3", lambda: node.is_quorate(votes=3))
    with cluster.quorum_tracker(["pve1", "pve2"]) as tracker:
        cluster.node("pve2").run("systemctl restart corosync")
        cluster.node("pve2").wait_for("noticed", f"grep -q corosync-ended {FILE}")
    assert [line.split()[0] for line in tracker.lost] == ["pve2:"] * len(tracker.lost)
    assert any("corosync-ended" in line for line in tracker.lost)


def test_what_a_killed_run_left_is_removed_by_the_next_one(cluster: Cluster) -> None:
    image = ensure_image(LAB)
    names = {state: f"{cluster.nodes[0].instance}-{state}" for state in ("dead", "alive", "kept")}
    owners = {"dead": "1-1", "alive": machines.owner(), "kept": machines.KEPT}
    try:
        for state, name in names.items():
            incus(LAB, "init", image, name, "--config", f"{machines.OWNER}={owners[state]}")
        machines.remove_dead(LAB)
        left = {one["name"] for one in query(LAB, "/1.0/instances?recursion=1")}
        assert {state for state, name in names.items() if name in left} == {"alive", "kept"}
        assert {node.instance for node in cluster.nodes} <= left
    finally:
        machines.remove(LAB, f"{cluster.nodes[0].instance}-")


# Being stale


@pytest.mark.slow
@pytest.mark.parametrize("mode", stale.MODES)
def test_each_way_of_being_stale_shows_its_own_signature_and_leaves_the_others_quorate(
    cluster: Cluster, mode: stale.Mode
) -> None:
    cluster.make_stale("pve3", mode)
    node, good = cluster.node("pve3"), cluster.node("pve1")
    assert version(node) == VERSION
    assert version(good) == VERSION + 1
    assert good.is_quorate(votes=2)
    here, there = (one.run("journalctl -q -t corosync -o cat", check=False) for one in (node, good))
    assert ("Received config version (8) is different than my config version (7)! Exiting" in here) == (
        mode == "version"
    )
    assert ("rx: Packet rejected from" in here) == (mode == "moved")
    assert (f"rx: Packet rejected from {node.address}:5405" in there) == (mode in {"readdr", "idreuse"})
    assert ("rx: Unable to decrypt packet from" in here) == ("rx: Unable to decrypt packet from" in there)
    assert ("rx: Unable to decrypt packet from" in here) == (mode == "key")
    for said in (here, there):
        assert bool(re.search(r"was formed\. Members *$", said, re.MULTILINE)) == (mode == "added")
    assert (node.run("systemctl is-active corosync", check=False) == "active\n") == (mode != "version")


@pytest.mark.slow
@pytest.mark.parametrize("votes", [(1, 1, 1, 1, 1), (3, 1, 1, 1, 1)])
@pytest.mark.parametrize("mode", stale.MODES)
def test_the_same_holds_for_five_nodes_and_for_weighted_votes(
    cluster_of_five: Cluster, mode: stale.Mode, votes: tuple[int, ...]
) -> None:
    cluster_of_five.heal(votes=votes)
    cluster_of_five.make_stale("pve4", mode)
    assert cluster_of_five.node("pve1").is_quorate(votes=sum(votes) - 1)
    assert not cluster_of_five.node("pve4").is_quorate()


@pytest.mark.slow
def test_a_node_that_is_only_behind_gets_the_rest_by_itself_once_it_has_the_current_list(cluster: Cluster) -> None:
    # Proxmox VE 9.2: the conf copied and corosync restarted is enough, and nothing of /etc/pve is lost
    cluster.make_stale("pve3", "version")
    cluster.add_guest("pve1", 101)
    good, node = cluster.node("pve1"), cluster.node("pve3")
    node.write("/etc/corosync/corosync.conf", good.read("/etc/corosync/corosync.conf"))
    node.run("systemctl restart corosync")
    node.wait("quorate", lambda: node.is_quorate(votes=3))
    node.wait_for("current", "test -s /etc/pve/nodes/pve1/lxc/101.conf")
    assert version(node) == VERSION + 1


# The traps of pvecm


def test_add_says_why_it_failed_and_exits_with_0(cluster: Cluster) -> None:
    # Proxmox VE 9.2: the CLI ignores how the worker ended
    code, said = cluster.node("pve3").try_run(f"cd /tmp; pvecm add {cluster.node('pve1').address} --use_ssh")
    assert code == 0
    assert said.splitlines() == [
        "detected the following error(s):",
        "* authentication key '/etc/corosync/authkey' already exists",
        "* cluster config '/etc/pve/corosync.conf' already exists",
        "* corosync is already running, is this node already in a cluster?!",
        "Check if node may join a cluster failed!",
    ]


def test_add_dies_within_etc_pve_and_without_pmxcfs(cluster: Cluster) -> None:
    # Proxmox VE 9.2: the first is the only failure of add that its exit code tells; the second is any command's
    node = cluster.node("pve3")
    code, said = node.try_run("cd /etc/pve/nodes; pvecm add pve1 --use_ssh --force")
    assert (code, said.startswith("Navigate out of /etc/pve before running 'pvecm add'")) == (255, True)
    node.run("systemctl stop pve-cluster")
    code, said = node.try_run("cd /tmp; pvecm add pve1 --use_ssh --force")
    assert code == 111
    assert said == (
        "ipcc_send_rec[1] failed: Connection refused\nUnable to load access control list: Connection refused\n"
    )


def test_add_to_an_unknown_host_key_fails_with_0_and_has_opened_root_logins_by_then(cluster: Cluster) -> None:
    # Proxmox VE 9.2: sshd_config is edited before the other node is even asked
    node = cluster.node("pve3")
    cluster.break_trust("pve3", "pve1")
    assert "\nPermitRootLogin" not in node.read("/etc/ssh/sshd_config")
    code, said = add(cluster, "pve3")
    assert (code, "unable to copy ssh ID: exit code 1" in said) == (0, True)
    assert "\nPermitRootLogin yes\n" in node.read("/etc/ssh/sshd_config")
    assert version(cluster.node("pve1")) == VERSION


@pytest.mark.slow
def test_add_hangs_until_corosync_is_stopped_and_has_thrown_the_database_away_by_then(cluster: Cluster) -> None:
    # Proxmox VE 9.2: corosync is started, not restarted, so one that runs keeps its old list; the waiting has no limit.
    # Votes and id must be those of the entry. At the end the cluster's files are there, and the node's own are not.
    cluster.make_stale("pve3", "key")
    cluster.add_guest("pve3", 333)
    cluster.add_guest("pve1", 101)
    node = cluster.node("pve3")
    said = node.kill_when_it_says("waiting for quorum...", forced(cluster, "pve3"))
    assert said.splitlines()[-1] == "waiting for quorum..."
    assert node.run("corosync-cmapctl -g totem.config_version") == f"totem.config_version (u64) = {VERSION}\n"
    assert node.run("grep config_version /etc/corosync/corosync.conf").split() == ["config_version:", str(VERSION + 2)]
    assert version(cluster.node("pve1")) == VERSION + 2
    assert "333.conf" in node.run("zcat /var/lib/pve-cluster/backup/config-*.sql.gz")

    node.run("systemctl stop corosync")
    code, said = add(cluster, "pve3")
    stamp = node.run("ls /var/lib/pve-cluster/backup").split()[-1]
    assert code == 0
    # the first attempt has left an empty /etc/pve, and with it nobody's key may log in here any more
    assert [line for line in said.splitlines() if line != WAITED] == [
        *FORCED[:6],
        "can't create shared ssh key database '/etc/pve/priv/authorized_keys'",
        *FORCED[6:],
        f"backup old database to '/var/lib/pve-cluster/backup/{stamp}'",
        *JOINED,
    ]
    for one in cluster.nodes:
        one.wait("of three", partial(one.is_quorate, 3))
    assert {version(one) for one in cluster.nodes} == {VERSION + 3}
    assert node.run("ls /etc/pve/nodes/*/lxc/*.conf") == "/etc/pve/nodes/pve1/lxc/101.conf\n"


def test_addnode_refuses_other_votes_a_used_address_and_gives_the_lowest_free_id(cluster: Cluster) -> None:
    # Proxmox VE 9.2: addnode's exit code is true, unlike add's
    lead, other = cluster.node("pve1"), cluster.node("pve2")
    code, said = lead.try_run(f"pvecm addnode pve3 --force 1 --votes 2 --new_node_ip {cluster.node('pve3').address}")
    assert (code, said) == (255, "can't add existing node 'pve3'\n")
    code, said = lead.try_run(f"pvecm addnode pve9 --force 1 --new_node_ip {other.address}")
    words = f"corosync: address '{other.address}' already used on link ring0_addr by node 'pve2'\n"
    assert (code, said) == (255, words)
    assert version(lead) == VERSION


@pytest.mark.slow
def test_the_copy_of_etc_pve_that_saw_the_most_writes_is_everybodys_whoever_has_it(cluster: Cluster) -> None:
    # Proxmox VE 9.1 (pmxcfs, dcdb_select_leader): by the version of the tree; that of corosync.conf does not matter
    node, lead = cluster.node("pve3"), cluster.node("pve1")
    node.run("systemctl stop corosync")
    lead.wait("of two", partial(lead.is_quorate, 2))
    lead.run("echo ours > /etc/pve/nodes/pve1/ours")
    cluster.write_alone("pve3", "nodes/pve3/alone", times=1000)
    node.run("systemctl start corosync")
    lead.wait_for("replaced", "test -e /etc/pve/nodes/pve3/alone")
    assert not lead.can("test -e /etc/pve/nodes/pve1/ours")


@pytest.mark.slow
def test_delnode_kills_an_online_node_and_leaves_everything_else_behind(cluster: Cluster) -> None:
    # Proxmox VE 9.2: only the list is changed; folder, guests and keys of the node stay, its id is given out again.
    # For one that cannot be killed there is one more line, and the exit code is 0, too.
    lead, node = cluster.node("pve1"), cluster.node("pve3")
    key = node.run("cat /root/.ssh/id_rsa.pub").split()[1]
    cluster.add_guest("pve3", 303)
    assert lead.try_run("pvecm delnode pve3") == (0, "Killing node 3\n")
    node.wait("killed", lambda: not node.is_quorate())
    assert node.try_run("touch /etc/pve/x")[0] == 1
    assert [one.name for one in cluster.members()] == ["pve1", "pve2"]
    assert key in lead.read("/etc/pve/priv/authorized_keys")
    assert '"303"' in lead.read("/etc/pve/.vmlist")

    lead.run("pvecm addnode pve9 --force 1 --new_node_ip 192.0.2.9")
    assert next(one.nodeid for one in cluster.members() if one.name == "pve9") == 3
    code, said = lead.try_run("pvecm delnode pve9")
    assert code == 0
    assert sorted(said.splitlines()) == ["Could not kill node (error = CS_ERR_NOT_EXIST)", "Killing node 3"]


def test_delnode_refuses_a_ghost_and_itself(cluster: Cluster) -> None:
    # Proxmox VE 9.2: what has only a folder is no known host; exit code 255
    cluster.add_ghost("pve9", [GuestSpec(109)])
    lead = cluster.node("pve1")
    assert lead.try_run("pvecm delnode pve9") == (255, "Node/IP: pve9 is not a known host of the cluster.\n")
    assert lead.try_run("pvecm delnode pve1") == (255, "Cannot delete myself from cluster!\n")
    # a guest's file may be moved to another node, and then the folder can go
    lead.run("mv /etc/pve/nodes/pve9/lxc/109.conf /etc/pve/nodes/pve1/lxc/109.conf && rm -rf /etc/pve/nodes/pve9")
    assert '"node": "pve1"' in lead.read("/etc/pve/.vmlist")


@pytest.mark.slow
def test_without_quorum_nothing_can_be_written_until_fewer_votes_are_expected(cluster: Cluster) -> None:
    # Proxmox VE 9.2: EACCES, "Activity blocked" and 2, "cluster not ready"; expected 1 is silent and works at once
    node = cluster.node("pve1")
    cluster.power_off("pve2", "pve3")
    assert not node.is_quorate()
    assert node.run("touch /etc/pve/nodes/x", check=False).endswith("Permission denied\n")
    assert node.try_run("rm -rf /etc/pve/nodes/pve3")[0] == 1
    assert node.run("stat -L -c %A /etc/pve/local /etc/pve/storage.cfg") == "dr-xr-xr-x\n-r--r-----\n"
    code, said = node.try_run("pvecm status")
    assert (code, "Quorum:           2 Activity blocked" in said) == (2, True)
    assert node.try_run("pvecm delnode pve3") == (255, "cluster not ready - no quorum?\n")
    waits = "waiting for pmxcfs mount to appear and get quorate..."
    assert set(node.kill_when_it_says(waits, "pvecm updatecerts").splitlines()) == {waits}
    words = "400 Parameter verification failed.\nexpected: value must have a minimum value of 1\n"
    assert node.try_run("pvecm expected 0") == (255, words)
    assert node.try_run("pvecm expected 1") == (0, "")
    node.wait_for("writable", "touch /etc/pve/nodes/x && rm /etc/pve/nodes/x")


@pytest.mark.slow
def test_when_corosync_is_dead_its_tools_fail_and_the_list_of_members_is_a_memory(cluster: Cluster) -> None:
    # corosync 3.1: exit code 1 and these words; Proxmox VE 9.2: everybody "online" although nobody is asked any more
    node = cluster.node("pve3")
    node.run("systemctl stop corosync")
    assert node.try_run("corosync-quorumtool -s") == (1, "Cannot initialize CMAP service\n")
    code, said = node.try_run("pvecm status")
    assert (code, said.splitlines()[-1]) == (1, "Cannot initialize CMAP service")
    members = node.read("/etc/pve/.members")
    assert '"quorate": 0' in members
    assert members.count('"online": 1') == 3


@pytest.mark.slow
def test_a_single_node_has_no_list_of_members(cluster: Cluster) -> None:
    # Proxmox VE 9.2: .members has nodename and version only, and the node is writable
    cluster.make_single("pve3")
    node = cluster.node("pve3")
    assert "nodelist" not in node.read("/etc/pve/.members")
    node.run("touch /etc/pve/x")
    code, said = node.try_run("pvecm status")
    assert (code, said.startswith("Error: Corosync config '/etc/pve/corosync.conf' does not exist")) == (255, True)


# The traps of /etc/pve


def test_a_number_belongs_to_one_guest_of_the_whole_cluster(cluster: Cluster) -> None:
    # Proxmox VE 9.2: EEXIST, on whatever node and of whatever kind
    cluster.add_guest("pve1", 101)
    node = cluster.node("pve2")
    for kind in ("lxc", "qemu-server"):
        code, said = node.try_run(f"echo x > /etc/pve/nodes/pve2/{kind}/101.conf")
        assert (code, said.endswith("File exists\n")) == (2, True)
    node.run("rm /etc/pve/nodes/pve1/lxc/101.conf")


def test_modes_are_its_own_and_links_cannot_be_made(cluster: Cluster) -> None:
    # Proxmox VE 9.2: 0640 root:www-data, below priv 0600, and no other
    node = cluster.node("pve1")
    files = "/etc/pve/storage.cfg /etc/pve/priv/known_hosts /etc/pve/priv /etc/pve/nodes"
    assert node.run(f"stat -c '%a %U %G' {files}").splitlines() == [
        "640 root www-data",
        "600 root www-data",
        "700 root www-data",
        "755 root www-data",
    ]
    assert node.run("chmod 0644 /etc/pve/storage.cfg", check=False).endswith("Operation not permitted\n")
    assert node.run("ln -s storage.cfg /etc/pve/x", check=False).endswith("Operation not permitted\n")
    assert node.run("readlink /etc/pve/local /etc/pve/lxc").split() == ["nodes/pve1", "nodes/pve1/lxc"]


def test_the_database_alone_lacks_what_is_in_its_log(cluster: Cluster) -> None:
    # Proxmox VE 9.2: config.db is in write-ahead mode; a copy of the one file is an old one. pmxcfs forks after it has
    # opened it, and so without a lock: who opens it to write, and ends, takes the log away.
    node = cluster.node("pve1")
    node.run("systemctl restart pve-cluster")  # a long log would be written to the database by itself
    node.wait_for("attached again", "touch /etc/pve/priv/known_hosts")
    node.run("echo new > /etc/pve/nodes/pve1/config; cp /var/lib/pve-cluster/config.db /tmp/alone.db")
    count = "\"SELECT count(*) FROM tree WHERE name='config'\""
    assert node.run(f"sqlite3 -readonly /var/lib/pve-cluster/config.db {count}") == "1\n"
    assert node.run(f"sqlite3 /tmp/alone.db {count}; rm /tmp/alone.db /etc/pve/nodes/pve1/config") == "0\n"


@pytest.mark.slow
def test_two_halves_of_a_cluster_go_apart_when_both_are_made_to_believe(cluster: Cluster) -> None:
    # Proxmox VE 9.2: `pvecm expected 1` while the others live is a split brain: both sides are writable
    cluster.partition(["pve1"], ["pve2", "pve3"])
    alone, others = cluster.node("pve1"), cluster.node("pve2")
    alone.run("pvecm expected 1")
    alone.wait_for("writable", "touch /etc/pve/nodes/alone")
    others.run("touch /etc/pve/nodes/others")
    assert alone.run("ls /etc/pve/nodes").split() == ["alone", "pve1", "pve2", "pve3"]
    assert others.run("ls /etc/pve/nodes").split() == ["others", "pve1", "pve2", "pve3"]
