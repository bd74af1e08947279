"""The conditions of a node that answered, against the list that counts; and who keeps the ring open. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from provisioner.cluster.facts import Condition, Diagnosis, Member, NodeFacts, named, plain_name
from provisioner.cluster.read_corosync import is_about
from provisioner.cluster.view import (
    DEAD,
    View,
    has_newer_pve,
    is_running,
    lost_addresses,
    members_of,
    named_otherwise,
    near_addresses,
    pve_age_words,
    setting_differences,
    usable_addresses,
    version_of,
    versions_text,
)

REJOIN = "provision cluster rejoin {}"
LIGHT, FORCED = "stale-corosync-behind", "stale-corosync-rejoin"
OFTEN = 3
"""Memberships formed anew in two minutes without anybody joining or leaving: a token may be late once."""
HANGS = "a write to /etc/pve hangs for seconds on every node, again and again"


def node_diagnoses(node: NodeFacts, view: View) -> tuple[Diagnosis, ...]:
    """The conditions of a clustered node; none when it is joined and its list is the current one."""
    if node.hostname:
        return (_renamed(node, view),)
    if not view.has_quorum and view.is_alone:
        return tuple(_by_own_log(node))
    if view.is_joined(node):
        return tuple(_of_joined(node, view))
    reference = view.reference
    if reference is None or node is reference:
        return () if is_running(node) else (_dead(node),)
    return tuple(_kept_out(diagnosis, node, reference) for diagnosis in _of_absent(node, view))


def _renamed(node: NodeFacts, view: View) -> Diagnosis:
    """A member under another host name. Nothing of it may be stopped or joined anew: it is well otherwise."""
    what = (
        f"its host name is {node.hostname}, and the list has its id and address as {node.name}: Proxmox VE looks for "
        f"its guests in /etc/pve/nodes/{node.hostname}"
    )
    evidence = [f"addresses of {node.hostname}: {', '.join(usable_addresses(node)) or node.address}", view.list_text]
    for name in (node.name, node.hostname):
        guests = ", ".join(guest.title for guest in node.guests.get(name, ()))
        evidence.append(f"guests in /etc/pve/nodes/{name}: {guests or 'none'}")
    return Diagnosis(Condition.RENAMED, node.name, what, tuple(evidence), advice=put_name_back(node))


def _named_otherwise(node: NodeFacts, view: View, member: Member) -> Diagnosis:
    """A node that the cluster's list has with its id and its addresses, and with another name."""
    what = f"the cluster's list has its id and addresses as {member.name}, and its own list as {node.name}"
    advice = (
        f"Decide for one name. To keep {node.name}: write it in place of {member.name} into /etc/pve/corosync.conf, "
        f"with a higher config_version. Else on it (root@{node.address}): hostnamectl set-hostname {member.name}, "
        "and that name into its /etc/hosts."
    )
    return Diagnosis(Condition.RENAMED, node.name, what, (versions_text(node), view.list_text), advice=advice)


def put_name_back(node: NodeFacts) -> str:
    """Return how the node gets the name of its member again; a host name of Proxmox VE has no domain."""
    if plain_name(node.name) == node.hostname:
        return (
            f"Write name: {node.hostname} in place of {node.name} into /etc/pve/corosync.conf, with a higher "
            "config_version. Leave corosync running."
        )
    return (
        f"Put its name back, on it (root@{node.address}): hostnamectl set-hostname {node.name}; write {node.name} in "
        f"place of {node.hostname} into /etc/hosts; then systemctl restart pve-cluster pvedaemon pveproxy. Leave "
        "corosync running, and neither forget nor join anything."
    )


def _of_absent(node: NodeFacts, view: View) -> Iterator[Diagnosis]:
    """Say why a node is not joined; nothing where it disturbs all nodes: that is said first of what concerns them."""
    member = view.member(node.name)
    own = named(members_of(node), node.name)
    other = named_otherwise(node, own, view.members)
    if other is not None:
        yield _named_otherwise(node, view, other)
        return
    if member is None or (own is not None and own.nodeid != member.nodeid):
        yield _removed(node, view, member, own)
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


def _of_joined(node: NodeFacts, view: View) -> Iterator[Diagnosis]:
    """That a node which is joined has an old list, as it runs or in a file."""
    running = node.running_version
    if running is None:
        return  # that it is not known is said of what could not be read
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
    elif _setting_differences(node, view):
        yield _conf_differs(node, view, "it counts at the next start")


def _setting_differences(node: NodeFacts, view: View) -> tuple[str, ...]:
    """The settings of the node's own list that are not the cluster's."""
    return setting_differences(node.local_conf, view.conf)


def _conf_differs(node: NodeFacts, view: View, meaning: str) -> Diagnosis:
    """A list of the cluster's version with other settings."""
    differing = _setting_differences(node, view)
    names = ", ".join(line.partition(":")[0] for line in differing)
    what = f"/etc/corosync/corosync.conf differs from the cluster's of the same version in {names}: {meaning}"
    logs = list[str]()
    for other in view.facts.nodes:
        logs += _log(other, "Incorrect packet size")
    evidence = (*differing, *logs, versions_text(node))
    return Diagnosis(Condition.CONF_DIFFERS, node.name, what, evidence, LIGHT, REJOIN.format(node.name))


def _by_own_log(node: NodeFacts) -> Iterator[Diagnosis]:
    """Yield what a node's own log proves when there is nobody to compare it with."""
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
    """Return whether corosync ended itself over a newer list, and the node has no such list since."""
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


def _removed(node: NodeFacts, view: View, member: Member | None, own: Member | None) -> Diagnosis:
    """A node that is no member any more, or one with another id than in its ``own`` list."""
    evidence = [versions_text(node), view.list_text, *_log_of_others(node, view)]
    if view.reference is not None and node.name in view.reference.guests:
        guests = view.reference.guests[node.name]
        evidence.append(f"/etc/pve/nodes/{node.name} is still there, with {len(guests)} guests")
    advice = f"Keep corosync on it stopped until it is back: {REJOIN.format(node.name)}"
    heirs = [member for member in view.members if own and member.nodeid == own.nodeid and member.name != own.name]
    if own and heirs:
        what = f"it was removed, and its id {own.nodeid} was given to {heirs[0].name}"
        return Diagnosis(Condition.ID_REUSED, node.name, what, tuple(evidence), FORCED, advice)
    again = f", and {node.name} was added again with id {member.nodeid}" if member else ""
    what = f"it was removed from the cluster{again}; it still takes itself for a member"
    return Diagnosis(Condition.REMOVED, node.name, what, tuple(evidence), FORCED, advice)


def _differences(node: NodeFacts, member: Member, view: View) -> Iterator[Diagnosis]:
    """Yield in what the node is not as the cluster has it: key, the others' addresses, its own."""
    yield from _key_change(node, view)
    yield from _moved_peers(node, view)
    own = named(members_of(node), node.name)
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
        listed = named(own_list, member.name)
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
    if _setting_differences(node, view):
        return _conf_differs(node, view, "the others drop its packets")
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
    """The states of the node's services, as evidence."""
    return tuple(f"{unit}: {state}" for unit, state in node.units.items())


def _log(node: NodeFacts, words: str) -> tuple[str, ...]:
    """The lines of the node's log with these words."""
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


def _at(member: Member) -> str:
    return " ".join(member.addresses)


def _behind(versions: int) -> str:
    return "1 version behind" if versions == 1 else f"{versions} versions behind"


def ring_diagnoses(view: View) -> Iterator[Diagnosis]:
    """The nodes that keep the ring open now, whether they answer or not; then that somebody does, if none was found.

    Such a node hears some members and not all: one was added, or got another address, while the node was off. No node
    writes "Received config version", and the node does not end itself: those that it hears try to take it in, the
    others are never heard by it, and corosync gives up after its time limit and begins again. Meanwhile a write to
    ``/etc/pve`` hangs on every node.
    """
    causes = [_disturbing_node(node, view) for node in view.clustered if disturbs(node, view)]
    causes += [_disturbing_silent(member, view) for member in view.members if is_heard_only(member, view)]
    yield from causes
    restless = restless_nodes(view)
    was_stopped_just_now = any(could_disturb(node, view) for node in view.clustered)
    if restless and not causes and not was_stopped_just_now:
        yield _unexplained(restless)


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
    """Return whether its corosync runs, and hears some of the members that are joined and not all of them.

    It need not answer: while corosync forms its membership its tools wait for it, too. Where it does, it has a link.
    """
    member = view.member(node.name)
    if not view.has_quorum or member is None or view.is_present(member.nodeid):
        return False
    has_no_link = bool(node.links) and not any(link.is_connected for link in node.links)
    if has_no_link or node.units.get("corosync", "") in DEAD:
        return False
    return could_disturb(node, view)


def could_disturb(node: NodeFacts, view: View) -> bool:
    """Return whether it would do so once its corosync runs, by its list, its key and its own address."""
    reference = view.reference
    if reference is None or reference is node:
        return False
    if node.key_digest and node.key_digest != reference.key_digest:
        return False
    if not _has_own_place(node, view):
        return False
    return 0 < len(unheard(node, view)) < len(_joined_others(node, view))


def _has_own_place(node: NodeFacts, view: View) -> bool:
    """Return whether its list has it at the same place as the cluster's, and it is there."""
    member = view.member(node.name)
    own = named(members_of(node), node.name)
    if member is None or own is None:
        return False
    return own.place == member.place and not lost_addresses(node, member)


def unheard(node: NodeFacts, view: View) -> tuple[Member, ...]:
    """The joined members that the node's list lacks, or has at other addresses; corosync goes by no names."""
    places = {member.place for member in members_of(node)}
    return tuple(member for member in _joined_others(node, view) if member.place not in places)


def unheard_words(node: NodeFacts, view: View) -> str:
    """Return why it does not hear them: "pve4 was added", "pve2 moved to other addresses"."""
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
    """Return whether it neither answers us nor is joined, while corosync on a joined node has a link to it."""
    if view.is_answering(member) or not view.has_quorum or view.is_present(member.nodeid):
        return False
    is_forming = bool(restless_nodes(view))
    return is_forming and bool(link_lines(member, view))


def link_lines(member: Member, view: View) -> tuple[str, ...]:
    """Return where corosync on joined nodes has a link to the member, which is on then."""
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


def _disturbing_node(node: NodeFacts, view: View) -> Diagnosis:
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


def _disturbing_silent(member: Member, view: View) -> Diagnosis:
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


def _joined_others(node: NodeFacts, view: View) -> tuple[Member, ...]:
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
