"""Members that do not answer: off, cut off, or joined and deaf to us only; and what comes of powering them on.

What a node that is off has in its files cannot be read. What is known is the version with which corosync saw it last.
"""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.repair.conditions import Condition, Diagnosis
from provisioner.repair.corosync_log import RECENT_S, is_about
from provisioner.repair.facts import Member, Silent
from provisioner.repair.ring import is_heard_only, link_lines
from provisioner.repair.view import View

RUNBOOK = "power-on-check"
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


def absent_diagnoses(view: View) -> Iterator[Diagnosis]:
    """The conditions of members that did not answer, and of unknown senders whose packets arrive."""
    for member in view.members:
        if view.facts.node(member.name):
            continue
        not_asked = Silent(member.name, " ".join(member.addresses), "it was not asked")
        silent = view.facts.silence(member.name) or not_asked
        tried = f"{silent.address}: {silent.why}"
        if view.is_present(member.nodeid):
            yield _deaf(member, tried, view)
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
        (tried, votes, *_guests(member, view), *links, *heard),
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
    return Diagnosis(Condition.DO_NOT_POWER_ON, member.name, what, evidence, RUNBOOK, _prepared(member))


def is_sending(member: Member, view: View) -> bool:
    """Whether packets of it that are turned away arrive now; a log without times is believed."""
    for node in view.clustered:
        log = node.signatures
        for address in set(member.addresses).intersection(log.turned_away):
            if log.ages.get(address, 0.0) <= RECENT_S:
                return True
    return False


def _guests(member: Member, view: View) -> tuple[str, ...]:
    """What the cluster has on it, and would be started with it."""
    if view.reference is None or not view.has_quorum:
        return ()
    guests = view.reference.guests.get(member.name, ())
    if not guests:
        return ()
    titles = ", ".join(guest.title for guest in guests)
    plural = "s" if len(guests) > 1 else ""
    return (f"the cluster has {len(guests)} guest{plural} on it: {titles}",)


def _power_on(member: Member, view: View) -> Iterator[Diagnosis]:
    """What comes of powering it on: it ends itself, it disturbs all others, or nobody knows which of them."""
    last, source = _last_version(member, view)
    seen = f"version now: {view.version}"
    if last is not None:
        seen = f"last seen with version {last} ({source}), {seen}"
    added = _added(member, view)
    if added:
        yield _disturbing(member, added, seen)
    elif last is None:
        yield _unseen(member, seen)
    elif last < view.version:
        yield _outdated(member, view.version - last, seen, nobody_joined=_nobody_joined_since(member, view))


def _disturbing(member: Member, added: tuple[Member, ...], seen: str) -> Diagnosis:
    """A member that was off while others were added cannot hear those when it comes back."""
    names = ", ".join(newcomer.name for newcomer in added)
    were = "was" if len(added) == 1 else "were"
    what = (
        f"do not power it on: {names} {were} added since, and it would disturb the cluster: it does not end itself, "
        "and writes to /etc/pve hang on all nodes"
    )
    evidence = (seen, f"first spoken of by corosync since {member.name} left: {names}", DISTURBS)
    return Diagnosis(Condition.DO_NOT_POWER_ON, member.name, what, evidence, RUNBOOK, _cut_off(member))


def _unseen(member: Member, seen: str) -> Diagnosis:
    """Nobody knows the version of its list, so its files have to be read before it is powered on."""
    what = "do not power it on unseen: with which list it went away is not known"
    advice = (
        f"Read config_version and the nodes in its /etc/corosync/corosync.conf without the network, and give the "
        f"version: --last-version {member.name}=N. {_cut_off(member)}"
    )
    return Diagnosis(Condition.DO_NOT_POWER_ON, member.name, what, (seen, *WILL), RUNBOOK, advice)


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
    return Diagnosis(Condition.DO_NOT_POWER_ON, member.name, what, evidence, RUNBOOK, advice)


def _prepared(member: Member) -> str:
    """What to do with a node that harms only itself."""
    return (
        f"Power it on when you can repair it at once: provision cluster rejoin {member.name}. Its guests stay down "
        "until then."
    )


def _cut_off(member: Member) -> str:
    """What to do with a node that may harm the others."""
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
    """Whether a log that reaches back to when the member left says that nobody joined since."""
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
