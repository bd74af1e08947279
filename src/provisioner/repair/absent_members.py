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
    """The conditions of members that did not answer, and of strangers whose packets arrive."""
    silent = {one.name: one for one in view.facts.silent if one.name}
    for member in view.members:
        if view.facts.node(member.name):
            continue
        found = silent.get(member.name, Silent(member.name, " ".join(member.addresses), "it was not asked"))
        tried = f"{found.address}: {found.why}"
        if view.is_present(member.nodeid):
            yield _deaf(member, tried, view)
        else:
            yield from _offline(member, tried, view)
    yield from _strangers(view)


def _deaf(member: Member, tried: str, view: View) -> Diagnosis:
    """It is joined: corosync knows that it lives and what version it has, and nobody knows the rest."""
    joined = view.reference.joined.get(member.nodeid) if view.reference else None
    if joined is not None and joined < view.version:
        what = f"its list has version {joined} of {view.version}, while it is joined, and it does not answer us"
        return Diagnosis(Condition.BEHIND, member.name, what, (tried,), advice="Make ssh to it work, then check again.")
    what = "it is joined, but does not answer us: what its files say is not known"
    return Diagnosis(Condition.UNKNOWN, member.name, what, (tried,), advice="Make ssh to it work, then check again.")


def _offline(member: Member, tried: str, view: View) -> Iterator[Diagnosis]:
    if is_heard_only(member, view):
        return  # it is told first, among what concerns all nodes
    heard = tuple(
        f"{one.name}: {line}"
        for one in view.clustered
        for line in one.signatures.lines
        if is_about(line, member.addresses)
    )
    links = link_lines(member, view)
    votes = f"it has {member.votes} of the votes" if member.votes != 1 else "it has 1 vote"
    what = "it does not answer and is not joined"
    what += ", but it is on: corosync has a link to it" if links else ": it is off, or cut off"
    yield Diagnosis(
        Condition.OFFLINE,
        member.name,
        what,
        (tried, votes, *_guests(member, view), *links, *heard),
        advice="Look at it on its own console before anything is decided about it. If its address changed, ask it "
        "itself: provision cluster check root@ITS-ADDRESS",
    )
    has_other_key = any("Unable to decrypt" in line for line in heard)
    if has_other_key and is_sending(member, view):
        what = "it is on, and has another authkey than the cluster"
        advice = f"Make ssh to it work, then: provision cluster rejoin {member.name}"
        yield Diagnosis(Condition.KEY_CHANGED, member.name, what, heard, "stale-corosync-rejoin", advice)
    elif has_other_key:
        what = "do not power it on: when it was last heard it had another authkey than the cluster"
        evidence = (*heard, "It would send packets that nobody can decrypt, and run alone without quorum.")
        yield Diagnosis(Condition.DO_NOT_POWER_ON, member.name, what, evidence, RUNBOOK, _prepared(member))
    elif not links:
        yield from _power_on(member, view)


def is_sending(member: Member, view: View) -> bool:
    """Whether packets of it that are turned away arrive now; a log without times is believed."""
    for node in view.clustered:
        log = node.signatures
        for address in member.addresses:
            is_heard = address in log.rejected or address in log.undecryptable
            if is_heard and log.ages.get(address, 0.0) <= RECENT_S:
                return True
    return False


def _guests(member: Member, view: View) -> tuple[str, ...]:
    """What the cluster has on it, and would be started with it."""
    guests = view.reference.guests.get(member.name, ()) if view.reference and view.has_quorum else ()
    named = ", ".join(f"{one.vmid}{f' {one.name}' if one.name else ''}" for one in guests)
    return (f"the cluster has {len(guests)} guest{'s' if len(guests) != 1 else ''} on it: {named}",) if guests else ()


def _power_on(member: Member, view: View) -> Iterator[Diagnosis]:
    """What comes of powering it on: it ends itself, it disturbs all others, or nobody knows which of them."""
    last, whence = _last_version(member, view)
    added = _added(member, view)
    seen = "" if last is None else f"last seen with version {last} ({whence}), "
    evidence = [f"{seen}version now: {view.version}"]
    advice = _prepared(member)
    if added:
        names = ", ".join(one.name for one in added)
        what = (
            f"do not power it on: {names} {'was' if len(added) == 1 else 'were'} added since, and it would disturb the "
        )
        what += "cluster: it does not end itself, and writes to /etc/pve hang on all nodes"
        evidence += [f"first spoken of by corosync since {member.name} left: {names}", DISTURBS]
        advice = _cut_off(member)
    elif last is None:
        what = "do not power it on unseen: with which list it went away is not known"
        evidence += WILL
        advice = (
            f"Read config_version and the nodes in its /etc/corosync/corosync.conf without the network, and give the "
            f"version: --last-version {member.name}=N. {_cut_off(member)}"
        )
    elif last < view.version:
        behind = view.version - last
        is_sure = _is_settled(member, view)
        what = f"do not power it on: {behind} version{'s' if behind > 1 else ''} behind, its corosync will end itself"
        what += "" if is_sure else ", or disturb the cluster if a member was added since"
        evidence += (ENDS, "No member was added or joined since it left.") if is_sure else WILL
        advice = advice if is_sure else f"{_cut_off(member)} Its guests stay down until then."
    else:
        return
    yield Diagnosis(Condition.DO_NOT_POWER_ON, member.name, what, tuple(evidence), RUNBOOK, advice)


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
    newcomers = {
        nodeid
        for node in view.clustered
        if view.is_joined(node)
        for nodeid in node.signatures.newcomers.get(member.nodeid, ())
    }
    return tuple(one for one in view.members if one.nodeid in newcomers)


def _is_settled(member: Member, view: View) -> bool:
    """Whether a log that reaches back to when the member left says that nobody joined since."""
    return any(member.nodeid in node.signatures.unchanged_since for node in view.clustered if view.is_joined(node))


def _last_version(member: Member, view: View) -> tuple[int | None, str]:
    for name in (member.name, ""):
        if name in view.last_versions:
            return view.last_versions[name], "by --last-version"
    seen = [
        (one.departed[member.nodeid], one.name)
        for one in view.clustered
        if member.nodeid in one.departed and one.heard.get(member.nodeid, member.addresses[0]) in member.addresses
    ]
    if not seen:
        return None, ""
    version, name = max(seen)
    return version, f"by corosync on {name}"


def _strangers(view: View) -> Iterator[Diagnosis]:
    """Packets that are turned away, of nobody who answered: of a node that runs with another list or key."""
    known = {address for one in view.facts.nodes for address in (one.address, *one.addresses)}
    known |= {address for one in view.members for address in one.addresses}
    lines: dict[str, list[str]] = {}
    for node in view.clustered if view.has_quorum else ():
        for address in (*node.signatures.rejected, *node.signatures.undecryptable):
            if address not in known and view.is_joined(node):
                found = [line for line in node.signatures.lines if is_about(line, [address])]
                lines.setdefault(address, []).extend(f"{node.name}: {line}" for line in found)
    whys = {one.address: one.why for one in view.facts.silent}
    for address, found in lines.items():
        what = (
            f"{address} sends packets that are turned away, and does not answer: a node with an old list or key is on"
        )
        evidence = (*found, *([f"{address}: {whys[address]}"] if address in whys else []))
        advice = f"Find the machine that has {address}, and stop corosync on it; then check again with ssh to it."
        yield Diagnosis(Condition.UNKNOWN, "", what, evidence, advice=advice)
