"""``diagnose``: what is wrong with a cluster, each thing with the lines that prove it and what to do; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import median

from provisioner.cluster.facts import (
    ClusterFacts,
    Condition,
    Diagnosis,
    Member,
    NodeFacts,
    Peer,
    Quorum,
    Silent,
    is_address,
)
from provisioner.cluster.node_conditions import is_heard_only, link_lines, node_diagnoses, ring_diagnoses
from provisioner.cluster.read_corosync import RECENT_S, is_about
from provisioner.cluster.redundancy import degraded_diagnoses, why_blocked
from provisioner.cluster.references import named_lines, orphan_diagnoses
from provisioner.cluster.view import View, invalid_lists, is_clustered, is_running, versions_text

CLOCK_SKEW_LIMIT_S = 5.0
"""Between two nodes. corosync needs no clocks; but the lines of two logs can no longer be put in order, a certificate
that a rejoin has just made is not valid yet, and at 300 s Proxmox VE refuses the tickets of the other node.
"""
POWER_ON_CHECK = "power-on-check"
ENDS = "If only the version changed, or members left, its corosync ends itself about 3 s after it has seen the others."
DISTURBS = (
    "If a member was added, or some got other addresses, it does not end itself: it cannot hear those, the ring never "
    "closes, and writes to /etc/pve hang on all nodes until corosync is stopped on it."
)
WILL = (
    ENDS,
    DISTURBS,
    "If the key changed, both sides write 'Unable to decrypt packet'; if all addresses changed, 'Packet rejected'.",
    "If it was removed and added again, it runs alone without quorum: its guests do not start.",
)
FORGET = "provision cluster forget {}"


def diagnose(facts: ClusterFacts, last_versions: Mapping[str, int] | None = None) -> tuple[Diagnosis, ...]:
    """Everything that is wrong: who disturbs all others, then the cluster's conditions; one ``HEALTHY`` if nothing is.

    ``last_versions``: by name ("" for any) the config_version of nodes that are off, as the user read them. What could
    not be learned is ``UNKNOWN``, never healthy.
    """
    view = View(facts, dict(last_versions or {}))
    diagnoses = [*ring_diagnoses(view), *cluster_diagnoses(view), *degraded_diagnoses(view)]
    for node in facts.nodes:
        if is_clustered(node):
            diagnoses += node_diagnoses(node, view)
        else:
            diagnoses.append(_unclustered(node, view))
        if node.has_copied_keys:
            diagnoses.append(_copied_keys(node))
    diagnoses += [*absent_diagnoses(view), *ghost_diagnoses(view)]
    return tuple(diagnoses) or (_nothing_wrong(view),)


def _nothing_wrong(view: View) -> Diagnosis:
    """The one diagnosis where no condition was found: healthy, or nothing is known."""
    if view.quorum is None or not view.has_quorum:
        return Diagnosis(Condition.UNKNOWN, "", "nothing is known of this cluster")
    names = ", ".join(node.name for node in view.facts.nodes)
    what = f"{names}: {votes_text(view.quorum)}, config_version {view.version} everywhere"
    return Diagnosis(Condition.HEALTHY, "", what)


def is_healthy(diagnoses: tuple[Diagnosis, ...]) -> bool:
    """Return whether there is nothing to do."""
    return all(diagnosis.condition is Condition.HEALTHY for diagnosis in diagnoses)


def _copied_keys(node: NodeFacts) -> Diagnosis:
    """A repair copies root's keys while /etc/pve is empty; one that was cut off leaves the copy."""
    what = (
        "a rejoin of it goes on, or was cut off: it has a copy of root's keys, with which one can log in also when "
        "they are taken out of /etc/pve"
    )
    remove = "sed -i '/^# BEGIN of a repair by provision$/,/^# END of a repair by provision$/d'"
    advice = (
        f"If none goes on: provision cluster rejoin {node.name}, on the machine that began it, brings it to its end. "
        f"Or remove the copy, on {node.name} (root@{node.address}): {remove} /root/.ssh/authorized_keys2"
    )
    evidence = ("/root/.ssh/authorized_keys2: BEGIN of a repair by provision",)
    return Diagnosis(Condition.LEFTOVERS, node.name, what, evidence, advice=advice)


def _unclustered(node: NodeFacts, view: View) -> Diagnosis:
    """A node without any list: a member that lost it, or one that is in no cluster."""
    if view.has_quorum and view.member(node.name):
        return Diagnosis(
            Condition.UNCLUSTERED,
            node.name,
            "the cluster has it as a member, and it has no corosync.conf at all: it was installed anew, or cleaned",
            (view.list_text,),
            "stale-corosync-rejoin",
            f"provision cluster rejoin {node.name}",
        )
    evidence = list[str]()
    others = [name for name in node.guests if name != node.name]
    if others:
        names = ", ".join(others)
        evidence.append(f"/etc/pve/nodes has {names}: another node, or an earlier host name of this one")
    return Diagnosis(
        Condition.UNCLUSTERED,
        node.name,
        "it is in no cluster: there is no list of nodes, so that one is missing from it proves nothing",
        tuple(evidence),
        advice="Name a node of the cluster, if there is one.",
    )


def cluster_diagnoses(view: View) -> Iterator[Diagnosis]:
    """The conditions of the cluster."""
    yield from _halves(view)
    yield from invalid_lists(view)
    is_told = any(node.quorum is not None for node in view.clustered)
    if is_told and not view.has_quorum:
        yield _no_quorum(view)
    yield from _skewed(view)
    for node in view.facts.nodes:
        yield from _unknown(node)


def votes_text(quorum: Quorum) -> str:
    """The votes that are there, as they are counted: not nodes."""
    return f"{quorum.total} of {quorum.expected} votes, {quorum.needed} needed"


def _no_quorum(view: View) -> Diagnosis:
    """Nobody has quorum; the votes that each node counts and the silent nodes are the evidence."""
    evidence = list[str]()
    for node in sorted(view.clustered, key=lambda node: node.name):
        if node.quorum is not None:
            evidence.append(f"{node.name}: {votes_text(node.quorum)}")
    for silent in view.facts.silent:
        if silent.name:
            evidence.append(f"{silent.name}: {silent.address}: {silent.why}")
    what = "no node that answered has quorum: /etc/pve cannot be written, guests cannot be started"
    advice = "Bring back the members that are missing. Only if they are proved off: provision runbook show lost-quorum"
    blocked = why_blocked(view)
    if blocked is not None:
        what, advice = f"{what}; {blocked.why}", blocked.advice
    return Diagnosis(Condition.NO_QUORUM, "", what, tuple(evidence), "lost-quorum", advice)


def _halves(view: View) -> Iterator[Diagnosis]:
    """Two quorate partitions (somebody ran ``pvecm expected``), or nodes without quorum that do not see each other."""
    sides = _sides(view)
    if len(sides) < 2:  # noqa: PLR2004 - two halves
        return
    if view.has_quorum:
        yield Diagnosis(
            Condition.PARTITION,
            "",
            "two parts of the cluster are quorate at once: both write their own /etc/pve",
            sides,
            advice="Stop corosync in one of the parts now, and keep a copy of its /var/lib/pve-cluster/config.db.",
        )
    elif all(is_running(node) for node in view.clustered):
        yield Diagnosis(
            Condition.PARTITION,
            "",
            "nodes that answer do not see each other",
            sides,
            advice="Look at the network between the nodes: UDP 5405 of each link, both ways; a firewall; the switch.",
        )


def _sides(view: View) -> tuple[str, ...]:
    """The partitions that share no node with any other, each with the nodes that answered from it.

    Where some nodes have quorum only theirs count.
    """
    names_by_partition = dict[frozenset[int], list[str]]()
    for node in view.clustered:
        counts = node.is_quorate or not view.has_quorum
        if counts and node.quorum is not None:
            partition = frozenset(node.quorum.present)
            names_by_partition.setdefault(partition, []).append(node.name)
    sides = list[str]()
    for partition, names in names_by_partition.items():
        if _is_apart(partition, names_by_partition):
            nodeids = ", ".join(map(str, sorted(partition)))
            sides.append(f"{', '.join(names)}: nodes {nodeids}")
    return tuple(sides)


def _is_apart(partition: frozenset[int], partitions: Iterable[frozenset[int]]) -> bool:
    """Return whether the partition shares no node with any other one."""
    others = [other for other in partitions if other != partition]
    return all(partition.isdisjoint(other) for other in others)


def _skewed(view: View) -> Iterator[Diagnosis]:
    """That clocks differ; of two nodes nobody can say which one is wrong."""
    offsets = sorted((node.clock_offset_s, node.name) for node in view.clustered)
    if not offsets:
        return
    low, first = offsets[0]
    high, last = offsets[-1]
    if high - low <= CLOCK_SKEW_LIMIT_S:
        return
    if len(offsets) == 2:  # noqa: PLR2004 - one and another
        yield _skew("", f"the clock of {last} is {high - low:.1f} s ahead of that of {first}")
    else:
        yield from _skewed_of_many(offsets)


def _skewed_of_many(offsets: list[tuple[float, str]]) -> Iterator[Diagnosis]:
    """The nodes whose clocks are far from the median of all."""
    middle = median(offset for offset, _ in offsets)
    for offset, name in offsets:
        ahead = offset - middle
        if abs(ahead) > CLOCK_SKEW_LIMIT_S:
            direction = "ahead of" if ahead > 0 else "behind"
            yield _skew(name, f"its clock is {abs(ahead):.1f} s {direction} the other nodes'")


def _skew(name: str, message: str) -> Diagnosis:
    advice = "Look at chronyc tracking on the nodes, and let chrony set the clock before a repair."
    return Diagnosis(Condition.CLOCK_SKEW, name, message, (f"limit: {CLOCK_SKEW_LIMIT_S:.0f} s",), advice=advice)


def _unknown(node: NodeFacts) -> Iterator[Diagnosis]:
    """Yield what could not be read of a node that is in a cluster, so that nobody takes it for healthy."""
    if not is_clustered(node) and not node.unread:
        return
    missing = tuple(_missing(node))
    if missing:
        what = "some of it could not be read: nobody can say that it is in order"
        advice = "Look at systemctl status corosync pve-cluster there, then check again."
        yield Diagnosis(Condition.UNKNOWN, node.name, what, (*missing, versions_text(node)), advice=advice)


def _missing(node: NodeFacts) -> Iterator[str]:
    """Yield what a diagnosis of the node would need and could not be read, and why."""
    pmxcfs = node.units.get("pve-cluster", "active")
    if pmxcfs != "active":
        yield f"pve-cluster: {pmxcfs}: /etc/pve is not there"
    for name, why in node.unread.items():
        yield f"{name}: {why}"
    if not node.key_digest and is_clustered(node):
        yield "authkey: there is none, or it cannot be read"
    if not node.units:
        yield "units: systemd does not answer"
    if is_running(node) and node.running_version is None:
        yield "cmap: corosync runs, and does not say its version"
    is_silent = node.quorum is None and "quorum" not in node.unread
    if is_silent and node.units.get("corosync") == "active":
        yield "quorum: corosync is active, and does not answer"


def absent_diagnoses(view: View) -> Iterator[Diagnosis]:
    """The conditions of members that did not answer, and of unknown senders whose packets arrive.

    The files of a node that is off cannot be read. What is known is the version with which corosync saw it last.
    """
    for member in view.members:
        if view.is_answering(member):
            continue
        not_asked = Silent(member.name, " ".join(member.addresses), "it was not asked")
        silent = view.facts.silence(member.name) or not_asked
        tried = f"{silent.address}: {silent.why}"
        if view.is_present(member.nodeid):
            yield _deaf(member, tried, view)
        elif silent.key_advice:
            yield _other_host_key(member, silent, tried, view)
        elif not is_heard_only(member, view):  # else it is told first, among what concerns all nodes
            yield from _offline(member, tried, view)
    yield from _unknown_senders(view)


def _deaf(member: Member, tried: str, view: View) -> Diagnosis:
    """It is joined: corosync knows that it lives and what version it has, and nobody knows the rest."""
    condition = Condition.UNKNOWN
    what = "it is joined, but does not answer us: what its files say is not known"
    version = view.reference.joined.get(member.nodeid) if view.reference else None
    if version is not None and version < view.version:
        condition = Condition.BEHIND
        what = f"its list has version {version} of {view.version}, while it is joined, and it does not answer us"
    return Diagnosis(condition, member.name, what, (tried,), advice="Make ssh to it work, then check again.")


def _other_host_key(member: Member, silent: Silent, tried: str, view: View) -> Diagnosis:
    """A member that is on, and was installed anew, or whose address is another machine's now."""
    what = (
        "it is on, and answers with another host key than the one that is known here: it was installed anew, or "
        "another machine has its address"
    )
    advice = (
        f"Compare the keys before anything else. {silent.key_advice} If it was installed anew, then: provision cluster "
        f"rejoin {member.name}"
    )
    evidence = (tried, *_guests_of_member(member, view))
    return Diagnosis(Condition.OTHER_HOST_KEY, member.name, what, evidence, advice=advice)


def _offline(member: Member, tried: str, view: View) -> Iterator[Diagnosis]:
    """Say that a member is off or cut off, and what comes of powering it on; it may also be on with another key."""
    heard = _heard(member, view)
    links = link_lines(member, view)
    votes = f"it has {member.votes} of the votes" if member.votes != 1 else "it has 1 vote"
    state = ", but it is on: corosync has a link to it" if links else ": it is off, or cut off"
    yield Diagnosis(
        Condition.OFFLINE,
        member.name,
        f"it does not answer and is not joined{state}",
        (tried, votes, *_guests_of_member(member, view), *links, *heard),
        advice="Look at it on its own console before anything is decided about it. If its address changed, ask it "
        "itself: provision cluster check root@ITS-ADDRESS",
    )
    has_other_key = any("Unable to decrypt" in line for line in heard)
    if has_other_key:
        yield _other_key(member, heard, view)
    elif not links:
        yield from _power_on(member, view)


def _heard(member: Member, view: View) -> tuple[str, ...]:
    """The lines of all nodes' logs about packets of the member."""
    lines = list[str]()
    for node in view.clustered:
        for line in node.signatures.lines:
            if is_about(line, member.addresses):
                lines.append(f"{node.name}: {line}")
    return tuple(lines)


def _other_key(member: Member, heard: tuple[str, ...], view: View) -> Diagnosis:
    """A member whose packets nobody could decrypt: it is on, or would come with that key when it is powered on."""
    if is_sending(member, view):
        what = "it is on, and has another authkey than the cluster"
        advice = f"Make ssh to it work, then: provision cluster rejoin {member.name}"
        return Diagnosis(Condition.KEY_CHANGED, member.name, what, heard, "stale-corosync-rejoin", advice)
    what = "do not power it on: when it was last heard it had another authkey than the cluster"
    evidence = (*heard, "It would send packets that nobody can decrypt, and run alone without quorum.")
    return Diagnosis(Condition.DO_NOT_POWER_ON, member.name, what, evidence, POWER_ON_CHECK, _prepared(member))


def is_sending(member: Member, view: View) -> bool:
    """Return whether packets of it that are turned away arrive now; a log without times is believed."""
    for node in view.clustered:
        log = node.signatures
        for address in set(member.addresses).intersection(log.turned_away):
            if log.ages.get(address, 0.0) <= RECENT_S:
                return True
    return False


def _guests_of_member(member: Member, view: View) -> tuple[str, ...]:
    """Return what the cluster has on it, and would be started with it."""
    if view.reference is None or not view.has_quorum:
        return ()
    guests = view.reference.guests.get(member.name, ())
    if not guests:
        return ()
    titles = ", ".join(guest.title for guest in guests)
    plural = "s" if len(guests) > 1 else ""
    return (f"the cluster has {len(guests)} guest{plural} on it: {titles}", *named_lines(view.reference, guests))


def _power_on(member: Member, view: View) -> Iterator[Diagnosis]:
    """Yield what comes of powering it on: it ends itself, it disturbs all others, or nobody knows which of them."""
    last, source = _last_version(member, view)
    seen = f"version now: {view.version}"
    if last is not None:
        seen = f"last seen with version {last} ({source}), {seen}"
    added = _added(member, view)
    if added:
        yield _disturbing_newcomers(member, added, seen)
    elif last is None:
        yield _unseen(member, seen)
    elif last < view.version:
        yield _outdated(member, view.version - last, seen, nobody_joined=_nobody_joined_since(member, view))


def _disturbing_newcomers(member: Member, added: tuple[Member, ...], seen: str) -> Diagnosis:
    """A member that was off while others were added cannot hear those when it comes back."""
    names = ", ".join(newcomer.name for newcomer in added)
    were = "was" if len(added) == 1 else "were"
    what = (
        f"do not power it on: {names} {were} added since, and it would disturb the cluster: it does not end itself, "
        "and writes to /etc/pve hang on all nodes"
    )
    evidence = (seen, f"first spoken of by corosync since {member.name} left: {names}", DISTURBS)
    return Diagnosis(Condition.DO_NOT_POWER_ON, member.name, what, evidence, POWER_ON_CHECK, _cut_off(member))


def _unseen(member: Member, seen: str) -> Diagnosis:
    """Nobody knows the version of its list, so its files have to be read before it is powered on."""
    what = "do not power it on unseen: with which list it went away is not known"
    advice = (
        f"Read config_version and the nodes in its /etc/corosync/corosync.conf without the network, and give the "
        f"version: --last-version {member.name}=N. {_cut_off(member)}"
    )
    return Diagnosis(Condition.DO_NOT_POWER_ON, member.name, what, (seen, *WILL), POWER_ON_CHECK, advice)


def _outdated(member: Member, versions: int, seen: str, *, nobody_joined: bool) -> Diagnosis:
    """A member with an old list ends itself, if nobody was added since: else it may disturb the cluster."""
    plural = "s" if versions > 1 else ""
    what = f"do not power it on: {versions} version{plural} behind, its corosync will end itself"
    if nobody_joined:
        evidence: tuple[str, ...] = (seen, ENDS, "No member was added or joined since it left.")
        advice = _prepared(member)
    else:
        what += ", or disturb the cluster if a member was added since"
        evidence = (seen, *WILL)
        advice = f"{_cut_off(member)} Its guests stay down until then."
    return Diagnosis(Condition.DO_NOT_POWER_ON, member.name, what, evidence, POWER_ON_CHECK, advice)


def _prepared(member: Member) -> str:
    """Return what to do with a node that harms only itself."""
    return (
        f"Power it on when you can repair it at once: provision cluster rejoin {member.name}. Its guests stay down "
        "until then."
    )


def _cut_off(member: Member) -> str:
    """Return what to do with a node that may harm the others."""
    return (
        "Power it on with its network cut off; on its console: systemctl stop corosync. Then give it its network, and: "
        f"provision cluster rejoin {member.name}."
    )


def _added(member: Member, view: View) -> tuple[Member, ...]:
    """The members of which corosync spoke for the first time after this one had left: they were added meanwhile."""
    newcomers = set[int]()
    for node in view.joined_nodes:
        newcomers |= node.signatures.newcomers.get(member.nodeid, frozenset())
    return tuple(other for other in view.members if other.nodeid in newcomers)


def _nobody_joined_since(member: Member, view: View) -> bool:
    """Return whether a log that reaches back to when the member left says that nobody joined since."""
    return any(member.nodeid in node.signatures.unchanged_since for node in view.joined_nodes)


def _last_version(member: Member, view: View) -> tuple[int | None, str]:
    """The version of its list when it was last seen, and who says so; None where nobody knows."""
    for name in (member.name, ""):
        if name in view.last_versions:
            return view.last_versions[name], "by --last-version"
    seen = list[tuple[int, str]]()
    for node in view.clustered:
        address = node.heard.get(member.nodeid, member.addresses[0])
        if member.nodeid in node.departed and address in member.addresses:
            seen.append((node.departed[member.nodeid], node.name))
    if not seen:
        return None, ""
    version, name = max(seen)
    return version, f"by corosync on {name}"


def _unknown_senders(view: View) -> Iterator[Diagnosis]:
    """Packets that are turned away, of nobody who answered: of a node that runs with another list or key."""
    if not view.has_quorum:
        return
    whys = {silent.address: silent.why for silent in view.facts.silent}
    for address, lines in _unknown_packets(view).items():
        what = (
            f"{address} sends packets that are turned away, and does not answer: a node with an old list or key is on"
        )
        evidence = list(lines)
        if address in whys:
            evidence.append(f"{address}: {whys[address]}")
        advice = f"Find the machine that has {address}, and stop corosync on it; then check again with ssh to it."
        yield Diagnosis(Condition.UNKNOWN, "", what, tuple(evidence), advice=advice)


def _unknown_packets(view: View) -> dict[str, list[str]]:
    """By the sender's address the logs' lines about it; senders whose address is no known node's only."""
    known = set[str]()
    for node in view.facts.nodes:
        known.update(node.all_addresses)
    for member in view.members:
        known.update(member.addresses)
    lines_by_address = dict[str, list[str]]()
    for node in view.joined_nodes:
        log = node.signatures
        for address in (*log.rejected, *log.undecryptable):
            if address not in known:
                lines = [f"{node.name}: {line}" for line in log.lines if is_about(line, [address])]
                lines_by_address.setdefault(address, []).extend(lines)
    return lines_by_address


def ghost_diagnoses(view: View) -> Iterator[Diagnosis]:
    """Ghosts and leftovers, by the lead's ``/etc/pve``; none without a lead.

    Only a quorate node's list proves that a name belongs to nobody; an unclustered node proves nothing (its host name
    may have been changed).
    """
    lead = view.facts.lead
    if lead is None or not is_clustered(lead):
        return
    yield from orphan_diagnoses(lead)
    present = _known_names(lead, view)
    ghosts = set(lead.guests) - present
    for name in sorted(ghosts):
        yield _ghost(name, lead)
    places_by_name = _leftover_places(lead, present, ghosts)
    for name in sorted(places_by_name):
        yield Diagnosis(
            Condition.LEFTOVERS,
            name,
            "it is no member any more, and is still named",
            tuple(places_by_name[name]),
            "removed-node-leftovers",
            FORGET.format(name),
        )


def _known_names(lead: NodeFacts, view: View) -> set[str]:
    """The names that are no ghosts: members by any list of the lead's, and nodes that answered."""
    named: list[Member | NodeFacts | Peer] = [*view.members, *view.facts.nodes, *lead.peers]
    for conf in lead.files:
        named += conf.members
    names = {node.name for node in named}
    names.update(node.hostname for node in view.facts.nodes)
    return names


def _ghost(name: str, lead: NodeFacts) -> Diagnosis:
    """The diagnosis of a folder in ``/etc/pve/nodes`` that is no node's, with the guests in it."""
    guests = lead.guests[name]
    where = f"/etc/pve/nodes/{name} on {lead.name}; neither the nodelist nor .members has it"
    forget = FORGET.format(name)
    off = "If the machine still exists: never power it on unchanged in this network."
    if not guests:
        what = "a ghost: only its folder is left, without guests"
        return Diagnosis(Condition.GHOST, name, what, (where,), "ghost-node", f"{forget}. {off}")
    evidence = [where]
    for guest in guests:
        volumes = ", ".join(guest.volumes) or "no disks"
        evidence.append(f"{guest.kind} {guest.title}: {volumes}")
    evidence += named_lines(lead, guests)
    plural = "s" if len(guests) > 1 else ""
    what = f"a ghost: its folder is left, with {len(guests)} guest{plural}"
    advice = f"Move or archive its guests first: {forget} shows what can be kept. {off}"
    return Diagnosis(Condition.GHOST_WITH_GUESTS, name, what, tuple(evidence), "ghost-node", advice)


def _leftover_places(lead: NodeFacts, present: set[str], ghosts: set[str]) -> dict[str, list[str]]:
    """Name → where it is named. A key alone proves nothing: an administrator's own is in the same file."""
    places_by_name = dict[str, list[str]]()
    for name in lead.references.keys() - present:
        places_by_name[name] = list(lead.references[name])
    for name in filter(_is_node_name, lead.known_hosts):
        if name not in present:
            places_by_name.setdefault(name, []).append("/etc/pve/priv/known_hosts")
    for name in lead.keys:
        if name in places_by_name or name in ghosts:
            places_by_name.setdefault(name, []).append("/etc/pve/priv/authorized_keys")
    return places_by_name


def _is_node_name(name: str) -> bool:
    """Return whether it may be a node's: not hashed, without a port or a marker; a node's name has no domain."""
    if name.startswith(("|", "[", "@")) or "." in name:
        return False
    return not is_address(name)
