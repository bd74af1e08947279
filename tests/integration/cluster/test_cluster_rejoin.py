"""Stale nodes of a real corosync cluster are brought back, the others stay quorate, and what is unsafe is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.doubles.corosync.cluster import Cluster
from tests.doubles.corosync.stale import MODES, Mode
from tests.integration.cluster.cluster_box import assert_told, check, new_version
from tests.integration.cluster.rejoin_lab import Ended, Hand, forms

pytestmark = [pytest.mark.incus, pytest.mark.corosync]

STALE = "pve3"
LIGHT, FORCED = "stale-corosync-behind", "stale-corosync-rejoin"
RUNBOOKS: dict[str, str] = {mode: LIGHT if mode in {"version", "added", "moved"} else FORCED for mode in MODES}


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


def test_a_node_that_was_off_is_judged_before_it_is_powered_on_and_loses_nothing_when_it_is_brought_back(
    hand: Hand,
) -> None:
    cluster, node = hand.cluster, hand.cluster.node(STALE)
    cluster.add_guest(STALE, 101)
    assert_told_while_it_is_off(cluster)
    for vmid in (105, 106):
        cluster.add_guest(STALE, vmid)
    cluster.node("pve1").run(f"rm /etc/pve/nodes/{STALE}/lxc/101.conf")
    cluster.add_guest("pve2", 101, volumes=["local-lvm:vm-101-disk-7"])
    assert_refused(
        hand,
        "101 (lxc ct101): the cluster has another guest with this VMID on pve2",
        "105 (lxc ct105): only",
        "106 (lxc ct106): only",
    )
    give_up = ("--give-up", "101", "--give-up", "106")
    ended = hand.rejoin(STALE, *give_up)
    assert ended.code == 4, ended.said
    recovery = next(one for one in ended.err.splitlines() if "scp root@" in one).partition("On pve1: ")[2]
    assert f"scp root@{node.address}:" in recovery
    cluster.node("pve1").run(recovery.replace("scp ", "scp -q -o BatchMode=yes ", 1))
    database = node.run("stat -c %i /var/lib/pve-cluster/config.db")
    plan = hand.rejoin(STALE, *give_up)
    assert (plan.code, "Nothing was changed." in plan.out) == (0, True), plan.said
    assert hand.records(STALE) == []
    assert not node.is_quorate()

    repaired(hand, LIGHT, *give_up)
    assert node.run("stat -c %i /var/lib/pve-cluster/config.db") == database
    owners = node.run(f"cat /etc/pve/nodes/{STALE}/lxc/105.conf /etc/pve/nodes/pve2/lxc/101.conf")
    assert "vm-101-disk-7" in owners
    assert cluster.node("pve1").run(f"ls /etc/pve/nodes/{STALE}/lxc") == "105.conf\n"
    assert_back(hand)


def test_a_node_that_wrote_alone_for_long_comes_back_without_what_it_wrote(hand: Hand) -> None:
    """Key, id and addresses are the cluster's, and pmxcfs would give the node's /etc/pve to everybody."""
    cluster, alone = hand.cluster, f"nodes/{STALE}/alone"
    cluster.make_stale(STALE, "version")
    cluster.node("pve1").run("echo ours > /etc/pve/nodes/pve1/ours")
    cluster.write_alone(STALE, alone, times=1000)
    (found,) = check(cluster, "pve1").result["diagnoses"]
    assert (found["condition"], found["runbook"]) == ("behind", FORCED)
    assert "would replace the cluster's" in found["evidence"][-1]
    plan = hand.rejoin(STALE)
    assert (plan.code, "saw more writes than the cluster's" in plan.out) == (0, True), plan.said
    repaired(hand, FORCED)
    for one in cluster.nodes:
        assert one.read("/etc/pve/nodes/pve1/ours") == "ours\n"
        assert not one.can(f"test -e /etc/pve/{alone}")
    assert_back(hand)


def test_a_node_that_was_off_while_another_was_added_is_stopped_as_advised_and_brought_back(hand: Hand) -> None:
    """It does not end itself: all nodes form their membership anew, and would do so for ever."""
    cluster, node = hand.cluster, hand.cluster.node(STALE)
    cluster.make_stale(STALE, "added")
    found = check(cluster, "pve1")
    assert (found.code, found.conditions[0]) == (3, ("disturbing", STALE)), found.raw
    advice = found.of("disturbing")["advice"]
    assert advice.startswith(f"Stop corosync on {STALE} now"), advice
    node.run(advice.partition(": ")[2].partition(" (")[0])
    assert not node.can("systemctl is-active corosync")
    cluster.node("pve1").run("timeout 20 sh -c 'until touch /etc/pve/priv/known_hosts; do sleep 0.1; done'")
    repaired(hand, LIGHT)
    assert check(cluster, "pve1").conditions == [("healthy", "")]


@pytest.mark.slow
def test_a_node_is_brought_back_while_it_disturbs_the_others(hand: Hand) -> None:
    hand.cluster.make_stale(STALE, "added")
    assert_told(hand.cluster, "added")
    repaired(hand, LIGHT)
    assert_back(hand)


@pytest.mark.slow
def test_a_joined_node_with_an_old_list_on_disk_gets_it_and_its_corosync_goes_on(hand: Hand) -> None:
    cluster, node = hand.cluster, hand.cluster.node(STALE)
    node.run("cp /etc/corosync/corosync.conf /root/old")
    new_version(cluster)
    node.run("cp /root/old /etc/corosync/corosync.conf")
    (found,) = check(cluster, "pve1").result["diagnoses"]
    assert (found["condition"], found["node"], found["runbook"]) == ("behind", STALE, LIGHT)
    running = node.run("systemctl show -p InvocationID corosync pve-cluster")
    repaired(hand, LIGHT)
    assert node.run("systemctl show -p InvocationID corosync pve-cluster") == running
    lists = {one.run("sha256sum < /etc/corosync/corosync.conf") for one in cluster.nodes}
    assert len(lists) == 1
    assert_back(hand)


def assert_told_while_it_is_off(cluster: Cluster) -> None:
    """What is said of the node while the others change their list comes true when it is powered on."""
    cluster.shut_down(STALE)
    for _ in range(2):
        new_version(cluster)
    found = check(cluster, "pve1")
    assert found.conditions == [("offline", STALE), ("do-not-power-on", STALE)], found.raw
    assert "2 versions behind, its corosync will end itself" in found.of("do-not-power-on")["message"]
    cluster.power_on(STALE)
    node = cluster.node(STALE)
    node.wait_for("outdated", "journalctl -q -t corosync -b -g 'Received config version' -n 1 | grep -q .")
    node.wait_for("ended", "systemctl is-active corosync | grep -qxE 'inactive|failed'")
    assert_told(cluster, "version")


def test_a_stale_node_is_not_touched_while_that_is_unsafe(hand: Hand) -> None:
    hand.cluster.make_stale(STALE, "readdr")
    assert_told(hand.cluster, "readdr")
    assert_unsafe_is_refused(hand)


@pytest.mark.slow
def test_a_node_with_another_address_comes_back_with_its_votes_its_id_and_its_sshd_as_they_were(hand: Hand) -> None:
    cluster, node = hand.cluster, hand.cluster.node(STALE)
    cluster.heal((2, 2, 3))
    node.run("sed -i 's/^#*PermitRootLogin.*/PermitRootLogin prohibit-password/' /etc/ssh/sshd_config")
    before = node.read("/etc/ssh/sshd_config")
    cluster.make_stale(STALE, "readdr")
    ended = repaired(hand, FORCED, "--restore-sshd")
    assert "PermitRootLogin prohibit-password" in ended.out
    (entry,) = [one for one in cluster.members() if one.name == STALE]
    assert (entry.nodeid, entry.votes, entry.address) == (3, 3, node.address)
    assert node.read("/etc/ssh/sshd_config") == before
    assert_back(hand)


@pytest.mark.slow
def test_a_node_whose_own_address_changed_is_found_by_its_name_and_joined_at_the_new_one(
    hand: Hand, tmp_path: Path
) -> None:
    cluster, node = hand.cluster, hand.cluster.node(STALE)
    old = node.address
    cluster.renumber(STALE)
    config = tmp_path / "ssh_config"
    config.write_text(f"Host {STALE}\n  HostName {node.address}\n{cluster.ssh_config.read_text(encoding='ascii')}")
    found = check(cluster, "pve1", config=config)
    assert found.conditions == [("node-moved", STALE)], found.raw
    assert f"all lists say {old}, and it is at {node.address}" in found.of("node-moved")["message"]
    plan = hand.rejoin(STALE, host=STALE)
    assert (plan.code, f"has it at {old}, and it is at {node.address}." in plan.out) == (0, True), plan.said
    with cluster.quorum_tracker(["pve1", "pve2"]) as tracker:
        ended = hand.rejoin(STALE, "--yes", host=STALE)
    assert (ended.code, tracker.lost) == (0, []), ended.said
    (entry,) = [one for one in cluster.members() if one.name == STALE]
    assert (entry.nodeid, entry.address) == (3, node.address)
    assert_back(hand)


def assert_unsafe_is_refused(hand: Hand) -> None:
    """While HA works, another repair goes on, or the lead's host key is unknown: each is said, and nothing touched."""
    cluster, node = hand.cluster, hand.cluster.node(STALE)
    state = "sha256sum /etc/corosync/* /etc/ssh/sshd_config; systemctl show -p InvocationID corosync; ls -A /root/.ssh"
    before = node.run(f"{state} 2>/dev/null", check=False)

    cluster.set_ha(["service vm:100 (pve2, fence)"])
    assert_refused(hand, "HA is idle", "service vm:100 (pve2, fence)")
    cluster.set_ha([])

    cluster.node("pve1").run(
        "systemd-run -q --unit other-repair flock /run/lock/provisioner-repair "
        "sh -c 'echo forget pve9 > /run/lock/provisioner-repair; exec sleep infinity'"
    )
    cluster.node("pve1").wait_for("locked", "grep -q pve9 /run/lock/provisioner-repair")
    locked = hand.rejoin(STALE, "--yes")
    assert locked.code == 5, locked.said
    assert "another repair of it goes on" in locked.err
    cluster.node("pve1").run("systemctl stop other-repair")

    cluster.break_trust(STALE, "pve1")
    assert_refused(hand, "ssh from pve3 to pve1", "Host key verification failed", "SHA256:")
    node.run("ln -sfn /etc/pve/priv/known_hosts /etc/ssh/ssh_known_hosts")
    assert node.run(f"{state} 2>/dev/null", check=False) == before
    assert hand.records(STALE) == []


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
@pytest.mark.parametrize("mode", ["moved", "removed"])
def test_every_kind_of_stale_node_comes_back(hand: Hand, mode: Mode) -> None:
    hand.cluster.make_stale(STALE, mode)
    repaired(hand, RUNBOOKS[mode])
    assert_back(hand)


@pytest.mark.slow
def test_a_join_that_would_cost_the_others_their_quorum_waits_until_the_absent_member_is_forgotten(hand: Hand) -> None:
    """A fourth node would raise what is needed to three votes, while two are there: new3 has the id and never came."""
    hand.cluster.make_stale(STALE, "idreuse")
    assert_refused(hand, "the others keep quorum: 2 votes without it, 3 of 4 needed while it joins", "new3")
    gone = hand.run("cluster", "forget", "new3", hand.host(), "--off-for-good", "new3", "--yes")
    assert gone.code == 0, gone.said
    repaired(hand, FORCED)
    assert_back(hand)


@pytest.mark.slow
def test_a_runbook_is_run_for_the_node_that_needs_it_and_for_no_other(hand: Hand) -> None:
    hand.cluster.make_stale(STALE, "version")
    words = ("--host", hand.host(), "--node", STALE)
    wrong = hand.run("runbook", "run", FORCED, *words, "--yes")
    assert (wrong.code, f"It needs: {LIGHT}" in wrong.err) == (4, True), wrong.said
    dry = hand.run("runbook", "run", LIGHT, *words)
    assert (dry.code, "Nothing was changed." in dry.out) == (0, True), dry.said
    assert hand.records(STALE) == []
    with hand.cluster.quorum_tracker(["pve1", "pve2"]) as tracker:
        done = hand.run("runbook", "run", LIGHT, *words, "--yes")
    assert done.code == 0, done.said
    assert tracker.lost == []
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


def test_a_run_that_is_killed_is_brought_to_its_end_by_the_same_command_and_what_it_saved_brings_all_back(
    hand: Hand,
) -> None:
    cluster, node, give_up = hand.cluster, hand.cluster.node(STALE), ("--give-up", "105")
    cluster.add_guest(STALE, 101)
    cluster.make_stale(STALE, "key")
    cluster.add_guest(STALE, 105)
    assert_told(cluster, "key")
    files = "sha256sum /etc/corosync/authkey /etc/corosync/corosync.conf"
    before = node.run(files)
    with cluster.quorum_tracker(["pve1", "pve2"]) as tracker:
        for step in ("stop-corosync", "join", "check-write"):
            hand.kill_at(STALE, step, *give_up)
            assert hand.records(STALE)[0].is_unfinished
        assert ("leftovers", STALE) in check(cluster, "pve1").conditions
        with hand.watched():
            ended = hand.rejoin(STALE, "--yes", "-v", *give_up)
    assert ended.code == 0, ended.said
    assert tracker.lost == []
    (record,) = hand.records(STALE)
    assert (record.runbook, record.is_unfinished) == (FORCED, False)
    guests = cluster.node("pve2").run("ls /etc/pve/nodes/*/lxc/*.conf")
    assert guests == f"/etc/pve/nodes/{STALE}/lxc/101.conf\n"
    assert_back(hand)
    assert check(cluster, "pve1").conditions == [("healthy", "")]
    assert_sshd_is_put_back_as_advised(hand, ended)
    assert_no_key_was_told(hand, ended)
    assert node.run(files) != before
    assert_restored(hand)
    assert node.run(files) == before


def assert_sshd_is_put_back_as_advised(hand: Hand, ended: Ended) -> None:
    """What pvecm has written is said with a command that takes it back."""
    node = hand.cluster.node(STALE)
    assert "left out restore-sshd: " in ended.out
    assert node.can("grep -q '^PermitRootLogin yes' /etc/ssh/sshd_config")
    node.run(ended.out.partition(f"(root@{node.address}): ")[2].splitlines()[0])
    assert node.run("cat /etc/ssh/sshd_config") == node.run("cat /var/lib/pve-lab/sshd_config")


def assert_restored(hand: Hand) -> None:
    """What the one run saved is brought back: the node has its own guest 105 again, and is as stale as it was."""
    node = hand.cluster.node(STALE)
    (run,) = hand.restore("--json").lines("result")[0]["runs"]
    dry = hand.restore(run["run"], hand.host())
    assert dry.code == 0, dry.said
    assert "is as stale as it was" in dry.out
    assert node.is_quorate()
    hand.cluster.set_ha([f"service vm:100 ({STALE}, started)"])
    fenced = hand.restore(run["run"], hand.host(), "--yes")
    assert (fenced.code, "HA would fence it" in fenced.err) == (4, True), fenced.said
    hand.cluster.set_ha([])
    with hand.cluster.quorum_tracker(["pve2"]) as tracker:
        ended = hand.restore(run["run"], hand.host(), "--yes")
    assert ended.code == 0, ended.said
    assert "pve-cluster is active" in ended.out
    assert tracker.lost == []
    assert not node.can("test -e /root/.ssh/authorized_keys2")
    modes = node.run("stat -c %a /etc/corosync/authkey /etc/corosync/corosync.conf /var/lib/pve-cluster/config.db")
    assert modes.split() == ["400", "644", "600"]
    assert "ct105" in node.read(f"/etc/pve/nodes/{STALE}/lxc/105.conf")
    unknown = hand.restore("no-such-run", hand.host())
    assert (unknown.code, run["run"] in unknown.err) == (64, True), unknown.said


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
    ("mode", "step"), [*(("readdr", one) for one in FORCED_STEPS), *(("version", one) for one in LIGHT_STEPS)]
)
def test_a_run_may_be_killed_at_any_step(hand: Hand, mode: Mode, step: str) -> None:
    hand.cluster.make_stale(STALE, mode)
    with hand.cluster.quorum_tracker(["pve1", "pve2"]) as tracker:
        hand.kill_at(STALE, step)
        ended = hand.rejoin(STALE, "--yes")
    assert ended.code == 0, ended.said
    assert tracker.lost == []
    assert_back(hand)


def assert_refused(hand: Hand, *words: str) -> None:
    """With ``--yes`` and without: exit code 4, with these words."""
    for options in ((), ("--yes",)):
        ended = hand.rejoin(STALE, *options)
        assert ended.code == 4, ended.said
        for one in words:
            assert one in ended.err, ended.said


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
    hand.cluster.shut_down(STALE)
    ended = hand.rejoin(STALE)
    assert (ended.code, "it does not answer" in ended.err, "power-on-check" in ended.err) == (4, True, True), ended.said


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
