"""Which repair brings a stale node back: the light one, which loses nothing, or the forced rejoin. Pure.

The light one (its list replaced, corosync restarted) suffices where the node is still in the cluster's list as it is:
by name, id and addresses, with the same key. Whether others have moved does not matter: the new list says where to. But
a node whose ``/etc/pve`` saw more writes than the cluster's would replace it for all: that one has to come without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from provisioner.repair.facts import CorosyncConf, Member, NodeFacts
from provisioner.repair.own_addresses import is_address, near_addresses
from provisioner.repair.pve_age import has_newer_pve, pve_age_words
from provisioner.repair.record import Record


class Kind(StrEnum):
    """What has to be done; the value is the runbook's id."""

    NOTHING = "nothing"
    LIGHT = "stale-corosync-behind"
    FORCED = "stale-corosync-rejoin"


Restart = Literal["", "corosync", "pve-cluster"]


@dataclass(frozen=True, slots=True)
class Entry:
    """The node's place in the cluster's list after a forced rejoin; ``nodeid`` None: the lowest free one.

    ``replaces``: the cluster knows the node by another address, and no running corosync can be told a new one of a
    member: it has to be taken out of the list first.
    """

    nodeid: int | None
    votes: int
    addresses: tuple[str, ...]
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class RejoinPlan:
    """What will be done with ``node``, and why: ``reasons`` are sentences.

    ``version`` and ``digest`` are the lead's list's; ``entry`` is there for a forced rejoin. ``resumes``: an earlier
    run of the same repair did not come to its end. ``is_joined``: the node is in; what is left to do is only what comes
    after that, or its list on disk. ``restarts``: the service that the light repair restarts, empty for none.
    """

    kind: Kind
    node: str
    lead: str
    cluster: str
    version: int
    digest: str
    reasons: tuple[str, ...]
    entry: Entry | None = None
    resumes: bool = False
    is_joined: bool = False
    restarts: Restart = ""


def rejoin_plan(node: NodeFacts, lead: NodeFacts, conf: CorosyncConf, left: Record | None = None) -> RejoinPlan:
    """The plan for ``node``, by the list ``conf`` of the quorate ``lead``; ``left`` is an unfinished run on it."""
    is_joined, differs = _is_in(node, lead, conf), differences(node, lead, conf)
    kind, reasons = Kind.FORCED, differs
    if left is not None and left.runbook in (Kind.LIGHT, Kind.FORCED) and (is_joined or left.has_begun("join")):
        kind, reasons = Kind(left.runbook), (f"The repair of {left.began} did not come to its end.", *differs)
    elif is_joined and not differs and _has_old_list(node, conf):
        kind, reasons = Kind.LIGHT, _only_listed(node)
    elif is_joined:
        kind, reasons = Kind.NOTHING, (f"It is a member like the others, with version {node.running_version}.",)
    elif not differs and has_newer_pve(node, lead):
        kind, reasons = Kind.FORCED, _overwriting(node, lead)
    elif not differs:
        kind, reasons = Kind.LIGHT, _unattached(node) if _can_vote(node, lead, conf) else _behind(node, conf)
    is_in = is_joined and kind is not Kind.NOTHING
    return RejoinPlan(
        kind=kind,
        node=node.name,
        lead=lead.name,
        cluster=conf.cluster,
        version=conf.version,
        digest=conf.digest,
        reasons=reasons,
        entry=entry_of(node, conf, left) if kind is Kind.FORCED else None,
        resumes=left is not None and left.runbook == kind,
        is_joined=is_in,
        restarts=_restart(node, lead, conf) if kind is Kind.LIGHT and not is_in else "",
    )


def is_healthy(node: NodeFacts, lead: NodeFacts, conf: CorosyncConf) -> bool:
    """Whether the node is joined, quorate, up to date and can write: what a repair has to bring about.

    Its file counts, too: with an old one corosync would end itself at its next start.
    """
    return _is_in(node, lead, conf) and not _has_old_list(node, conf)


def _is_in(node: NodeFacts, lead: NodeFacts, conf: CorosyncConf) -> bool:
    return _can_vote(node, lead, conf) and node.is_writable


def _has_old_list(node: NodeFacts, conf: CorosyncConf) -> bool:
    return node.local_conf is not None and node.local_conf.version < conf.version


def _can_vote(node: NodeFacts, lead: NodeFacts, conf: CorosyncConf) -> bool:
    """Whether its corosync has nothing to be repaired: it is joined and quorate, and runs with the current list."""
    member = conf.member(node.name)
    return bool(
        member
        and member.nodeid in lead.joined
        and node.quorum
        and node.quorum.is_quorate
        and node.running_version == lead.running_version == conf.version
    )


def differences(node: NodeFacts, lead: NodeFacts, conf: CorosyncConf) -> tuple[str, ...]:
    """In what the node is another one than the cluster knows: why the light repair would not do; none when it does."""
    member, own = conf.member(node.name), own_entry(node)
    found = []
    if node.local_conf is None or own is None:
        found.append("It has no list with itself in it (/etc/corosync/corosync.conf).")
    elif node.local_conf.cluster != conf.cluster:
        found.append(f"Its list is that of another cluster, {node.local_conf.cluster}.")
    if not node.key_digest or node.key_digest != lead.key_digest:
        found.append("Its key is not the cluster's (/etc/corosync/authkey).")
    if member is None:
        found.append("The cluster's list does not have it any more.")
        if own and (other := next((one for one in conf.members if one.nodeid == own.nodeid), None)):
            found.append(f"Its id {own.nodeid} belongs to {other.name} now.")
        return tuple(found)
    if own and own.nodeid != member.nodeid:
        found.append(f"Its id is {own.nodeid}, in the cluster's list {member.nodeid}.")
    if not has_addresses(node, member):
        there, here = ", ".join(member.addresses), ", ".join(_own_addresses(node, own, conf)) or "none of its networks"
        found.append(f"The cluster's list has it at {there}, and it is at {here}.")
    return tuple(found)


def entry_of(node: NodeFacts, conf: CorosyncConf, left: Record | None = None) -> Entry:
    """The node's place in the list: its votes and its id are kept, unless another node has that id now."""
    member, own = conf.member(node.name), own_entry(node)
    if member is not None:
        fits = has_addresses(node, member)
        addresses = member.addresses if fits else _own_addresses(node, own, conf)
        return Entry(member.nodeid, member.votes, addresses, replaces=not fits)
    decided: Mapping[str, Any] = left.plan if left is not None else {}
    nodeid = decided.get("nodeid") or (own.nodeid if own else None)
    votes = decided.get("votes", own.votes if own else 1)
    is_taken = any(one.nodeid == nodeid for one in conf.members)
    return Entry(None if is_taken else nodeid, votes, _own_addresses(node, own, conf))


def lead_address(lead: NodeFacts, conf: CorosyncConf) -> str:
    """Where the other nodes reach the lead: pmxcfs's word, else its first link; we may reach it by another way."""
    peers = lead.pmxcfs.peers if lead.pmxcfs else ()
    by_pmxcfs = next((one.address for one in peers if one.name == lead.name and one.address), "")
    member = conf.member(lead.name)
    return by_pmxcfs or (member.addresses[0] if member and member.addresses else lead.address)


def node_address(node: NodeFacts, lead: NodeFacts, conf: CorosyncConf) -> str:
    """Where the lead reaches the node: by pmxcfs's word or the list, unless the node is there no more."""
    peers = lead.pmxcfs.peers if lead.pmxcfs else ()
    member = conf.member(node.name)
    known = [one.address for one in peers if one.name == node.name]
    known += member.addresses if member else ()
    others = [address for one in conf.members if one.name != node.name for address in one.addresses]
    there = [one for one in known if one in node.addresses]
    return next(iter([*there, *near_addresses(node, others)]), node.address)


def own_entry(node: NodeFacts) -> Member | None:
    """The node as its own list has it, or None."""
    return node.local_conf.member(node.name) if node.local_conf else None


def has_addresses(node: NodeFacts, member: Member) -> bool:
    """Whether the node is where ``member`` says; where that is a name its own list has to say the same."""
    own = own_entry(node)
    if own is not None and own.addresses == member.addresses and not any(is_address(one) for one in own.addresses):
        return True
    return bool(member.addresses) and all(one in node.addresses for one in member.addresses)


def _own_addresses(node: NodeFacts, own: Member | None, conf: CorosyncConf) -> tuple[str, ...]:
    """An address for each link: by its own list where it has those, else one in the network where others have theirs.

    Fewer where it has none: nobody can say which would do.
    """
    if own is not None and has_addresses(node, own):
        return own.addresses
    others = [one.addresses for one in conf.members if one.name != node.name]
    found = []
    for number in range(len(others[0]) if others else 0):
        near = near_addresses(node, [addresses[number] for addresses in others if len(addresses) > number])
        found += [node.address if node.address in near else near[0]] if near else []
    if found and len(found) == len(others[0]):
        return tuple(found)
    return (node.address,) if node.address in node.addresses else ()


def _restart(node: NodeFacts, lead: NodeFacts, conf: CorosyncConf) -> Restart:
    """What has to be restarted: where corosync is well, a restart of it would only cost the others a vote."""
    return "pve-cluster" if _can_vote(node, lead, conf) else "corosync"


def _unattached(node: NodeFacts) -> tuple[str, ...]:
    return (
        f"corosync on it is joined and quorate, with version {node.running_version}, but /etc/pve cannot be written.",
        "So pmxcfs on it is restarted, and corosync is left alone.",
    )


def _only_listed(node: NodeFacts) -> tuple[str, ...]:
    here = node.local_conf.version if node.local_conf else 0
    joined = f"It is a member like the others, with version {node.running_version}"
    return (
        f"{joined}; only its /etc/corosync/corosync.conf is version {here}, which would count at its next start.",
        "So the list is written, and nothing is restarted.",
    )


def _behind(node: NodeFacts, conf: CorosyncConf) -> tuple[str, ...]:
    here = node.local_conf.version if node.local_conf else 0
    same = "Key, id and addresses are the cluster's."
    own = {one.name for one in node.local_conf.members} if node.local_conf else set()
    added = [one.name for one in conf.members if own and one.name not in own]
    if added:
        names = f"{', '.join(added)} {'is' if len(added) == 1 else 'are'} not in it"
        disturbs = f"While its corosync runs with that list it disturbs the cluster: it cannot hear {', '.join(added)}."
        return (f"Its list is version {here}, the cluster's {conf.version}; {names}.", same, disturbs)
    if node.local_conf and node.local_conf.digest == conf.digest:
        return (f"Its list is current (version {here}), but its corosync does not take part.", same)
    return (f"Its list is version {here}, the cluster's {conf.version}.", same)


def _overwriting(node: NodeFacts, lead: NodeFacts) -> tuple[str, ...]:
    words = pve_age_words(node, lead)
    return (
        f"Its /etc/pve saw more writes than the cluster's, and would replace it on all nodes ({words}).",
        "So it has to join without its own, which is saved before.",
    )
