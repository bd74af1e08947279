"""Stale nodes of a real corosync cluster are brought back, the others stay quorate, and what is unsafe is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration.rejoin_lab import Ended, Hand, forms
from tests.lab.corosync.cluster import Cluster
from tests.lab.corosync.stale import MODES, Mode

pytestmark = [pytest.mark.incus, pytest.mark.corosync]

STALE = "pve3"
LIGHT, FORCED = "stale-corosync-behind", "stale-corosync-rejoin"
RUNBOOKS: dict[str, str] = {mode: LIGHT if mode in {"version", "moved"} else FORCED for mode in MODES}


@pytest.fixture
def hand(cluster: Cluster, tmp_path: Path) -> Hand:
    """A user who works on three nodes."""
    return Hand(cluster, tmp_path)


@pytest.fixture
def five(cluster_of_five: Cluster, tmp_path: Path) -> Hand:
    """A user who works on five nodes."""
    return Hand(cluster_of_five, tmp_path)


def assert_back(hand: Hand, node: str = STALE) -> None:
    """All nodes run with one list and count the same votes, the node can write what others read, nothing is left."""
    cluster = hand.cluster
    quorate = [one for one in cluster.nodes if not one.is_off and one.is_quorate()]
    assert node in {one.name for one in quorate}
    versions = {one.run("corosync-cmapctl -g totem.config_version") for one in quorate}
    assert len(versions) == 1, versions
    assert len({one.run("corosync-quorumtool -s | grep -E '^(Nodes|Total votes):'") for one in quorate}) == 1
    cluster.node(node).run(f"echo here > /etc/pve/nodes/{node}/proof")
    assert cluster.node(hand.asked).run(f"cat /etc/pve/nodes/{node}/proof") == "here\n"
    cluster.node(node).run(f"rm /etc/pve/nodes/{node}/proof")
    assert cluster.node(node).run("ls -A /root/.ssh | grep -c authorized_keys2", check=False) == "0\n"
    assert not cluster.node(node).can(f"test -e /etc/pve/nodes/{node}/provisioner-write-test")
    again = hand.rejoin(node, "--yes")
    assert again.code == 0, again.said
    assert f"{node}: nothing to do." in again.out


def repaired(hand: Hand, runbook: str, *options: str, others: tuple[str, ...] = ("pve1", "pve2")) -> Ended:
    """Rejoin the stale node; the others have kept quorum all the time."""
    with hand.cluster.quorum_tracker(others) as tracker:
        ended = hand.rejoin(STALE, "--yes", *options)
    assert ended.code == 0, ended.said
    assert tracker.lost == []
    record = hand.records(STALE)[-1]
    assert (record.runbook, record.error, record.is_unfinished) == (runbook, "", False)
    assert [one.condition.value for one in record.after if one.node in ("", STALE)] in ([], ["healthy"])
    return ended


def test_a_node_that_is_behind_loses_nothing(hand: Hand) -> None:
    hand.cluster.add_guest(STALE, 101)
    hand.cluster.make_stale(STALE, "version")
    database = hand.cluster.node(STALE).run("stat -c %i /var/lib/pve-cluster/config.db")
    plan = hand.rejoin(STALE)
    assert plan.code == 0, plan.said
    assert "Nothing was changed." in plan.out
    assert hand.records(STALE) == []
    assert not hand.cluster.node(STALE).is_quorate()
    repaired(hand, LIGHT)
    assert hand.cluster.node(STALE).run("stat -c %i /var/lib/pve-cluster/config.db") == database
    assert hand.cluster.node("pve1").can(f"test -s /etc/pve/nodes/{STALE}/lxc/101.conf")
    assert_back(hand)


def test_a_removed_node_comes_back_with_its_votes_and_its_id_and_no_key_is_told(hand: Hand) -> None:
    hand.cluster.heal((2, 2, 3))
    node = hand.cluster.node(STALE)
    node.run("sed -i 's/^#*PermitRootLogin.*/PermitRootLogin prohibit-password/' /etc/ssh/sshd_config")
    before = node.read("/etc/ssh/sshd_config")
    hand.cluster.make_stale(STALE, "removed")
    with hand.watched():
        ended = repaired(hand, FORCED, "--restore-sshd", "-v")
    assert "PermitRootLogin prohibit-password" in ended.out
    (entry,) = [one for one in hand.cluster.members() if one.name == STALE]
    assert (entry.nodeid, entry.votes, entry.address) == (3, 3, node.address)
    assert node.read("/etc/ssh/sshd_config") == before
    assert_back(hand)
    assert_no_key_was_told(hand, ended)


def assert_no_key_was_told(hand: Hand, ended: Ended) -> None:
    """The old key is in its own file of the backup only, the new one nowhere; both on no command line."""
    (folder,) = hand.home.glob("provisioner/clusters/*/*")
    old = (folder / "backup" / "authkey").read_bytes()
    new = bytes.fromhex(hand.cluster.node("pve1").run("od -An -v -tx1 /etc/corosync/authkey").replace(" ", ""))
    files = [one for one in hand.home.rglob("*") if one.is_file() and one != folder / "backup" / "authkey"]
    texts = {str(one): one.read_bytes() for one in files}
    texts |= {"output": ended.said.encode(), "command lines": "\n".join(hand.commands).encode()}
    assert any("ansible-playbook" in one for one in hand.commands)
    assert any(one.name == "record.json" for one in files)
    assert any(one.suffix == ".log" for one in files)
    assert [name for name, text in texts.items() for key in (old, new) for form in forms(key) if form in text] == []
    assert [str(one) for one in files if one.stat().st_mode & 0o077] == []
    node = hand.cluster.node(STALE)
    assert node.run("find /var/lib/provisioner/repair -perm /077") == ""
    assert node.run("find /var/lib/provisioner/repair -name authkey") != ""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["moved", "readdr", "key"])
def test_every_kind_of_stale_node_comes_back(hand: Hand, mode: Mode) -> None:
    hand.cluster.make_stale(STALE, mode)
    repaired(hand, RUNBOOKS[mode])
    assert_back(hand)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_every_kind_of_five_comes_back(five: Hand, mode: Mode) -> None:
    five.cluster.heal((3, 1, 1, 1, 1))
    five.cluster.make_stale(STALE, mode)
    repaired(five, RUNBOOKS[mode], others=("pve1", "pve2", "pve4", "pve5"))
    (entry,) = [one for one in five.cluster.members() if one.name == STALE]
    assert (entry.votes, entry.nodeid == 3) == (1, mode != "idreuse")
    assert_back(five)


def test_a_run_that_is_killed_is_brought_to_its_end_by_the_same_command(hand: Hand) -> None:
    hand.cluster.add_guest(STALE, 101)
    hand.cluster.make_stale(STALE, "key")
    with hand.cluster.quorum_tracker(["pve1", "pve2"]) as tracker:
        for step in ("stop-corosync", "join", "check-write"):
            hand.kill_at(STALE, step)
        ended = hand.rejoin(STALE, "--yes")
    assert ended.code == 0, ended.said
    assert tracker.lost == []
    (record,) = hand.records(STALE)
    assert (record.runbook, record.is_unfinished) == (FORCED, False)
    assert hand.cluster.node("pve1").can(f"test -s /etc/pve/nodes/{STALE}/lxc/101.conf")
    assert_back(hand)


FORCED_STEPS = (
    "plan", "prove-quorum", "backup", "keep-way-in", "start-pmxcfs", "stop-corosync", "forget-address", "join",
    "check-quorum", "check-versions", "check-members", "check-write", "restore-sshd", "remove-way-in",
)  # fmt: skip
LIGHT_STEPS = (
    "plan", "prove-quorum", "read-list", "backup", "write-list", "restart-corosync", "check-quorum", "check-versions",
    "check-members", "check-write",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "step"),
    [*(("readdr", one) for one in FORCED_STEPS), *(("version", one) for one in LIGHT_STEPS)],
)
def test_a_run_may_be_killed_at_any_step(hand: Hand, mode: Mode, step: str) -> None:
    hand.cluster.make_stale(STALE, mode)
    with hand.cluster.quorum_tracker(["pve1", "pve2"]) as tracker:
        hand.kill_at(STALE, step)
        ended = hand.rejoin(STALE, "--yes")
    assert ended.code == 0, ended.said
    assert tracker.lost == []
    assert_back(hand)


def test_what_is_unsafe_is_refused_before_anything_is_touched(hand: Hand) -> None:
    cluster, node = hand.cluster, hand.cluster.node(STALE)
    cluster.make_stale(STALE, "key")
    state = "sha256sum /etc/corosync/* /etc/ssh/sshd_config; systemctl show -p InvocationID corosync; ls -A /root/.ssh"
    before = node.run(f"{state} 2>/dev/null", check=False)

    cluster.set_ha(["service vm:100 (pve2, fence)"])
    assert_refused(hand, "HA is idle", "service vm:100 (pve2, fence)")
    cluster.set_ha([])

    cluster.node("pve1").run(
        "systemd-run -q --unit other-repair flock /run/lock/provisioner-repair "
        "sh -c 'echo forget pve9 > /run/lock/provisioner-repair; exec sleep 300'"
    )
    locked = hand.rejoin(STALE, "--yes")
    assert locked.code == 5, locked.said
    assert "another repair of it goes on" in locked.err
    cluster.node("pve1").run("systemctl stop other-repair")

    cluster.break_trust(STALE, "pve1")
    assert_refused(hand, "ssh from pve3 to pve1", "Host key verification failed", "SHA256:")
    assert node.run(f"{state} 2>/dev/null", check=False) == before
    assert hand.records(STALE) == []


def assert_refused(hand: Hand, *words: str) -> None:
    """With ``--yes`` and without: exit code 4, with these words."""
    for options in ((), ("--yes",)):
        ended = hand.rejoin(STALE, *options)
        assert ended.code == 4, ended.said
        for one in words:
            assert one in ended.err, ended.said


def test_no_guest_is_lost_unless_it_is_given_up(hand: Hand) -> None:
    cluster = hand.cluster
    cluster.add_guest(STALE, 101)
    cluster.make_stale(STALE, "version")
    cluster.add_guest(STALE, 105)
    cluster.node("pve1").run(f"rm /etc/pve/nodes/{STALE}/lxc/101.conf")
    cluster.add_guest("pve2", 101, volumes=["local-lvm:vm-101-disk-7"])
    assert_refused(
        hand, "101 (lxc ct101): the cluster has another guest with this VMID on pve2", "105 (lxc ct105): only"
    )
    ended = hand.rejoin(STALE, "--yes", "--give-up", "101")
    assert ended.code == 4, ended.said
    recovery = next(one for one in ended.err.splitlines() if "scp root@" in one).partition("On pve1: ")[2]
    cluster.node("pve1").run(recovery.replace("scp ", "scp -q -o BatchMode=yes ", 1))
    repaired(hand, LIGHT, "--give-up", "101")
    owners = cluster.node(STALE).run("cat /etc/pve/nodes/pve3/lxc/105.conf /etc/pve/nodes/pve2/lxc/101.conf")
    assert "vm-101-disk-7" in owners
    assert not cluster.node("pve1").can("test -e /etc/pve/nodes/pve3/lxc/101.conf")


def test_without_quorum_nothing_is_done(hand: Hand) -> None:
    hand.cluster.make_stale(STALE, "version")
    hand.cluster.power_off("pve2")
    hand.cluster.node("pve1").wait("alone", lambda: not hand.cluster.node("pve1").is_quorate())
    ended = hand.rejoin(STALE, "--yes")
    assert ended.code == 4, ended.said
    assert "no node that answers has quorum" in ended.err


def test_words_that_name_no_stale_node_are_answered(hand: Hand) -> None:
    address = hand.cluster.node(STALE).address
    hand.cluster.add_ghost("pve9")
    for word, code, words in (
        ("pve4", 64, ("Known nodes: pve1, pve2, pve3", "did you mean")),
        (address, 64, ("that is an address", "Name the node: pve3.")),
        ("pve1", 4, ("it is the node that was asked",)),
        ("pve9", 4, ("provision cluster forget pve9",)),
        ("pve2", 0, ("pve2: nothing to do.",)),
    ):
        ended = hand.rejoin(word, "--yes")
        assert ended.code == code, ended.said
        for one in words:
            assert one.lower() in ended.said.lower(), ended.said
    hand.cluster.power_off(STALE)
    ended = hand.rejoin(STALE)
    assert (ended.code, "it does not answer" in ended.err, "power-on-check" in ended.err) == (4, True, True), ended.said


def test_what_a_repair_has_saved_is_brought_back(hand: Hand) -> None:
    cluster, node = hand.cluster, hand.cluster.node(STALE)
    cluster.make_stale(STALE, "key")
    cluster.add_guest(STALE, 105)
    files = "sha256sum /etc/corosync/authkey /etc/corosync/corosync.conf"
    before = node.run(files)
    repaired(hand, FORCED, "--give-up", "105")
    assert not node.can("test -e /etc/pve/nodes/pve3/lxc/105.conf")
    (run,) = hand.restore("--json").lines("result")[0]["runs"]
    dry = hand.restore(run["run"], hand.host())
    assert dry.code == 0, dry.said
    assert "is as stale as it was" in dry.out
    assert node.run(files) != before
    with cluster.quorum_tracker(["pve1", "pve2"]) as tracker:
        ended = hand.restore(run["run"], hand.host(), "--yes")
    assert ended.code == 0, ended.said
    assert "pve-cluster is active" in ended.out
    assert tracker.lost == []
    assert node.run(files) == before
    modes = node.run("stat -c %a /etc/corosync/authkey /etc/corosync/corosync.conf /var/lib/pve-cluster/config.db")
    assert modes.split() == ["400", "644", "600"]
    assert "ct105" in node.read("/etc/pve/nodes/pve3/lxc/105.conf")
    unknown = hand.restore("no-such-run", hand.host())
    assert unknown.code == 64
    assert run["run"] in unknown.err


@pytest.mark.slow
def test_two_stale_nodes_come_back_one_after_the_other(five: Hand) -> None:
    cluster = five.cluster
    cluster.make_stale("pve4", "removed")
    cluster.make_stale(STALE, "key")
    second: list[Ended] = []
    with cluster.quorum_tracker(["pve1", "pve2", "pve5"]) as tracker:
        first = five.at_step(STALE, "join", lambda _run: second.append(five.rejoin("pve4", "--yes")))
        assert first.code == 0, first.said
        assert second[0].code == 5, second[0].said
        assert STALE in second[0].err
        then = five.rejoin("pve4", "--yes")
        assert then.code == 0, then.said
    assert tracker.lost == []
    assert_back(five)
    assert_back(five, "pve4")


@pytest.mark.slow
def test_an_unfinished_repair_is_finished_before_another_begins(five: Hand) -> None:
    five.cluster.make_stale("pve4", "removed")
    five.cluster.make_stale(STALE, "key")
    five.kill_at(STALE, "stop-corosync")
    ended = five.rejoin("pve4", "--yes")
    assert ended.code == 4, ended.said
    assert "provision cluster rejoin pve3" in ended.err


@pytest.mark.slow
def test_a_lead_that_vanishes_in_the_middle_leaves_a_run_that_another_lead_ends(five: Hand) -> None:
    cluster = five.cluster
    cluster.make_stale(STALE, "key")

    def vanish(_run: subprocess.Popen[str]) -> None:
        cluster.power_off("pve1")

    with cluster.quorum_tracker(["pve2", "pve4", "pve5"]) as tracker:
        ended = five.at_step(STALE, "stop-corosync", vanish)
        assert ended.code in (1, 4), ended.said
        (record,) = five.records(STALE)
        assert record.is_unfinished
        five.asked = "pve2"
        again = five.rejoin(STALE, "--yes")
        assert again.code == 0, again.said
    assert tracker.lost == []
    assert_back(five)
