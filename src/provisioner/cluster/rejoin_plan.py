"""The repair that brings a stale node back: the light one, which loses nothing, or the forced rejoin. Pure.

The light one (its list replaced, corosync restarted) suffices where the node is still in the cluster's list as it is:
by name, id and addresses, with the same key. Whether others have moved does not matter: the new list says where to. But
a node whose ``/etc/pve`` saw more writes than the cluster's would replace it for all: that one has to come without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from provisioner.cluster.facts import CorosyncConf, Member, NodeFacts, is_address
from provisioner.cluster.record import Record
from provisioner.cluster.view import has_newer_pve, near_addresses, pve_age_words, setting_differences

Restart = Literal["", "corosync", "pve-cluster"]


class Kind(StrEnum):
    """The kinds of repair; the value is the runbook's id."""

    NOTHING = "nothing"
    LIGHT = "stale-corosync-behind"
    FORCED = "stale-corosync-rejoin"


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
    """The repair of ``node``, and why it is that one: ``reasons`` are sentences.

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
    kind, reasons = _kind_and_reasons(node, lead, conf, left)
    is_joined = kind is not Kind.NOTHING and _is_in(node, lead, conf)
    entry = entry_of(node, conf, left) if kind is Kind.FORCED else None
    restarts: Restart = ""
    if kind is Kind.LIGHT and not is_joined:
        # where corosync is well, a restart of it would only cost the others a vote
        restarts = "pve-cluster" if _can_vote(node, lead, conf) else "corosync"
    return RejoinPlan(
        kind=kind,
        node=node.name,
        lead=lead.name,
        cluster=conf.cluster,
        version=conf.version,
        digest=conf.digest,
        reasons=reasons,
        entry=entry,
        resumes=left is not None and left.runbook == kind,
        is_joined=is_joined,
        restarts=restarts,
    )


def _kind_and_reasons(
    node: NodeFacts, lead: NodeFacts, conf: CorosyncConf, left: Record | None
) -> tuple[Kind, tuple[str, ...]]:
    """Choose the repair, and say why: the light one where the node is as the cluster knows it and that is safe.

    An unfinished run of a rejoin decides which repair goes on where it may have brought the node in already.
    """
    is_joined = _is_in(node, lead, conf)
    differing = differences(node, lead, conf)
    if left is not None and left.runbook in (Kind.LIGHT, Kind.FORCED) and (is_joined or left.has_begun("join")):
        kind = Kind(left.runbook)
        reasons = (f"The repair of {left.began} did not come to its end.", *differing)
    elif is_joined and not differing and _has_old_list(node, conf):
        kind, reasons = Kind.LIGHT, _only_listed(node, setting_differences(node.local_conf, conf))
    elif is_joined:
        kind = Kind.NOTHING
        reasons = (f"It is a member like the others, with version {node.running_version}.",)
    elif differing:
        kind, reasons = Kind.FORCED, differing
    elif has_newer_pve(node, lead):
        kind, reasons = Kind.FORCED, _overwriting(node, lead)
    elif _can_vote(node, lead, conf):
        kind, reasons = Kind.LIGHT, _unattached(node)
    else:
        kind, reasons = Kind.LIGHT, _behind(node, conf)
    return kind, reasons


def is_healthy(node: NodeFacts, lead: NodeFacts, conf: CorosyncConf) -> bool:
    """Return whether the node is joined, quorate, up to date and can write: what a repair has to bring about.

    Its file counts, too: with an old one corosync would end itself at its next start.
    """
    return _is_in(node, lead, conf) and not _has_old_list(node, conf)


def _is_in(node: NodeFacts, lead: NodeFacts, conf: CorosyncConf) -> bool:
    return _can_vote(node, lead, conf) and node.is_writable


def _has_old_list(node: NodeFacts, conf: CorosyncConf) -> bool:
    version = node.local_version
    has_other_settings = bool(setting_differences(node.local_conf, conf))
    return has_other_settings or (version is not None and version < conf.version)


def _can_vote(node: NodeFacts, lead: NodeFacts, conf: CorosyncConf) -> bool:
    """Return whether its corosync needs no repair: it is joined and quorate, and runs with the current list."""
    member = conf.member(node.name)
    if member is None or member.nodeid not in lead.joined:
        return False
    return node.is_quorate and node.running_version == lead.running_version == conf.version


def differences(node: NodeFacts, lead: NodeFacts, conf: CorosyncConf) -> tuple[str, ...]:
    """Say in what the node is another one than the cluster knows, so that the light repair would not do."""
    found = list[str]()
    own = node.local_conf
    if own is None or own.member(node.name) is None:
        found.append("It has no list with itself in it (/etc/corosync/corosync.conf).")
    elif own.cluster != conf.cluster:
        found.append(f"Its list is that of another cluster, {own.cluster}.")
    if not node.key_digest or node.key_digest != lead.key_digest:
        found.append("Its key is not the cluster's (/etc/corosync/authkey).")
    member = conf.member(node.name)
    if member is None:
        found += _absences(node, conf)
    else:
        found += _entry_differences(node, member, conf)
    return tuple(found)


def _absences(node: NodeFacts, conf: CorosyncConf) -> Iterator[str]:
    """That the cluster's list lacks the node, and which member has its id now."""
    yield "The cluster's list does not have it any more."
    own = own_entry(node)
    if own is None:
        return
    for member in conf.members:
        if member.nodeid == own.nodeid:
            yield f"Its id {own.nodeid} belongs to {member.name} now."
            return


def _entry_differences(node: NodeFacts, member: Member, conf: CorosyncConf) -> Iterator[str]:
    """Yield in what the node is not as the cluster's list has it."""
    own = own_entry(node)
    if own is not None and own.nodeid != member.nodeid:
        yield f"Its id is {own.nodeid}, in the cluster's list {member.nodeid}."
    if not has_addresses(node, member):
        there = ", ".join(member.addresses)
        here = ", ".join(_own_addresses(node, own, conf)) or "none of its networks"
        yield f"The cluster's list has it at {there}, and it is at {here}."


def entry_of(node: NodeFacts, conf: CorosyncConf, left: Record | None = None) -> Entry:
    """The node's place in the list: its votes and its id are kept, unless another node has that id now."""
    own = own_entry(node)
    member = conf.member(node.name)
    if member is not None and has_addresses(node, member):
        return Entry(member.nodeid, member.votes, member.addresses)
    addresses = _own_addresses(node, own, conf)
    if member is not None:
        return Entry(member.nodeid, member.votes, addresses, replaces=True)
    nodeid, votes = _id_and_votes(own, left)
    taken_ids = {other.nodeid for other in conf.members}
    if nodeid in taken_ids:
        nodeid = None
    return Entry(nodeid, votes, addresses)


def _id_and_votes(own: Member | None, left: Record | None) -> tuple[int | None, int]:
    """The id and votes of a node that the cluster's list lacks: by the unfinished run, else by its own list."""
    nodeid = own.nodeid if own else None
    votes = own.votes if own else 1
    if left is None:
        return nodeid, votes
    return left.plan.get("nodeid") or nodeid, left.plan.get("votes", votes)


def lead_address(lead: NodeFacts, conf: CorosyncConf) -> str:
    """Return where the others reach the lead: by pmxcfs, else at its first link; we may reach it by another way."""
    for address in _known_addresses(lead.name, lead, conf):
        if address:
            return address
    return lead.address


def node_address(node: NodeFacts, lead: NodeFacts, conf: CorosyncConf) -> str:
    """Return where the lead reaches the node: by pmxcfs or the list, unless the node is there no more."""
    for address in _known_addresses(node.name, lead, conf):
        if address in node.addresses:
            return address
    addresses_of_others = list[str]()
    for other in conf.others(node.name):
        addresses_of_others += other.addresses
    near = near_addresses(node, addresses_of_others)
    return near[0] if near else node.address


def _known_addresses(name: str, lead: NodeFacts, conf: CorosyncConf) -> Iterator[str]:
    """The addresses that the lead's pmxcfs and the list have for a node."""
    for peer in lead.peers:
        if peer.name == name:
            yield peer.address
    member = conf.member(name)
    if member is not None:
        yield from member.addresses


def own_entry(node: NodeFacts) -> Member | None:
    """The node as its own list has it, or None."""
    return node.local_conf.member(node.name) if node.local_conf else None


def has_addresses(node: NodeFacts, member: Member) -> bool:
    """Return whether the node is where ``member`` says; where that is a name its own list has to say the same."""
    is_by_name = not any(is_address(address) for address in member.addresses)
    if is_by_name:
        own = own_entry(node)
        return own is not None and own.addresses == member.addresses
    return set(member.addresses).issubset(node.addresses)


def _own_addresses(node: NodeFacts, own: Member | None, conf: CorosyncConf) -> tuple[str, ...]:
    """An address for each link: by its own list where it has those, else one in the network where others have theirs.

    Fewer where it has none: nobody can say which would do.
    """
    if own is not None and has_addresses(node, own):
        return own.addresses
    others = [member.addresses for member in conf.others(node.name)]
    on_links = _near_on_links(node, others)
    if on_links:
        return on_links
    if node.address in node.addresses:
        return (node.address,)
    return ()


def _near_on_links(node: NodeFacts, others: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """An address of the node for each link of the others; none unless it has one for all of them."""
    links = len(others[0]) if others else 0
    found = list[str]()
    for number in range(links):
        near = near_addresses(node, [addresses[number] for addresses in others if len(addresses) > number])
        found += [node.address] if node.address in near else near[:1]  # the one at which it was reached comes first
    return tuple(found) if len(found) == links else ()


def _unattached(node: NodeFacts) -> tuple[str, ...]:
    """Return why only pmxcfs is restarted: corosync on the node has nothing to be repaired."""
    return (
        f"corosync on it is joined and quorate, with version {node.running_version}, but /etc/pve cannot be written.",
        "So pmxcfs on it is restarted, and corosync is left alone.",
    )


def _only_listed(node: NodeFacts, differing: Sequence[str]) -> tuple[str, ...]:
    """Return why only the list is written: the node is joined, and its file is old."""
    joined = f"It is a member like the others, with version {node.running_version}"
    listed = (
        f"only its /etc/corosync/corosync.conf is version {node.local_version}, which would count at its next start"
    )
    if differing:
        listed = f"only its /etc/corosync/corosync.conf differs: {'; '.join(differing)}"
    return f"{joined}; {listed}.", "So the list is written, and nothing is restarted."


def _behind(node: NodeFacts, conf: CorosyncConf) -> tuple[str, ...]:
    """Return in what its list is behind, and whether it disturbs the cluster with it."""
    here = node.local_version or 0
    versions = f"Its list is version {here}, the cluster's {conf.version}"
    same = "Key, id and addresses are the cluster's."
    own = node.local_conf
    added = [member.name for member in conf.members if own is not None and own.member(member.name) is None]
    if added:
        names = ", ".join(added)
        are = "is" if len(added) == 1 else "are"
        disturbs = f"While its corosync runs with that list it disturbs the cluster: it cannot hear {names}."
        return f"{versions}; {names} {are} not in it.", same, disturbs
    differing = setting_differences(own, conf)
    if differing:
        return f"{versions}, and these settings differ: {'; '.join(differing)}.", same
    if own is not None and own.digest == conf.digest:
        return f"Its list is current (version {here}), but its corosync does not take part.", same
    return f"{versions}.", same


def _overwriting(node: NodeFacts, lead: NodeFacts) -> tuple[str, ...]:
    """Return why the light repair would do harm: pmxcfs takes the copy of /etc/pve that saw the most writes."""
    words = pve_age_words(node, lead)
    return (
        f"Its /etc/pve saw more writes than the cluster's, and would replace it on all nodes ({words}).",
        "So it has to join without its own, which is saved before.",
    )
