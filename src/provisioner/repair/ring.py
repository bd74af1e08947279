"""A node that hears some members and not all: the ring of the cluster never closes, and all nodes form it anew. Pure.

So it is when a member was added, or got another address, while the node was off. No node writes "Received config
version", and the node does not end itself: those that it hears try to take it in, the others are never heard by it, and
corosync gives up after its time limit and begins again. Meanwhile a write to ``/etc/pve`` hangs on every node.
"""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.repair.conditions import Condition, Diagnosis
from provisioner.repair.facts import Member, NodeFacts
from provisioner.repair.own_addresses import lost_addresses
from provisioner.repair.pve_age import has_newer_pve
from provisioner.repair.view import DEAD, View, member_in, members_of, versions_text

LIGHT, FORCED = "stale-corosync-behind", "stale-corosync-rejoin"
OFTEN = 3
"""Memberships formed anew in two minutes without anybody joining or leaving: a token may be late once."""
HANGS = "a write to /etc/pve hangs for seconds on every node, again and again"


def ring_diagnoses(view: View) -> Iterator[Diagnosis]:
    """The nodes that keep the ring open now, whether they answer or not; then that somebody does, if none was found."""
    causes = tuple(_known_causes(view))
    yield from causes
    restless = restless_nodes(view)
    was_stopped_just_now = any(could_disturb(node, view) for node in view.clustered)
    if restless and not causes and not was_stopped_just_now:
        yield _unexplained(restless)


def _known_causes(view: View) -> Iterator[Diagnosis]:
    """The nodes that keep the ring open, first those that answer us."""
    for node in view.clustered:
        if disturbs(node, view):
            yield _disturbing(node, view)
    for member in view.members:
        if is_heard_only(member, view):
            yield _silent(member, view)


def _unexplained(restless: tuple[NodeFacts, ...]) -> Diagnosis:
    """The ring never closes, and no node that we know of explains it."""
    return Diagnosis(
        Condition.DISTURBING,
        "",
        f"the nodes form their membership anew again and again, and nobody joins or leaves: {HANGS}",
        _restless_text(restless),
        advice="Look for a node with an old list: one that was off while a member was added. Stop corosync on it. Else "
        "look at the network between the nodes: packets are lost.",
    )


def disturbs(node: NodeFacts, view: View) -> bool:
    """Whether its corosync runs, and hears some of the members that are joined and not all of them.

    It need not answer: while corosync forms its membership its tools wait for it, too. Where it does, it has a link.
    """
    member = view.member(node.name)
    if not view.has_quorum or member is None or view.is_present(member.nodeid):
        return False
    if node.units.get("corosync", "") in DEAD or _has_no_link(node):
        return False
    return could_disturb(node, view)


def _has_no_link(node: NodeFacts) -> bool:
    """Whether its corosync says that it reaches no other node; where it says nothing that is not known."""
    if not node.links:
        return False
    return not any(link.is_connected for link in node.links)


def could_disturb(node: NodeFacts, view: View) -> bool:
    """Whether it would do so once its corosync runs, by its list, its key and its own address."""
    reference = view.reference
    if reference is None or reference is node:
        return False
    if node.key_digest and node.key_digest != reference.key_digest:
        return False
    if not _has_own_place(node, view):
        return False
    return 0 < len(unheard(node, view)) < len(_others(node, view))


def _has_own_place(node: NodeFacts, view: View) -> bool:
    """Whether its list has it at the same place as the cluster's, and it is there."""
    member = view.member(node.name)
    own = member_in(members_of(node), node.name)
    if member is None or own is None:
        return False
    return own.place == member.place and not lost_addresses(node, member)


def unheard(node: NodeFacts, view: View) -> tuple[Member, ...]:
    """The joined members that the node's list lacks, or has at other addresses."""
    listed = members_of(node)
    missing = list[Member]()
    for member in _others(node, view):
        known = member_in(listed, member.name)
        if known is None or known.place != member.place:
            missing.append(member)
    return tuple(missing)


def unheard_words(node: NodeFacts, view: View) -> str:
    """Why it does not hear them: "pve4 was added", "pve2 moved to other addresses"."""
    listed = {member.name for member in members_of(node)}
    added, moved = list[str](), list[str]()
    for member in unheard(node, view):
        names = moved if member.name in listed else added
        names.append(member.name)
    words = list[str]()
    if added:
        words.append(f"{', '.join(added)} {'was' if len(added) == 1 else 'were'} added")
    if moved:
        words.append(f"{', '.join(moved)} moved to other addresses")
    return " and ".join(words)


def is_heard_only(member: Member, view: View) -> bool:
    """Whether it does not answer us and is not joined, and corosync on a joined node has a link to it meanwhile."""
    answers = view.facts.node(member.name) is not None
    if answers or not view.has_quorum or view.is_present(member.nodeid):
        return False
    is_forming = bool(restless_nodes(view))
    return is_forming and bool(link_lines(member, view))


def link_lines(member: Member, view: View) -> tuple[str, ...]:
    """Where corosync on joined nodes has a link to the member, which is on then."""
    lines = list[str]()
    for node in view.joined_nodes:
        for link in node.links:
            if link.nodeid == member.nodeid and link.is_connected:
                lines.append(f"{node.name}: link {link.number} to node {member.nodeid} ({member.name}): connected")
    return tuple(lines)


def restless_nodes(view: View) -> tuple[NodeFacts, ...]:
    """The joined nodes that form their membership anew again and again."""
    return tuple(node for node in view.joined_nodes if node.signatures.reformed >= OFTEN)


def stop_words(name: str, address: str) -> str:
    """The first thing to do."""
    return f"Stop corosync on {name} now, on it (root@{address}): systemctl stop corosync"


def _disturbing(node: NodeFacts, view: View) -> Diagnosis:
    """A node that answers us, and has members in its list that it cannot hear at those addresses."""
    what = (
        f"it disturbs the cluster: while it was off {unheard_words(node, view)}, its list does not say so, and it "
        f"cannot hear them all. It does not end itself, the ring never closes, and {HANGS}"
    )
    members = ", ".join(f"{member.name} {' '.join(member.addresses)}" for member in members_of(node))
    restless = (node, *restless_nodes(view))
    evidence = (f"{node.name}: its list has {members}", versions_text(node), view.list_text, *_restless_text(restless))
    advice = (
        f"{stop_words(node.name, node.address)} (it may take 20 s). Then bring it back: provision cluster rejoin "
        f"{node.name}"
    )
    has_newer = view.reference is not None and has_newer_pve(node, view.reference)
    runbook = FORCED if has_newer else LIGHT
    return Diagnosis(Condition.DISTURBING, node.name, what, evidence, runbook, advice)


def _silent(member: Member, view: View) -> Diagnosis:
    """A member that does not answer us, while corosync on joined nodes has a link to it."""
    what = (
        "it is on and disturbs the cluster: corosync hears it and cannot take it in, as when a member was added while "
        f"it was off, and {HANGS}"
    )
    evidence = list(link_lines(member, view))
    silent = view.facts.silence(member.name)
    if silent is not None:
        evidence.append(f"{silent.address}: {silent.why}")
    evidence += _restless_text(restless_nodes(view))
    advice = (
        f"{stop_words(member.name, member.addresses[0])}. It does not answer us: use its own console, or pull its "
        f"network cable. Then make ssh to it work, and bring it back: provision cluster rejoin {member.name}"
    )
    return Diagnosis(Condition.DISTURBING, member.name, what, tuple(evidence), LIGHT, advice)


def _others(node: NodeFacts, view: View) -> tuple[Member, ...]:
    """The joined members, without the node itself."""
    return tuple(member for member in view.present_members if member.name != node.name)


def _restless_text(nodes: tuple[NodeFacts, ...]) -> tuple[str, ...]:
    """Of each node how often it formed its membership anew, and its log's last line about that."""
    texts = list[str]()
    for node in nodes:
        formed = [line for line in node.signatures.lines if "A new membership" in line]
        if formed:
            count = node.signatures.reformed
            texts.append(f"{node.name}: {count} memberships formed anew; the last: {formed[-1]}")
    return tuple(texts)
