"""What is wrong with a node that answered, against the list that counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from provisioner.repair.conditions import Condition, Diagnosis
from provisioner.repair.corosync_log import is_about
from provisioner.repair.facts import Member, NodeFacts
from provisioner.repair.own_addresses import lost_addresses, near_addresses, usable_addresses
from provisioner.repair.pve_age import has_newer_pve, pve_age_words
from provisioner.repair.ring import could_disturb, disturbs, unheard_words
from provisioner.repair.view import View, is_running, member_in, members_of, version_of, versions_text

LIGHT = "stale-corosync-behind"
FORCED = "stale-corosync-rejoin"
REJOIN = "provision cluster rejoin {}"


def node_diagnoses(node: NodeFacts, view: View) -> tuple[Diagnosis, ...]:
    """The conditions of a clustered node; none when it is joined and its list is the current one."""
    if not view.has_quorum and view.is_alone:
        return tuple(_by_own_log(node))
    if view.is_joined(node):
        return tuple(_of_joined(node, view))
    reference = view.reference
    if reference is None or node is reference:
        return () if is_running(node) else (_dead(node),)
    return tuple(_kept_out(diagnosis, node, reference) for diagnosis in _of_absent(node, view))


def _of_absent(node: NodeFacts, view: View) -> Iterator[Diagnosis]:
    """Why a node is not joined; nothing where it disturbs all nodes, which is told first among what concerns them."""
    member = view.member(node.name)
    if member is None or member.nodeid != _own_id(node, member.nodeid):
        yield _removed(node, view, member)
        return
    if disturbs(node, view):
        return
    differences = tuple(_differences(node, member, view))
    yield from differences
    if not differences:
        yield _without_difference(node, view)


def _kept_out(diagnosis: Diagnosis, node: NodeFacts, reference: NodeFacts) -> Diagnosis:
    """A node whose /etc/pve would replace the cluster's needs the runbook that brings it back without."""
    if diagnosis.runbook != LIGHT or not has_newer_pve(node, reference):
        return diagnosis
    newer = f"its /etc/pve would replace the cluster's: {pve_age_words(node, reference)}"
    advice = f"Keep corosync on it stopped until it is back: {REJOIN.format(node.name)}"
    return replace(diagnosis, evidence=(*diagnosis.evidence, newer), runbook=FORCED, advice=advice)


def _own_id(node: NodeFacts, otherwise: int) -> int:
    own = member_in(members_of(node), node.name)
    return own.nodeid if own else otherwise


def _of_joined(node: NodeFacts, view: View) -> Iterator[Diagnosis]:
    """That a node which is joined has an old list, as it runs or in a file."""
    running = node.running_version or 0
    newest_file = max((conf.version for conf in node.files), default=running)
    if running < view.version:
        behind = _behind(view.version - running)
        yield Diagnosis(
            Condition.BEHIND,
            node.name,
            f"its list is {behind}, while it is joined: it would end itself at its next start",
            (versions_text(node), f"{view.reference_name}: config_version {view.version}"),
            LIGHT,
            REJOIN.format(node.name),
        )
    elif newest_file > running:
        yield Diagnosis(
            Condition.BEHIND,
            node.name,
            f"corosync runs with version {running}, and a file says {newest_file}: it was not taken up",
            (versions_text(node),),
            advice="Run corosync-cfgtool -R on a node; if it refuses, an address has changed, and corosync has to be "
            "restarted, on one node after the other.",
        )
    elif node.local_version is not None and node.local_version < running:
        behind = _behind(running - node.local_version)
        yield Diagnosis(
            Condition.BEHIND,
            node.name,
            f"/etc/corosync/corosync.conf is {behind}: it counts at the next start",
            (versions_text(node),),
            LIGHT,
            REJOIN.format(node.name),
        )


def _by_own_log(node: NodeFacts) -> Iterator[Diagnosis]:
    """What a node's own log proves when there is nobody to compare it with."""
    log = node.signatures
    is_outdated = _ended_because_behind(node)
    if log.outdated is not None and is_outdated:
        received, own = log.outdated
        what = f"its list is {_behind(received - own)}: corosync ended itself"
        yield _logged(node, Condition.BEHIND, what, "Received config version", LIGHT)
    if log.undecryptable:
        what = f"it cannot decrypt what comes from {', '.join(log.undecryptable)}: one of them has another key"
        yield _logged(node, Condition.KEY_CHANGED, what, "Unable to decrypt", FORCED)
    if log.rejected:
        what = f"packets come from {', '.join(log.rejected)}, which its list does not have for their senders"
        yield _logged(node, Condition.PEERS_MOVED, what, "Packet rejected", LIGHT)
    if not is_running(node) and not is_outdated:
        yield _dead(node)


def _ended_because_behind(node: NodeFacts) -> bool:
    """Whether corosync ended itself over a newer list, and the node has no such list since."""
    outdated = node.signatures.outdated
    if outdated is None:
        return False
    received, _ = outdated
    return node.local_version is None or node.local_version < received


def _logged(node: NodeFacts, condition: Condition, what: str, words: str, runbook: str) -> Diagnosis:
    """A diagnosis for which the lines of the node's log with these words are the evidence."""
    evidence = (*_log(node, words), versions_text(node))
    advice = "Name a node that is in the cluster: its list and key are needed to compare."
    return Diagnosis(condition, node.name, what, evidence, runbook, advice)


def _removed(node: NodeFacts, view: View, member: Member | None) -> Diagnosis:
    """A node that is no member any more, or one with another id."""
    own = member_in(members_of(node), node.name)
    evidence = (versions_text(node), view.list_text, *_log_of_others(node, view), *_folder(node, view))
    advice = f"Keep corosync on it stopped until it is back: {REJOIN.format(node.name)}"
    heir = _heir(own, view) if own else None
    if own and heir:
        what = f"it was removed, and its id {own.nodeid} was given to {heir.name}"
        return Diagnosis(Condition.ID_REUSED, node.name, what, evidence, FORCED, advice)
    again = f", and {node.name} was added again with id {member.nodeid}" if member else ""
    what = f"it was removed from the cluster{again}; it still takes itself for a member"
    return Diagnosis(Condition.REMOVED, node.name, what, evidence, FORCED, advice)


def _heir(own: Member, view: View) -> Member | None:
    """The member that has the node's id now."""
    for member in view.members:
        is_other = member.name != own.name
        if is_other and member.nodeid == own.nodeid:
            return member
    return None


def _differences(node: NodeFacts, member: Member, view: View) -> Iterator[Diagnosis]:
    """In what the node is not as the cluster has it: key, the others' addresses, its own."""
    yield from _key_change(node, view)
    yield from _moved_peers(node, view)
    own = member_in(members_of(node), node.name)
    if own and own.addresses != member.addresses:
        yield _moved(node, view, own, member)
        return
    lost = lost_addresses(node, member)
    if lost:
        yield _renumbered(node, view, lost)


def _key_change(node: NodeFacts, view: View) -> Iterator[Diagnosis]:
    """A node with another authkey than the reference sends packets that nobody can decrypt."""
    reference = view.reference
    if reference is None or not node.key_digest or not reference.key_digest:
        return
    if node.key_digest == reference.key_digest:
        return
    keys = f"sha256 of authkey: {node.key_digest[:16]}… here, {reference.key_digest[:16]}… on {reference.name}"
    logs = (*_log(node, "decrypt"), *_log_of_others(node, view))
    yield Diagnosis(
        Condition.KEY_CHANGED,
        node.name,
        "it has another authkey than the cluster",
        (keys, *logs, versions_text(node), view.list_text),
        FORCED,
        REJOIN.format(node.name),
    )


def _moved_peers(node: NodeFacts, view: View) -> Iterator[Diagnosis]:
    """That members have other addresses than the node's list says."""
    own_list = members_of(node)
    names, lines = list[str](), list[str]()
    for member in view.members:
        listed = member_in(own_list, member.name)
        if member.name == node.name or listed is None or listed.addresses == member.addresses:
            continue
        names.append(member.name)
        lines.append(f"{member.name}: {_at(member)}, its list says {_at(listed)}")
    if names:
        yield Diagnosis(
            Condition.PEERS_MOVED,
            node.name,
            f"{', '.join(names)} moved to other addresses: it rejects their packets",
            (*lines, *_log(node, "Packet rejected"), versions_text(node), view.list_text),
            LIGHT,
            REJOIN.format(node.name),
        )


def _moved(node: NodeFacts, view: View, own: Member, member: Member) -> Diagnosis:
    """Its own list has another address for it than the cluster's: it has moved, or the list is only old."""
    what = f"the cluster knows it by {_at(member)}, and its own list says {_at(own)}"
    evidence = (
        f"addresses of {node.name}: {', '.join(node.addresses) or 'not known'}",
        *_log_of_others(node, view),
        versions_text(node),
        view.list_text,
    )
    advice = REJOIN.format(node.name)
    has_it = bool(node.addresses) and set(member.addresses) <= set(node.addresses)
    if has_it:
        what += ": the list is old, the node has that address"
        return Diagnosis(Condition.BEHIND, node.name, what, evidence, LIGHT, advice)
    what += ": its packets are rejected"
    return Diagnosis(Condition.NODE_MOVED, node.name, what, evidence, FORCED, advice)


def _renumbered(node: NodeFacts, view: View, lost: tuple[str, ...]) -> Diagnosis:
    """All lists agree on an address that it does not have any more."""
    now = ", ".join(near_addresses(node, lost) or usable_addresses(node)) or "none that others could reach"
    what = f"its own address changed: all lists say {', '.join(lost)}, and it is at {now}"
    evidence = (f"addresses of {node.name}: {', '.join(node.addresses)}", *_log_of_others(node, view), view.list_text)
    advice = (
        f"Give it {', '.join(lost)} back, then on it: systemctl restart corosync. Or have the cluster take it at its "
        f"new address, which its /etc/hosts has to say, too: {REJOIN.format(node.name)}"
    )
    return Diagnosis(Condition.NODE_MOVED, node.name, what, (*evidence, *_units(node)), FORCED, advice)


def _without_difference(node: NodeFacts, view: View) -> Diagnosis:
    """A node that is as the cluster has it and has not joined: it is behind, its corosync is dead, or it is cut off."""
    version = version_of(node)
    if version is not None and version < view.version:
        return _only_behind(node, view, view.version - version)
    if not is_running(node):
        return _dead(node)
    links = [f"link {link.number} to node {link.nodeid}: disconnected" for link in node.links if not link.is_connected]
    return Diagnosis(
        Condition.PARTITION,
        node.name,
        f"its corosync runs with the same list and key, and does not meet {view.reference_name}",
        (*links, *node.signatures.lines, versions_text(node)),
        advice="Look at the network between the nodes: UDP 5405 of each link, both ways; a firewall; the switch.",
    )


def _only_behind(node: NodeFacts, view: View, versions: int) -> Diagnosis:
    """A node with an old list, which is right about the node itself; it may lack members or their new addresses."""
    what = f"its list is {_behind(versions)}, with the same key, id and addresses"
    advice = REJOIN.format(node.name)
    if could_disturb(node, view):
        what = f"its list is {_behind(versions)}: {unheard_words(node, view)} while it was off"
        advice = f"Keep corosync on it stopped, it would disturb the cluster. Bring it back: {advice}"
    if not is_running(node):
        what += "; corosync does not run"
    evidence = (*_log(node, "Received config version"), versions_text(node), view.list_text, *_units(node))
    return Diagnosis(Condition.BEHIND, node.name, what, evidence, LIGHT, advice)


def _dead(node: NodeFacts) -> Diagnosis:
    """Corosync does not run, and nothing else was found that would explain it."""
    return Diagnosis(
        Condition.COROSYNC_DEAD,
        node.name,
        "corosync does not run",
        (*_units(node), *node.signatures.lines, versions_text(node)),
        LIGHT,
        f"Read journalctl -u corosync -b there; then systemctl start corosync, or: {REJOIN.format(node.name)}",
    )


def _units(node: NodeFacts) -> tuple[str, ...]:
    return tuple(f"{unit}: {state}" for unit, state in node.units.items())


def _log(node: NodeFacts, words: str) -> tuple[str, ...]:
    return tuple(f"{node.name}: {line}" for line in node.signatures.lines if words in line)


def _log_of_others(node: NodeFacts, view: View) -> tuple[str, ...]:
    """The lines of the others' logs that name one of the node's addresses."""
    own = set(node.all_addresses)
    for member in members_of(node):
        if member.name == node.name:
            own.update(member.addresses)
    lines = list[str]()
    for other in view.facts.nodes:
        if other is not node:
            lines += [f"{other.name}: {line}" for line in other.signatures.lines if is_about(line, own)]
    return tuple(lines)


def _folder(node: NodeFacts, view: View) -> tuple[str, ...]:
    """The removed node's folder in ``/etc/pve/nodes``, if it is still there."""
    if view.reference is None or node.name not in view.reference.guests:
        return ()
    guests = view.reference.guests[node.name]
    return (f"/etc/pve/nodes/{node.name} is still there, with {len(guests)} guests",)


def _at(member: Member) -> str:
    return " ".join(member.addresses)


def _behind(versions: int) -> str:
    return "1 version behind" if versions == 1 else f"{versions} versions behind"
