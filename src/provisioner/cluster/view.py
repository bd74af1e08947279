"""The cluster as the node sees it whose word counts, and in what another node and its list differ from it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_interface

from provisioner.cluster.facts import (
    ClusterFacts,
    Condition,
    CorosyncConf,
    Diagnosis,
    Member,
    NodeFacts,
    Quorum,
    is_address,
    named,
    plain_name,
)
from provisioner.cluster.votes import has_device, is_two_node

DEAD = ("inactive", "failed", "not-found", "deactivating")


def is_running(node: NodeFacts) -> bool:
    """Return whether its corosync runs and answers."""
    return node.units.get("corosync", "") not in DEAD and node.quorum is not None


def is_clustered(node: NodeFacts) -> bool:
    """Return whether it is or was in a cluster: it has a list, in any of the three places, or pmxcfs knows others."""
    return bool(node.running or node.files or node.peers)


def members_of(node: NodeFacts) -> tuple[Member, ...]:
    """The nodelist that it goes by: that of its running corosync, else the file from which that would start."""
    if node.running:
        return node.running
    conf = node.starting_conf
    return conf.members if conf else ()


def version_of(node: NodeFacts) -> int | None:
    """The version of that list."""
    if node.running_version is not None:
        return node.running_version
    conf = node.starting_conf
    return conf.version if conf else None


def has_list(node: NodeFacts) -> bool:
    """Return whether that list is known with its version."""
    return bool(members_of(node)) and version_of(node) is not None


def versions_text(node: NodeFacts) -> str:
    """The three copies of the version in a line."""
    local = _version_word(node.local_version)
    pve = _version_word(node.pve_version)
    running = _version_word(node.running_version)
    return f"config_version: {running} running, {local} /etc/corosync, {pve} /etc/pve"


def _version_word(version: int | None) -> str:
    return "none" if version is None else str(version)


@dataclass(frozen=True)
class View:
    """``reference``: the lead, else (``has_quorum`` is False) the node with the newest list; None: nobody has a list.

    ``last_versions``: what the user says of nodes that are off, by name ("" for any).
    """

    facts: ClusterFacts
    last_versions: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def reference(self) -> NodeFacts | None:
        """The node whose list the others are compared with."""

        def rank(node: NodeFacts) -> tuple[int, bool]:
            return version_of(node) or 0, node.name == self.facts.asked

        if self.facts.lead is not None:
            return self.facts.lead
        return max(filter(has_list, self.facts.nodes), key=rank, default=None)

    @property
    def has_quorum(self) -> bool:
        """True when the reference's word counts."""
        return self.facts.lead is not None

    @property
    def quorum(self) -> Quorum | None:
        """The reference's partition."""
        return self.reference.quorum if self.reference else None

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """The reference's list."""
        return members_of(self.reference) if self.reference else ()

    @cached_property
    def present_members(self) -> tuple[Member, ...]:
        """Those of them that the reference's partition has."""
        return tuple(member for member in self.members if self.is_present(member.nodeid))

    @property
    def version(self) -> int:
        """Its version; 0 where there is no list."""
        if self.reference is None:
            return 0
        return version_of(self.reference) or 0

    @cached_property
    def clustered(self) -> tuple[NodeFacts, ...]:
        """The nodes that answered and are or were in a cluster."""
        proxmox_nodes = [node for node in self.facts.nodes if node.is_proxmox]
        return tuple(filter(is_clustered, proxmox_nodes))

    @cached_property
    def joined_nodes(self) -> tuple[NodeFacts, ...]:
        """Those of them that are in the reference's partition, as they and the reference agree."""
        return tuple(filter(self.is_joined, self.clustered))

    @property
    def is_alone(self) -> bool:
        """True when there is nobody to compare the reference with."""
        return len(self.clustered) < 2  # noqa: PLR2004 - one and another

    @property
    def conf(self) -> CorosyncConf | None:
        """The reference's list with which it runs, or would start."""
        return self.reference.current_conf if self.reference else None

    @property
    def cluster(self) -> str:
        """The cluster's name; that of the asked node where it is in none."""
        files = self.reference.files if self.reference else ()
        for conf in reversed(files):  # corosync's own counts first
            if conf.cluster:
                return conf.cluster
        return self.facts.asked

    @property
    def reference_name(self) -> str:
        """Its name; empty where there is none."""
        return self.reference.name if self.reference else ""

    @property
    def list_text(self) -> str:
        """The list in a line, as evidence."""
        members = list[str]()
        for member in self.members:
            addresses = " ".join(member.addresses)
            members.append(f"{member.name} (id {member.nodeid}, {addresses})")
        return f"{self.reference_name}: config_version {self.version}: {', '.join(members)}"

    def member(self, name: str) -> Member | None:
        """The member of that name in the reference's list."""
        return named(self.members, name)

    def is_answering(self, member: Member) -> bool:
        """Return whether the member answered, be it under another name with its id and addresses."""
        for node in self.facts.nodes:
            own = named(members_of(node), node.name)
            if named_otherwise(node, own, (member,)) is not None:
                return True
        return self.facts.node(member.name) is not None

    def is_present(self, nodeid: int) -> bool:
        """Return whether the reference's partition has that node."""
        return self.reference is not None and nodeid in self.reference.present

    def is_joined(self, node: NodeFacts) -> bool:
        """Return whether ``node`` itself and the reference agree that it is in the partition."""
        member = self.member(node.name)
        if member is None or not is_running(node):
            return False
        return self.is_present(member.nodeid)


def named_otherwise(node: NodeFacts, own: Member | None, members: Iterable[Member]) -> Member | None:
    """Return the member with the id and the addresses of ``own``, and another name; None without one.

    ``own``: the node's entry in its own list. A node that has these addresses no more was replaced by that member.
    """
    if own is None or lost_addresses(node, own):
        return None
    for member in members:
        is_same = member.place == own.place
        if is_same and member.name != own.name:
            return member
    return None


def lost_addresses(node: NodeFacts, member: Member) -> tuple[str, ...]:
    """The addresses by which ``member`` is known and that the node does not have; none where its own are not known."""
    if not node.addresses:
        return ()
    absent = [address for address in member.addresses if address not in node.addresses]
    return tuple(filter(is_address, absent))


def usable_addresses(node: NodeFacts) -> tuple[str, ...]:
    """The node's addresses, without those that lead nobody to it."""
    return tuple(str(interface.ip) for interface in _interfaces(node))


def near_addresses(node: NodeFacts, others: Iterable[str]) -> tuple[str, ...]:
    """The node's addresses in a network in which one of ``others`` is."""
    targets = [ip_address(other) for other in filter(is_address, others)]
    near = list[str]()
    for interface in _interfaces(node):
        is_near = any(target in interface.network for target in targets)
        if is_near:
            near.append(str(interface.ip))
    return tuple(near)


def _interfaces(node: NodeFacts) -> list[IPv4Interface | IPv6Interface]:
    """The node's interfaces by which others may reach it."""
    interfaces = list[IPv4Interface | IPv6Interface]()
    for text in node.networks:
        try:
            interface = ip_interface(text)
        except ValueError:
            continue  # it is none
        if not interface.ip.is_loopback and not interface.ip.is_link_local:
            interfaces.append(interface)
    return interfaces


def has_newer_pve(node: NodeFacts, lead: NodeFacts) -> bool:
    """Return whether the node's ``/etc/pve`` is known to win over the cluster's when it joins.

    Not the newest ``corosync.conf`` decides, but the version of the tree in ``config.db``, which every write raises;
    among equals the later one. A node that wrote alone for long (``pvecm expected 1``, ``pmxcfs -l``) overwrites the
    cluster's.
    """
    if node.database is None or lead.database is None:
        return False
    return node.database > lead.database


def pve_age_words(node: NodeFacts, lead: NodeFacts) -> str:
    """Return how many writes each copy saw, in a line; the times of the last ones decide among equals."""
    if node.database is None or lead.database is None:
        return _unread_words(node, lead)
    own_writes, own_time = node.database
    writes, time = lead.database
    words = f"writes to it: {own_writes} on {node.name}, {writes} on {lead.name}"
    if own_writes == writes and own_time != time:
        words += f", last written {own_time - time:+d} s apart"
    return words


def _unread_words(*nodes: NodeFacts) -> str:
    """Return why the databases that could not be read are not known."""
    words = list[str]()
    for node in nodes:
        if node.database is None:
            why = node.unread.get("database", "not known")
            words.append(f"{node.name}: {why}")
    return "; ".join(words)


# In what one ``corosync.conf`` differs from another of its version, and what no corosync starts with.

NOT_SET = "not set"
_GIVEN_ONCE: Mapping[str, Callable[[Member], tuple[str, ...]]] = {
    "id": lambda member: (str(member.nodeid),),
    "name": lambda member: () if is_address(member.name) else (plain_name(member.name),),
    "address": lambda member: member.addresses,
}
"""Values that no two members may share; names are compared as host names are, where they are no addresses."""


def setting_differences(own: CorosyncConf | None, cluster: CorosyncConf | None) -> tuple[str, ...]:
    """Return which settings of ``totem`` and ``quorum`` differ in two lists of one version, which has to mean one list.

    A cipher, a hash or a transport that differs has the others drop the node's packets ("Incorrect packet size").
    """
    if own is None or cluster is None or own.version != cluster.version:
        return ()
    words = list[str]()
    for key in sorted({*own.settings, *cluster.settings}):
        here, there = own.settings.get(key, NOT_SET), cluster.settings.get(key, NOT_SET)
        if here != there:
            words.append(f"{key}: {here}, the cluster's {there}")
    return tuple(words)


def invalid_lists(view: View) -> Iterator[Diagnosis]:
    """The faults of the nodes' lists with which corosync does not start, or does not what was meant."""
    names_by_fault = dict[str, list[str]]()
    for node in view.clustered:
        if view.member(node.name) is None:
            continue  # its list is its own matter, which is told of it
        conf = node.starting_conf
        for fault in list_faults(conf) if conf else ():
            names_by_fault.setdefault(fault, []).append(node.name)
    for fault, names in names_by_fault.items():
        yield Diagnosis(
            Condition.INVALID_LIST,
            "",
            f"corosync does not start with this list: {fault}",
            (f"corosync.conf of {', '.join(names)}", view.list_text),
            advice="Correct it in /etc/pve/corosync.conf on a node with quorum, with a higher config_version; without "
            "quorum in /etc/corosync/corosync.conf on every node. Restart corosync on no node before.",
        )


def list_faults(conf: CorosyncConf) -> Iterator[str]:
    """Yield what is given twice, links of which the members do not agree, and settings that exclude each other."""
    for what, values_of in _GIVEN_ONCE.items():
        names_by_value = dict[str, list[str]]()
        for member in conf.members:
            for value in values_of(member):
                names_by_value.setdefault(value, []).append(member.name)
        for value, names in names_by_value.items():
            if len(names) > 1:
                yield f"{what} {value} is given to {' and '.join(names)}"
    yield from _link_faults(conf)
    if has_device(conf) and is_two_node(conf):
        yield "two_node: 1 and a QDevice exclude each other"


def _link_faults(conf: CorosyncConf) -> Iterator[str]:
    """Yield links of which some members have no address, or addresses of two families.

    Two links may have a family each; names in the place of addresses say nothing of theirs.
    """
    counts = {len(member.addresses) for member in conf.members}
    if len(counts) > 1:
        words = ", ".join(f"{member.name} {len(member.addresses)}" for member in conf.members)
        yield f"the members have links of different number: {words}"
    for number in range(min(counts, default=0)):
        addresses = [member.addresses[number] for member in conf.members]
        families = {ip_address(address).version for address in filter(is_address, addresses)}
        if len(families) > 1:
            yield f"link {number} has addresses of IPv4 and of IPv6: {', '.join(addresses)}"
