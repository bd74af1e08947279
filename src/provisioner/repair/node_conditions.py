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
    if node is view.reference or view.reference is None:
        return () if is_running(node) else (_dead(node),)
    member = view.member(node.name)
    if member is None or member.nodeid != _own_id(node, member.nodeid):
        return (_removed(node, view, member),)
    if disturbs(node, view):
        return ()  # it is told first, among what concerns all nodes
    found = tuple(_differences(node, member, view)) or (_without_difference(node, view),)
    return tuple(_kept_out(one, node, view.reference) for one in found)


def _kept_out(found: Diagnosis, node: NodeFacts, reference: NodeFacts) -> Diagnosis:
    """A node whose /etc/pve would replace the cluster's needs the runbook that brings it back without."""
    if found.runbook != LIGHT or not has_newer_pve(node, reference):
        return found
    newer = f"its /etc/pve would replace the cluster's: {pve_age_words(node, reference)}"
    advice = f"Keep corosync on it stopped until it is back: {REJOIN.format(node.name)}"
    return replace(found, evidence=(*found.evidence, newer), runbook=FORCED, advice=advice)


def _own_id(node: NodeFacts, otherwise: int) -> int:
    own = member_in(members_of(node), node.name)
    return own.nodeid if own else otherwise


def _of_joined(node: NodeFacts, view: View) -> Iterator[Diagnosis]:
    running = node.running_version or 0
    files = [conf.version for conf in (node.local_conf, node.pve_conf) if conf]
    if running < view.version:
        yield Diagnosis(
            Condition.BEHIND,
            node.name,
            f"its list is {_behind(view.version - running)}, while it is joined: it would end itself at its next start",
            (versions_text(node), f"{view.reference_name}: config_version {view.version}"),
            LIGHT,
            REJOIN.format(node.name),
        )
    elif files and max(files) > running:
        yield Diagnosis(
            Condition.BEHIND,
            node.name,
            f"corosync runs with version {running}, and a file says {max(files)}: it was not taken up",
            (versions_text(node),),
            advice="Run corosync-cfgtool -R on a node; if it refuses, an address has changed, and corosync has to be "
            "restarted, on one node after the other.",
        )
    elif files and node.local_conf and node.local_conf.version < running:
        yield Diagnosis(
            Condition.BEHIND,
            node.name,
            f"/etc/corosync/corosync.conf is {_behind(running - node.local_conf.version)}: it counts at the next start",
            (versions_text(node),),
            LIGHT,
            REJOIN.format(node.name),
        )


def _by_own_log(node: NodeFacts) -> Iterator[Diagnosis]:
    """What a node's own log proves when there is nobody to compare it with."""
    log = node.signatures
    advice = "Name a node that is in the cluster: its list and key are needed to compare."

    def told(condition: Condition, what: str, words: str, runbook: str) -> Diagnosis:
        evidence = (*_log(node, words), versions_text(node))
        return Diagnosis(condition, node.name, what, evidence, runbook, advice)

    is_outdated = log.outdated is not None and (node.local_conf is None or node.local_conf.version < log.outdated[0])
    if log.outdated and is_outdated:
        received, own = log.outdated
        what = f"its list is {_behind(received - own)}: corosync ended itself"
        yield told(Condition.BEHIND, what, "Received config version", LIGHT)
    if log.undecryptable:
        what = f"it cannot decrypt what comes from {', '.join(log.undecryptable)}: one of them has another key"
        yield told(Condition.KEY_CHANGED, what, "Unable to decrypt", FORCED)
    if log.rejected:
        what = f"packets come from {', '.join(log.rejected)}, which its list does not have for their senders"
        yield told(Condition.PEERS_MOVED, what, "Packet rejected", LIGHT)
    if not is_running(node) and not is_outdated:
        yield _dead(node)


def _removed(node: NodeFacts, view: View, member: Member | None) -> Diagnosis:
    own = member_in(members_of(node), node.name)
    heir = next((one for one in view.members if own and one.nodeid == own.nodeid and one.name != node.name), None)
    evidence = [versions_text(node), view.list_text, *_log_of_others(node, view), *_folder(node, view)]
    advice = f"Keep corosync on it stopped until it is back: {REJOIN.format(node.name)}"
    if heir and own:
        what = f"it was removed, and its id {own.nodeid} was given to {heir.name}"
        return Diagnosis(Condition.ID_REUSED, node.name, what, tuple(evidence), FORCED, advice)
    again = f", and {node.name} was added again with id {member.nodeid}" if member else ""
    what = f"it was removed from the cluster{again}; it still takes itself for a member"
    return Diagnosis(Condition.REMOVED, node.name, what, tuple(evidence), FORCED, advice)


def _differences(node: NodeFacts, member: Member, view: View) -> Iterator[Diagnosis]:
    reference = view.reference
    common = (versions_text(node), view.list_text)
    advice = REJOIN.format(node.name)
    if reference and node.key_digest and reference.key_digest and node.key_digest != reference.key_digest:
        keys = f"sha256 of authkey: {node.key_digest[:16]}… here, {reference.key_digest[:16]}… on {reference.name}"
        evidence = (keys, *_log(node, "decrypt"), *_log_of_others(node, view))
        what = "it has another authkey than the cluster"
        yield Diagnosis(Condition.KEY_CHANGED, node.name, what, (*evidence, *common), FORCED, advice)
    own_list = members_of(node)
    moved = [
        (one, old)
        for one in view.members
        if one.name != node.name and (old := member_in(own_list, one.name)) and old.addresses != one.addresses
    ]
    if moved:
        lines = [f"{new.name}: {_at(new)}, its list says {_at(old)}" for new, old in moved]
        what = f"{', '.join(new.name for new, _ in moved)} moved to other addresses: it rejects their packets"
        evidence = (*lines, *_log(node, "Packet rejected"), *common)
        yield Diagnosis(Condition.PEERS_MOVED, node.name, what, evidence, LIGHT, advice)
    own = member_in(own_list, node.name)
    if own and own.addresses != member.addresses:
        yield _moved(node, view, own, member)
    elif lost := lost_addresses(node, member):
        yield _renumbered(node, view, lost)


def _moved(node: NodeFacts, view: View, own: Member, member: Member) -> Diagnosis:
    """Its own list has another address for it than the cluster's: it has moved, or the list is only old."""
    has_it = bool(node.addresses) and set(member.addresses) <= set(node.addresses)
    what = f"the cluster knows it by {_at(member)}, and its own list says {_at(own)}"
    what += ": the list is old, the node has that address" if has_it else ": its packets are rejected"
    evidence = (
        f"addresses of {node.name}: {', '.join(node.addresses) or 'not known'}",
        *_log_of_others(node, view),
        versions_text(node),
        view.list_text,
    )
    condition, runbook = (Condition.BEHIND, LIGHT) if has_it else (Condition.NODE_MOVED, FORCED)
    return Diagnosis(condition, node.name, what, evidence, runbook, REJOIN.format(node.name))


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
    behind = view.version - (version_of(node) or 0)
    if version_of(node) is not None and behind > 0:
        what = f"its list is {_behind(behind)}, with the same key, id and addresses"
        advice = REJOIN.format(node.name)
        if could_disturb(node, view):
            what = f"its list is {_behind(behind)}: {unheard_words(node, view)} while it was off"
            advice = f"Keep corosync on it stopped, it would disturb the cluster. Bring it back: {advice}"
        if not is_running(node):
            what += "; corosync does not run"
        evidence = (*_log(node, "Received config version"), versions_text(node), view.list_text, *_units(node))
        return Diagnosis(Condition.BEHIND, node.name, what, evidence, LIGHT, advice)
    if not is_running(node):
        return _dead(node)
    links = [f"link {one.number} to node {one.nodeid}: disconnected" for one in node.links if not one.is_connected]
    return Diagnosis(
        Condition.PARTITION,
        node.name,
        f"its corosync runs with the same list and key, and does not meet {view.reference_name}",
        (*links, *node.signatures.lines, versions_text(node)),
        advice="Look at the network between the nodes: UDP 5405 of each link, both ways; a firewall; the switch.",
    )


def _dead(node: NodeFacts) -> Diagnosis:
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
    own = {
        node.address,
        *node.addresses,
        *(a for one in members_of(node) if one.name == node.name for a in one.addresses),
    }
    lines = [f"{one.name}: {line}" for one in view.facts.nodes if one is not node for line in one.signatures.lines]
    return tuple(line for line in lines if is_about(line, own))


def _folder(node: NodeFacts, view: View) -> tuple[str, ...]:
    guests = view.reference.guests.get(node.name) if view.reference else None
    return () if guests is None else (f"/etc/pve/nodes/{node.name} is still there, with {len(guests)} guests",)


def _at(member: Member) -> str:
    return " ".join(member.addresses)


def _behind(versions: int) -> str:
    return "1 version behind" if versions == 1 else f"{versions} versions behind"
