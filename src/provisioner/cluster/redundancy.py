"""The redundancy that a cluster with quorum lacks, and the reason why one has no quorum. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from provisioner.cluster.facts import Condition, CorosyncConf, Device, Diagnosis, NodeFacts
from provisioner.cluster.view import View
from provisioner.cluster.votes import can_lose, device_votes, expected_votes, has_device, votes_of_all
from provisioner.report.style import count_text

NETWORK = "Look at the network of that link between them: cable, switch, a firewall (UDP, 5405 and the link's number)."


@dataclass(frozen=True, slots=True)
class Weakness:
    """One thing that is not there; ``what`` stays the same as long as it lasts."""

    what: str
    evidence: tuple[str, ...]
    advice: str


def losses_text(view: View) -> str:
    """Return which nodes the cluster can lose now, in a sentence without a full stop; empty without quorum.

    Any one of them, and not all: after a loss the sentence is another one.
    """
    if view.quorum is None or not view.has_quorum:
        return ""
    names = can_lose(view.quorum, view.members)
    if not names:
        return "it can lose no node now without losing quorum"
    return f"it can lose one of these now, and keeps quorum: {', '.join(names)}"


def degraded_diagnoses(view: View) -> Iterator[Diagnosis]:
    """A finding for each weakness, with what can be lost now."""
    losses = losses_text(view)
    for weakness in weaknesses(view):
        message = f"{weakness.what}; {losses}"
        yield Diagnosis(Condition.DEGRADED, "", message, weakness.evidence, advice=weakness.advice)


def weaknesses(view: View) -> tuple[Weakness, ...]:
    """Everything that a cluster with quorum lacks beside members that are off; none without quorum.

    corosync itself says nothing of it: its tools exit with 0 as long as the votes are enough.
    """
    lead, conf = view.facts.lead, view.conf
    if lead is None or conf is None:
        return ()
    found = [*_of_links(view), *_of_votes(view)]
    if conf.version == lead.running_version:  # of one that was not taken up it says nothing
        found = [*_of_device(view, conf), *_of_expected(lead, conf), *found]
    return tuple(found)


def _of_device(view: View, conf: CorosyncConf) -> Iterator[Weakness]:
    """A QDevice that is configured, and gives some node no vote."""
    if not has_device(conf):
        return
    evidence = dict[str, str]()
    for node in view.joined_nodes:
        device = _device_of(node)
        if not device.votes:
            evidence[node.name] = f"{node.name}: {_device_words(node)}"
    if evidence:
        names = ", ".join(evidence)
        advice = _device_advice(conf, min(evidence))
        yield Weakness(f"the QDevice gives no vote on {names}", tuple(evidence.values()), advice)


def _device_of(node: NodeFacts) -> Device:
    """The QDevice as the node sees it; one without votes where none is registered."""
    device = node.quorum.device if node.quorum else None
    return device or Device(0, 0, "none is registered: corosync-qdevice does not run")


def _device_words(node: NodeFacts) -> str:
    """Return what the node says of its QDevice, which gives it no vote."""
    device = _device_of(node)
    words = [f"{device.votes} of {device.most} votes", device.state, node.device_state]
    return "; ".join(filter(None, words))


def _device_advice(conf: CorosyncConf, name: str) -> str:
    host = conf.settings.get("quorum.device.net.host", "its host")
    return (
        f"Look whether {host} is on, and corosync-qnetd runs there (TCP 5403). On {name}: corosync-qdevice-tool -s; "
        "systemctl restart corosync-qdevice"
    )


def _of_links(view: View) -> Iterator[Weakness]:
    """Links that are down between nodes which are joined, by another link or only just."""
    names_by_id = {member.nodeid: member.name for member in view.present_members}
    pairs_by_link = dict[int, dict[str, str]]()
    for node in view.joined_nodes:
        for link in node.links:
            other = names_by_id.get(link.nodeid, "")
            if link.is_connected or not other:
                continue
            pair = " and ".join(sorted((node.name, other)))
            pairs_by_link.setdefault(link.number, {})[pair] = (
                f"{node.name}: link {link.number} to {other}: disconnected"
            )
    for number, pairs in sorted(pairs_by_link.items()):
        yield Weakness(f"link {number} is down between {', '.join(sorted(pairs))}", tuple(pairs.values()), NETWORK)


def _of_expected(reference: NodeFacts, conf: CorosyncConf) -> Iterator[Weakness]:
    """Expected votes that are not those of all members: by a line of the list, or lowered by hand."""
    told, everybody = expected_votes(conf), votes_of_all(conf)
    if told != everybody:
        yield Weakness(
            f"corosync.conf says expected_votes: {told}, and all members together have {count_text(everybody, 'vote')}",
            (f"{reference.name}: config_version {conf.version}",),
            OVERRIDE,
        )
    quorum = reference.quorum
    if quorum is not None and quorum.expected < told:
        yield Weakness(
            f"the expected votes were lowered by hand to {quorum.expected}, the list has {told}",
            (
                f"{reference.name}: Expected votes: {quorum.expected}",
                f"{reference.name}: corosync.conf, version {conf.version}: {count_text(told, 'vote')}",
            ),
            "They rise again with each member that joins. Until then no other part may run: both would write.",
        )


OVERRIDE = (
    "Take the line expected_votes out of the section quorum of /etc/pve/corosync.conf, with a higher config_version: "
    "corosync counts the votes of its members itself."
)


def _of_votes(view: View) -> Iterator[Weakness]:
    """Members that are there with other votes than the list gives them."""
    quorum = view.quorum
    if quorum is None:
        return
    evidence = list[str]()
    for member in view.present_members:
        counted = quorum.present[member.nodeid]
        if counted < member.votes:
            evidence.append(f"{member.name}: {counted} counted, {member.votes} in the list")
    if evidence:
        yield Weakness(
            "votes are missing although their members are there",
            tuple(evidence),
            "The list was changed, and not taken up: corosync-cfgtool -R on one node makes all read it again.",
        )


@dataclass(frozen=True, slots=True)
class Blocked:
    """The reason why a part has no quorum although no member is missing, and the cure."""

    why: str
    advice: str


def why_blocked(view: View) -> Blocked | None:
    """Return why the reference has no quorum, unless it is that members are not there.

    Then bringing them back is the cure. Here it is not: corosync waits (``wait_for_all``), the list expects more votes
    than all members have, the QDevice is missing, or a member that is there has not the votes that the list gives it.
    """
    reference, quorum, conf = view.reference, view.quorum, view.conf
    if reference is None or conf is None or quorum is None:
        return None
    by_hand = f"On {reference.name}, once all other parts are proved off: pvecm expected {quorum.total}"
    if quorum.total >= quorum.needed:
        why = "the votes are enough, and corosync waits until it has seen all members once (wait_for_all)"
        return Blocked(why, f"Start the members that are missing. {by_hand} ends the waiting, too.")
    if votes_of_all(conf) < quorum.needed:
        why = f"corosync.conf expects {expected_votes(conf)} votes, and all members together have {votes_of_all(conf)}"
        return Blocked(why, f"{by_hand} gives quorum back until corosync starts again. Then: {OVERRIDE}")
    if len(view.present_members) < len(view.members):
        return None
    if device_votes(conf):
        why = f"all members are there, and the QDevice gives no vote ({_device_words(reference)})"
        return Blocked(why, _device_advice(conf, reference.name))
    return Blocked("all members are there, with fewer votes than the list gives them", by_hand)
