"""What must be proved before a node is brought back into its cluster: each proof with what was seen. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from provisioner.repair.cluster_conditions import CLOCK_SKEW_LIMIT_S
from provisioner.repair.facts import ClusterFacts, CorosyncConf, Guest, Member, NodeFacts
from provisioner.repair.guests import Fate, Judged, guest_words, judge_guests, recovery_words, refused
from provisioner.repair.naming import quorum_words
from provisioner.repair.pve_age import has_newer_pve, pve_age_words
from provisioner.repair.readiness import Readiness
from provisioner.repair.record import Record
from provisioner.repair.rejoining import Kind, RejoinPlan, lead_address, node_address

RECORDS = "~/.local/state/provisioner/clusters"
"""Where repairs are kept unless XDG_STATE_HOME says otherwise, for people."""


@dataclass(frozen=True, slots=True)
class Proof:
    """One thing that was looked at: ``seen`` is the evidence, ``advice`` what to do when it does not hold.

    ``is_note``: it is not so, and need not be.
    """

    what: str
    holds: bool
    seen: str
    advice: str = ""
    is_note: bool = False


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a rejoin is judged by.

    ``saved``: the node's guests by an unfinished run's backup. ``open_runs``: unfinished repairs on other nodes.
    ``ready``: None for the light repair, which needs none of it. ``given_up``: VMIDs that the user gives up.
    """

    facts: ClusterFacts
    node: NodeFacts
    lead: NodeFacts
    conf: CorosyncConf
    plan: RejoinPlan
    ready: Readiness | None = None
    saved: tuple[Guest, ...] = ()
    open_runs: tuple[Record, ...] = ()
    given_up: frozenset[int] = field(default_factory=frozenset)


def rejoin_proofs(seen: Situation) -> tuple[Proof, ...]:
    """Every proof, in the order in which people would ask; a rejoin is refused when one does not hold."""
    proofs: list[Proof | None]
    proofs = [_quorum(seen), _agreement(seen), _ha(seen), _guests(seen), _pmxcfs(seen), _clock(seen), _alone(seen)]
    if seen.plan.kind is Kind.LIGHT:
        proofs += _light_proofs(seen)
    elif seen.plan.kind is Kind.FORCED and not seen.plan.is_joined:
        proofs += [_addresses(seen), _majority(seen), *_readiness(seen, seen.ready or Readiness())]
    return tuple(proof for proof in proofs if proof is not None)


def _light_proofs(seen: Situation) -> list[Proof | None]:
    """What the light repair needs besides: the node would hear the others, and its /etc/pve replaces nothing."""
    proofs = [_hears(seen), _is_older(seen)]
    if seen.plan.restarts == "corosync":
        proofs.append(_majority(seen))
    return proofs


def _quorum(seen: Situation) -> Proof:
    lead = seen.lead
    advice = "See: provision runbook show lost-quorum"
    return Proof("quorum", lead.is_quorate, f"{lead.name}: {quorum_words(lead)}", advice)


def _agreement(seen: Situation) -> Proof:
    """Whether the other quorate nodes run with the lead's list: a change of it may be on its way."""
    versions = dict[str, int | None]()
    for node in seen.facts.nodes:
        if node.is_quorate and node.name != seen.node.name:
            versions[node.name] = node.running_version
    words = ", ".join(f"{name} {version}" for name, version in versions.items())
    holds = set(versions.values()) == {seen.conf.version}
    advice = "A change is on its way, or it went wrong. Wait a little, then: provision cluster check"
    return Proof("one list among the others", holds, f"version {seen.conf.version}; running: {words}", advice)


def _ha(seen: Situation) -> Proof:
    """Whether HA leaves all services where they are: it fences a node that loses quorum while it works."""
    ha = seen.lead.ha
    if ha is None:
        why = seen.lead.unread.get("ha", "it was not told")
        return Proof("HA is idle", False, f"not known: {why}", f"On {seen.lead.name}: ha-manager status")
    words = "; ".join(ha.lines) or "no service is managed"
    advice = "Wait until HA has nothing to start, move or fence: ha-manager status"
    return Proof("HA is idle", ha.is_idle, words, advice)


def _guests(seen: Situation) -> Proof:
    """Whether the cluster has every guest that the node has, but for those that the user gives up."""
    node, lead = seen.node, seen.lead
    unread = _unread_guests(seen)
    if unread:
        return Proof("no guest is lost", False, f"not known: {'; '.join(unread)}", "Repair pmxcfs there first.")
    own = node.guests.get(node.name, ())
    judged = judge_guests((*own, *seen.saved), lead, node.name)
    bad = refused(judged, seen.given_up)
    changing = [guest for guest in judged if guest.fate is not Fate.KEPT]
    source = "its own /etc/pve and the backup" if seen.saved else "its own /etc/pve"
    evidence = [f"{len(judged)} in {source}, compared with the cluster's .vmlist"]
    evidence += [guest_words(guest) for guest in bad or changing]
    return Proof("no guest is lost", not bad, "\n".join(evidence), _guests_advice(seen, bad))


def _unread_guests(seen: Situation) -> list[str]:
    """Why the guests of the lead or the node are not known; the node need not say what a backup of it says."""
    asked = (seen.lead,) if seen.saved else (seen.lead, seen.node)
    reasons = list[str]()
    for node in asked:
        for part in ("guests", "vmlist"):
            if part in node.unread:
                reasons.append(f"{node.name}: {node.unread[part]}")
    return reasons


def _guests_advice(seen: Situation, bad: Sequence[Judged]) -> str:
    """What to do about the guests for which the rejoin is refused; empty without any."""
    if not bad:
        return ""
    address = node_address(seen.node, seen.lead, seen.conf)
    lines = [recovery_words(guest, seen.node.name, seen.lead.name, address) for guest in bad]
    options = " ".join(f"--give-up {judged.guest.vmid}" for judged in bad)
    lines.append(f"To lose the node's configurations of them (the backup keeps them): {options}")
    return "\n".join(lines)


def _pmxcfs(seen: Situation) -> Proof | None:
    """Whether pmxcfs runs on the node: without it the node's own /etc/pve cannot be read."""
    if seen.plan.resumes and seen.plan.kind is Kind.FORCED:
        return None  # the run that was left may have stopped it; it is started then
    state = seen.node.units.get("pve-cluster", "not-found")
    advice = f"On {seen.node.name}: systemctl restart pve-cluster; journalctl -u pve-cluster says why it ended."
    return Proof("pmxcfs runs on the node", state == "active", f"pve-cluster.service is {state}", advice)


def _clock(seen: Situation) -> Proof:
    skew = abs(seen.node.clock_offset_s - seen.lead.clock_offset_s)
    words = f"{skew:.1f} s apart from {seen.lead.name}"
    return Proof("the clocks agree", skew <= CLOCK_SKEW_LIMIT_S, words, f"On {seen.node.name}: chronyc makestep")


def _alone(seen: Situation) -> Proof:
    """Whether repairs of other nodes came to their end: two at once could cost the cluster its quorum."""
    others = sorted({record.node for record in seen.open_runs})
    if not others:
        return Proof("no other repair", True, "none of another node is unfinished")
    first = "; ".join(f"provision cluster rejoin {name}" for name in others)
    advice = f"One after the other. First: {first}. Where that is given up, move its record away: {RECORDS}"
    return Proof("no other repair", False, f"{', '.join(others)}: unfinished", advice)


def _hears(seen: Situation) -> Proof | None:
    """A node that runs with the current list and still has not joined does not hear the others."""
    node = seen.node
    if seen.plan.resumes or node.running_version != seen.conf.version:
        return None
    if not node.links or any(link.is_connected for link in node.links):
        return None
    words = f"its corosync runs with version {node.running_version} and has no link to any other node"
    advice = "This is no matter of its list. Look at network, switch and firewall: corosync-cfgtool -s, UDP 5405."
    return Proof("it could hear the others", False, words, advice)


def _is_older(seen: Situation) -> Proof | None:
    """The copy of /etc/pve that saw the most writes is everybody's as soon as the node joins."""
    node, lead = seen.node, seen.lead
    if seen.plan.is_joined:
        return None
    is_known = node.database is not None and lead.database is not None
    advice = (
        f"What {node.name} wrote alone could replace the cluster's /etc/pve. Both databases have to be read: on it and "
        f"on {lead.name}, sqlite3 -readonly /var/lib/pve-cluster/config.db .tables says why it cannot be."
    )
    holds = is_known and not has_newer_pve(node, lead)
    return Proof("the cluster's /etc/pve is the newer", holds, pve_age_words(node, lead), advice)


def _addresses(seen: Situation) -> Proof:
    """Whether the node has an address for each link, and no other node has it."""
    addresses = seen.plan.entry.addresses if seen.plan.entry else ()
    others = seen.conf.others(seen.node.name)
    taken = _taken(addresses, others)
    if taken:
        return Proof("its addresses are its own", False, "; ".join(taken), "Give the node another address.")
    links = len(others[0].addresses) if others else 1
    has_all = bool(addresses) and len(addresses) == links
    advice = f"The cluster has {links} link(s). Give the node the addresses that its /etc/corosync/corosync.conf says."
    return Proof("an address for each link", has_all, _links_text(addresses), advice)


def _links_text(addresses: Sequence[str]) -> str:
    if not addresses:
        return "none that it has"
    return ", ".join(f"link{number} {address}" for number, address in enumerate(addresses))


def _taken(addresses: Sequence[str], others: Sequence[Member]) -> list[str]:
    """Which of the addresses the cluster's list has for another node."""
    taken = list[str]()
    for member in others:
        for address in addresses:
            if address in member.addresses:
                taken.append(f"{address} is {member.name}'s")
    return taken


def _majority(seen: Situation) -> Proof:
    """Whether the others are still quorate while the node's corosync is stopped, and its own votes with it."""
    remaining = _votes_without(seen)
    needed, words = _needed(seen, remaining)
    if len(seen.conf.members) == 1:
        alone = f"{words}: {seen.lead.name} is alone, and has no quorum until the node has joined"
        return Proof("the others keep quorum", True, alone)
    others = seen.conf.others(seen.node.name)
    absent = [member.name for member in others if member.nodeid not in seen.lead.present]
    if absent:
        advice = "Bring back first, or forget if it is gone for good: " + ", ".join(absent)
    else:
        advice = (
            "All others are there, and have too few votes without it: pvecm status. Give one of them more, or add one."
        )
    return Proof("the others keep quorum", remaining >= needed, words, advice)


def _votes_without(seen: Situation) -> int:
    """The votes of the lead's partition without those of the node."""
    quorum = seen.lead.quorum
    if quorum is None:
        return 0
    member = seen.conf.member(seen.node.name)
    own = seen.lead.present.get(member.nodeid, 0) if member else 0
    return quorum.total - own


def _needed(seen: Situation, remaining: int) -> tuple[int, str]:
    """How many votes the others need meanwhile: by a list with the node in it, where that changes; and it in words."""
    quorum, entry = seen.lead.quorum, seen.plan.entry
    if entry is None:
        needed = quorum.needed if quorum else 1
        return needed, f"{remaining} votes without it, {needed} needed while its corosync is restarted"
    votes_of_others = sum(member.votes for member in seen.conf.others(seen.node.name))
    votes = votes_of_others + entry.votes
    needed = votes // 2 + 1
    return needed, f"{remaining} votes without it, {needed} of {votes} needed while it joins"


def _readiness(seen: Situation, ready: Readiness) -> list[Proof]:
    """What ``pvecm add`` needs: ssh that asks nothing, programs, and to be run outside of /etc/pve."""
    node, lead = seen.node.name, seen.lead
    missing = ", ".join(ready.missing)
    programs = f"missing: {missing}" if missing else "rsync, too"
    logs_in = "it logs in without a question"
    back = logs_in
    if ready.ssh_back:
        back = f"not yet: {ready.ssh_back.splitlines()[-1]} (it need not: the join renews keys and host keys)"
    keys = "\n".join(ready.fingerprints)
    advice = (
        f"pvecm add asks nobody. On {node}: ssh-copy-id root@{lead_address(lead, seen.conf)} puts its key there, and "
        f"asks about the lead's host key. {lead.name} itself says of its keys:\n{keys}"
    )
    return [
        Proof(f"ssh from {node} to {lead.name}", not ready.ssh, ready.ssh or logs_in, advice),
        Proof(f"ssh from {lead.name} to {node}", True, back, is_note=bool(ready.ssh_back)),
        Proof("programs", not missing, programs, f"Install {missing}."),
        Proof("working directory", True, "pvecm is run from /tmp, not from /etc/pve"),
    ]
