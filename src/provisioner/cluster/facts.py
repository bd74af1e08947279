"""A cluster as values: one ``NodeFacts`` for each node that answered, who did not, and what is wrong (``Diagnosis``).

Three copies of the member list can differ on one node: pmxcfs's (``/etc/pve``), corosync's own (``/etc/corosync``), and
the one that corosync runs with. All are kept, so that a diagnosis can name the one that is behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from typing import Literal, TypeVar

Named = TypeVar("Named", "Member", "NodeFacts", "Silent")


def named(items: Iterable[Named], name: str) -> Named | None:
    """The one of that name, or None."""
    for item in items:
        if item.name == name:
            return item
    return None


def is_address(text: str) -> bool:
    """Return whether it is an address, and no name."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def plain_name(name: str) -> str:
    """The name as a host name is compared: without its domain, in lower case."""
    return name.partition(".")[0].lower()


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of a ``nodelist``; ``addresses`` by link number, link 0 first."""

    name: str
    nodeid: int
    votes: int
    addresses: tuple[str, ...]

    @property
    def place(self) -> tuple[int, tuple[str, ...]]:
        """By what corosync tells it from others: its id, and its address on each link."""
        return self.nodeid, self.addresses


@dataclass(frozen=True, slots=True)
class CorosyncConf:
    """The content of a ``corosync.conf``; ``digest`` is the sha256 of its bytes.

    ``settings``: those of its sections ``totem`` and ``quorum`` by their paths (``quorum.two_node``,
    ``totem.interface[0].mcastport``), without version and name of the cluster.
    """

    cluster: str
    version: int
    members: tuple[Member, ...]
    digest: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    def member(self, name: str) -> Member | None:
        """The member of that name, or None."""
        return named(self.members, name)

    def others(self, name: str) -> tuple[Member, ...]:
        """The members of all other names."""
        return tuple(member for member in self.members if member.name != name)


@dataclass(frozen=True, slots=True)
class Device:
    """A QDevice as a node sees it: the ``votes`` that it gives now, ``most`` that it may give, and its flags.

    ``state``: A or NA (it is alive or not), V or NV (it votes or not), MW or NMW (master wins).
    """

    votes: int
    most: int
    state: str = ""


@dataclass(frozen=True, slots=True)
class Quorum:
    """``corosync-quorumtool``'s words: ``present`` are the node ids of the partition, with their votes.

    ``total``: their votes and those of the ``device``, which is None where none is registered. ``flags``: ``2Node``,
    ``WaitForAll`` and the like.
    """

    is_quorate: bool
    expected: int
    total: int
    needed: int
    present: Mapping[int, int]
    flags: tuple[str, ...] = ()
    device: Device | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """One knet link from the node to another (``corosync-cfgtool``)."""

    nodeid: int
    number: int
    is_connected: bool


@dataclass(frozen=True, slots=True)
class Peer:
    """A node as ``/etc/pve/.members`` has it; ``is_online`` is to be believed on a quorate node only."""

    name: str
    nodeid: int
    address: str
    is_online: bool


@dataclass(frozen=True, slots=True)
class Pmxcfs:
    """``/etc/pve/.members``: without ``peers`` the node is not clustered (or its pmxcfs does not know yet)."""

    nodename: str
    is_quorate: bool = False
    cluster: str = ""
    peers: tuple[Peer, ...] = ()


@dataclass(frozen=True, slots=True)
class Guest:
    """A guest by its configuration; ``volumes`` are its disks as ``storage:volume``, ``digest`` that of the file."""

    vmid: int
    node: str
    kind: Literal["lxc", "qemu"]
    name: str = ""
    volumes: tuple[str, ...] = ()
    digest: str = ""

    @property
    def title(self) -> str:
        """Its VMID, and its name where it has one."""
        return f"{self.vmid} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class Signatures:
    """The words of corosync's log of this boot, since corosync last started, that nothing later contradicts.

    ``rejected`` and ``undecryptable``: packets by the sender's address ("Packet rejected", "Unable to decrypt");
    ``ages``: seconds since the last of them, where the log has times. ``outdated``: (version received, own version)
    where it ended because it was behind. ``unreachable``: node ids without active links. ``reformed``: how often the
    membership was formed anew lately without anybody joining or leaving. ``newcomers``: the id of a node that left →
    ids that corosync first spoke of since. ``unchanged_since``: ids of those that left and since when none joined.
    ``lines``: the last line of each kind, as evidence.
    """

    rejected: Mapping[str, int] = field(default_factory=dict)
    undecryptable: Mapping[str, int] = field(default_factory=dict)
    outdated: tuple[int, int] | None = None
    unreachable: frozenset[int] = frozenset()
    lines: tuple[str, ...] = ()
    ages: Mapping[str, float] = field(default_factory=dict)
    reformed: int = 0
    newcomers: Mapping[int, frozenset[int]] = field(default_factory=dict)
    unchanged_since: frozenset[int] = frozenset()

    @property
    def turned_away(self) -> tuple[str, ...]:
        """The senders of packets that were rejected or could not be decrypted, each once."""
        return tuple(dict.fromkeys((*self.rejected, *self.undecryptable)))


@dataclass(frozen=True, slots=True)
class HaState:
    """``ha-manager status``: ``is_idle`` unless a service is being started, moved or fenced; ``services`` by node.

    ``failed``: services in state ``error``, which HA leaves so until a person has dealt with them.
    """

    is_idle: bool = True
    services: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def advice(self) -> str:
        """The way to an idle HA: an error does not end by waiting."""
        if self.failed:
            return (
                f"HA has given up on {', '.join(self.failed)}, and does not end that by itself. Look why, then: "
                f"ha-manager set {self.failed[0]} --state disabled"
            )
        return "Wait until HA has nothing to start, move or fence: ha-manager status"


@dataclass(frozen=True, slots=True)
class GuestReference:
    """One section of a file in ``/etc/pve`` that names guests; ``entries`` as they stand there: ``ct:101``, ``101``."""

    file: str
    kind: str
    name: str
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Storage:
    """One storage of ``storage.cfg``; ``nodes``: where it is, empty for everywhere."""

    name: str
    kind: str
    is_shared: bool
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node that answered; what it could not tell is None or empty.

    ``name``: that of the member which it is by id and address; ``hostname``: what the machine calls itself, empty where
    that is the same. ``nodeid``: its own id, by its running corosync.
    ``address``: where it was reached. ``networks``: its addresses with the length of their prefix.
    ``clock_offset_s``: its clock minus ours. ``units``: systemd's word (``active``,
    ``inactive``, ``failed``, ``not-found``) for ``corosync`` and ``pve-cluster``. ``joined``: the members that corosync
    itself says are joined, by node id, with their ``config_version``; ``departed`` likewise, those that left.
    ``running``: the nodelist that corosync runs with. ``heard``: the addresses of ``joined`` and ``departed``.
    ``database``: the version and mtime of the tree in pmxcfs's ``config.db``, also while it does not run.
    ``guests``: of every folder in ``/etc/pve/nodes``, also empty ones. ``vmlist``: VMID → node. ``keys`` and
    ``known_hosts``: nodes and addresses whose keys and host keys ``/etc/pve/priv`` has. ``references``: node → what in
    HA, replication and storages names it; ``guest_references``: what names guests by number. ``is_writable``: whether
    ``/etc/pve`` is. ``has_copied_keys``: whether a repair's copy of root's keys is in ``authorized_keys2``.
    ``device_state``: how its daemon for a QDevice is connected. ``unread``: what could not be read, with the reason; a
    diagnosis says "unknown" where it would need it.
    """

    name: str
    address: str
    version: str = ""
    is_proxmox: bool = True
    addresses: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    clock_offset_s: float = 0.0
    units: Mapping[str, str] = field(default_factory=dict)
    pve_conf: CorosyncConf | None = None
    local_conf: CorosyncConf | None = None
    running_version: int | None = None
    key_digest: str = ""
    quorum: Quorum | None = None
    joined: Mapping[int, int] = field(default_factory=dict)
    departed: Mapping[int, int] = field(default_factory=dict)
    running: tuple[Member, ...] = ()
    heard: Mapping[int, str] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    pmxcfs: Pmxcfs | None = None
    database: tuple[int, int] | None = None
    guests: Mapping[str, tuple[Guest, ...]] = field(default_factory=dict)
    vmlist: Mapping[int, str] = field(default_factory=dict)
    storages: tuple[Storage, ...] = ()
    ha: HaState | None = None
    signatures: Signatures = Signatures()
    keys: tuple[str, ...] = ()
    known_hosts: tuple[str, ...] = ()
    references: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    guest_references: tuple[GuestReference, ...] = ()
    is_writable: bool = False
    has_copied_keys: bool = False
    unread: Mapping[str, str] = field(default_factory=dict)
    hostname: str = ""
    nodeid: int | None = None
    device_state: str = ""

    @property
    def is_quorate(self) -> bool:
        """True when its corosync answers and has quorum."""
        return self.quorum is not None and self.quorum.is_quorate

    @property
    def present(self) -> Mapping[int, int]:
        """The votes of the nodes in its partition, by their ids; none where its corosync does not answer."""
        return self.quorum.present if self.quorum else {}

    @property
    def partition(self) -> frozenset[int]:
        """The ids of the nodes that its corosync is joined with, itself included."""
        return frozenset({*self.joined, *self.present})

    @property
    def peers(self) -> tuple[Peer, ...]:
        """The nodes that pmxcfs knows, itself included; none where it was not read or knows none."""
        return self.pmxcfs.peers if self.pmxcfs else ()

    @property
    def all_addresses(self) -> tuple[str, ...]:
        """The address at which it was reached, then those of its interfaces."""
        return (self.address, *self.addresses)

    @property
    def files(self) -> tuple[CorosyncConf, ...]:
        """The lists in its files that could be read: pmxcfs's, then corosync's own."""
        return tuple(conf for conf in (self.pve_conf, self.local_conf) if conf is not None)

    @property
    def starting_conf(self) -> CorosyncConf | None:
        """The list with which its corosync would start: corosync's own, else pmxcfs's.

        Without quorum pmxcfs's may not be readable.
        """
        return self.local_conf or self.pve_conf

    @property
    def current_conf(self) -> CorosyncConf | None:
        """The list in its files with the version that its corosync runs with, else that with which it would start."""
        for conf in self.files:
            if conf.version == self.running_version:
                return conf
        return self.starting_conf

    @property
    def pve_version(self) -> int | None:
        """The version of pmxcfs's list; None where it was not read."""
        return self.pve_conf.version if self.pve_conf else None

    @property
    def local_version(self) -> int | None:
        """The version of corosync's own list on disk; None where it was not read."""
        return self.local_conf.version if self.local_conf else None

    @property
    def listed(self) -> tuple[Member, ...]:
        """The members of all its lists: corosync's running one, then those in its files; most are there repeatedly."""
        members = list(self.running)
        for conf in self.files:
            members += conf.members
        return tuple(members)


@dataclass(frozen=True, slots=True)
class Silent:
    """A node that is known by name and did not answer: where it was tried, and what came back.

    ``key_advice``: ssh answered with another host key than the one that is known; how the keys are compared.
    """

    name: str
    address: str
    why: str
    key_advice: str = ""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """All that was seen, from ``asked`` (the host that the user named) on."""

    asked: str
    nodes: tuple[NodeFacts, ...]
    silent: tuple[Silent, ...] = ()

    def node(self, name: str) -> NodeFacts | None:
        """Return what the node of that name said, or None."""
        return named(self.nodes, name)

    def silence(self, name: str) -> Silent | None:
        """The node of that name where it did not answer, or None."""
        return named(self.silent, name)

    @property
    def lead(self) -> NodeFacts | None:
        """The node whose word counts: a quorate one with the newest list, the asked one among equals; None without."""

        def rank(node: NodeFacts) -> tuple[int, bool]:
            return node.running_version or 0, node.name == self.asked

        quorate = [node for node in self.nodes if node.is_quorate]
        return max(quorate, key=rank, default=None)


@dataclass(frozen=True, slots=True)
class Sign:
    """One try to hear from a node: ``is_alive`` also when what came back was a refusal."""

    address: str
    how: Literal["ping", "ssh"]
    is_alive: bool
    said: str = ""

    def words(self, name: str) -> str:
        """Return what answered, as an objection against taking the node of that name for off; without a full stop."""
        return f"Something answers at {self.address}, an address of {name} ({self.how}: {self.said})"


class Condition(StrEnum):
    """One state of a node or of a cluster; the value stands in JSON and in runbooks' ``conditions``."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    """It has quorum, and less can be lost than the list is made for."""
    UNCLUSTERED = "unclustered"
    BEHIND = "behind"
    """Only its list is older: same key, same id, same addresses."""
    DISTURBING = "disturbing"
    """It hears some members and not all, so that the ring never closes and writes to ``/etc/pve`` hang everywhere."""
    KEY_CHANGED = "key-changed"
    PEERS_MOVED = "peers-moved"
    """The cluster's nodes have other addresses than the node's list says: it rejects their packets."""
    NODE_MOVED = "node-moved"
    """The cluster knows the node by another address than it has: they reject its packets."""
    RENAMED = "renamed"
    """Its host name is not the name of the member that it is by its id and address."""
    REMOVED = "removed"
    ID_REUSED = "id-reused"
    CONF_DIFFERS = "conf-differs"
    """Its ``corosync.conf`` has the cluster's version, and other settings."""
    INVALID_LIST = "invalid-list"
    COROSYNC_DEAD = "corosync-dead"
    PARTITION = "partition"
    NO_QUORUM = "no-quorum"
    OFFLINE = "offline"
    """A member that does not answer: maybe off, maybe cut off."""
    OTHER_HOST_KEY = "other-host-key"
    """A member that is not joined, and whose ssh answers with a host key that is not the one which is known."""
    DO_NOT_POWER_ON = "do-not-power-on"
    GHOST = "ghost"
    GHOST_WITH_GUESTS = "ghost-with-guests"
    LEFTOVERS = "leftovers"
    CLOCK_SKEW = "clock-skew"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One condition of ``node`` (its name; empty: of the cluster), in a sentence, with the lines that prove it.

    ``runbook``: the id of the one that would mend it; ``advice``: what to do now.
    """

    condition: Condition
    node: str
    message: str
    evidence: tuple[str, ...] = ()
    runbook: str = ""
    advice: str = ""
