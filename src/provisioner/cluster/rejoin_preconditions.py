"""The preconditions of bringing a node back into its cluster: each proof with what was seen. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from provisioner.cluster.diagnosis import CLOCK_SKEW_LIMIT_S
from provisioner.cluster.facts import ClusterFacts, CorosyncConf, Guest, Member, NodeFacts, Silent, named
from provisioner.cluster.node_conditions import put_name_back
from provisioner.cluster.record import Record
from provisioner.cluster.rejoin_plan import Kind, RejoinPlan, lead_address, node_address, own_entry
from provisioner.cluster.view import (
    has_newer_pve,
    is_running,
    list_faults,
    named_otherwise,
    pve_age_words,
    setting_differences,
)
from provisioner.cluster.votes import expected_votes, is_two_node, needed_by, votes_without
from provisioner.values.errors import InputError, PreflightError, UnavailableError
from provisioner.values.refusals import did_you_mean

RECORDS = "~/.local/state/provisioner/clusters"
"""Where repairs are kept unless XDG_STATE_HOME says otherwise, for people."""
FAILED = "it failed without a word"
WHAT = "Unable to rejoin"


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
class Readiness:
    """``missing``: programs that the node lacks. ``ssh``: what ssh from the node to the lead said, empty when it works.

    ``ssh_back``: the same from the lead to the node. ``root_login``: the line of the node's ``sshd_config`` that says
    whether root may log in, as it is now; empty without one. ``fingerprints``: the lead's host keys, told by itself.
    """

    missing: tuple[str, ...] = ()
    ssh: str = ""
    ssh_back: str = ""
    root_login: str = ""
    fingerprints: tuple[str, ...] = ()

    @property
    def keeps_root_login(self) -> bool:
        """True when ``pvecm add`` finds what it wants there, and writes nothing."""
        return lets_root_in(self.root_login)


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
    proofs = [
        _quorum(seen),
        _valid_list(seen),
        _agreement(seen),
        _ha(seen),
        _guests(seen),
        _pmxcfs(seen),
        _clock(seen),
        _alone(seen),
    ]
    if seen.plan.kind is Kind.LIGHT:
        # the node would hear the others, and its /etc/pve replaces nothing
        proofs += [_running_list(seen), _hears(seen), _is_older(seen)]
        if seen.plan.restarts == "corosync":
            proofs.append(_majority(seen))
    elif seen.plan.kind is Kind.FORCED and not seen.plan.is_joined:
        proofs += [_addresses(seen), _majority(seen), *_readiness(seen, seen.ready or Readiness())]
    return tuple(proof for proof in proofs if proof is not None)


def _quorum(seen: Situation) -> Proof:
    lead = seen.lead
    advice = "See: provision runbook show lost-quorum"
    return Proof("quorum", lead.is_quorate, f"{lead.name}: {quorum_words(lead)}", advice)


def _valid_list(seen: Situation) -> Proof | None:
    """A list with which corosync does not start must not be given to another node."""
    faults = "; ".join(list_faults(seen.conf))
    if not faults:
        return None
    return Proof("the cluster's list is valid", False, faults, "Correct it first, see: provision cluster check")


def _running_list(seen: Situation) -> Proof | None:
    """A corosync that runs, and was not read, may be a member like the others, which a restart would cut off."""
    if not is_running(seen.node) or seen.node.running_version is not None:
        return None
    advice = "Run this again; on it: corosync-cmapctl runtime.config"
    return Proof("its corosync says with which list it runs", False, "it was not read", advice)


def _agreement(seen: Situation) -> Proof:
    """Prove that the other quorate nodes run with the lead's list: a change of it may be on its way."""
    versions = dict[str, int | None]()
    for node in seen.facts.nodes:
        if node.is_quorate and node.name != seen.node.name:
            versions[node.name] = node.running_version
    words = ", ".join(f"{name} {version}" for name, version in versions.items())
    holds = set(versions.values()) == {seen.conf.version}
    advice = "A change is on its way, or it went wrong. Wait a little, then: provision cluster check"
    return Proof("one list among the others", holds, f"version {seen.conf.version}; running: {words}", advice)


def _ha(seen: Situation) -> Proof:
    """Prove that HA leaves all services where they are: it fences a node that loses quorum while it works."""
    ha = seen.lead.ha
    if ha is None:
        why = seen.lead.unread.get("ha", "it was not told")
        return Proof("HA is idle", False, f"not known: {why}", f"On {seen.lead.name}: ha-manager status")
    words = "; ".join(ha.lines) or "no service is managed"
    return Proof("HA is idle", ha.is_idle, words, ha.advice)


def _guests(seen: Situation) -> Proof:
    """Prove that the cluster has every guest that the node has, but for those that the user gives up."""
    node, lead = seen.node, seen.lead
    unread = _unread_guests(seen)
    if unread:
        return Proof("no guest is lost", False, f"not known: {'; '.join(unread)}", "Repair pmxcfs there first.")
    own = node.guests.get(node.name, ())
    judged = judge_guests((*own, *seen.saved), lead, node.name)
    bad = blocking(judged, seen.given_up)
    changing = [guest for guest in judged if guest.fate is not Fate.KEPT]
    source = "its own /etc/pve and the backup" if seen.saved else "its own /etc/pve"
    evidence = [f"{len(judged)} in {source}, compared with the cluster's .vmlist"]
    evidence += [guest_words(guest) for guest in bad or changing]
    return Proof("no guest is lost", not bad, "\n".join(evidence), _guests_advice(seen, bad))


def _unread_guests(seen: Situation) -> list[str]:
    """Return why the guests of the lead or the node are not known; the node need not say what a backup of it says."""
    asked = (seen.lead,) if seen.saved else (seen.lead, seen.node)
    reasons = list[str]()
    for node in asked:
        for part in ("guests", "vmlist"):
            if part in node.unread:
                reasons.append(f"{node.name}: {node.unread[part]}")
    return reasons


def _guests_advice(seen: Situation, bad: Sequence[Judged]) -> str:
    """Return what to do about the guests for which the rejoin is refused; empty without any."""
    if not bad:
        return ""
    address = node_address(seen.node, seen.lead, seen.conf)
    lines = [recovery_words(guest, seen.node.name, seen.lead.name, address) for guest in bad]
    options = " ".join(f"--give-up {judged.guest.vmid}" for judged in bad)
    lines.append(f"To lose the node's configurations of them (the backup keeps them): {options}")
    return "\n".join(lines)


def _pmxcfs(seen: Situation) -> Proof | None:
    """Prove that pmxcfs runs on the node: without it the node's own /etc/pve cannot be read."""
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
    """Prove that repairs of other nodes came to their end: two at once could cost the cluster its quorum."""
    others = sorted({record.node for record in seen.open_runs})
    if not others:
        return Proof("no other repair", True, "none of another node is unfinished")
    first = "; ".join(f"provision cluster rejoin {name}" for name in others)
    advice = f"One after the other. First: {first}. Where that is given up, move its record away: {RECORDS}"
    return Proof("no other repair", False, f"{', '.join(others)}: unfinished", advice)


def _hears(seen: Situation) -> Proof | None:
    """A node that runs with the current list and still has not joined does not hear the others."""
    node = seen.node
    has_other_list = node.running_version != seen.conf.version or setting_differences(node.local_conf, seen.conf)
    if seen.plan.resumes or has_other_list:
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
    """Prove that the node has an address for each link, and no other node has it."""
    addresses = seen.plan.entry.addresses if seen.plan.entry else ()
    others = seen.conf.others(seen.node.name)
    taken = _taken(addresses, others)
    if taken:
        return Proof("its addresses are its own", False, "; ".join(taken), "Give the node another address.")
    links = len(others[0].addresses) if others else 1
    has_all = bool(addresses) and len(addresses) == links
    advice = f"The cluster has {links} link(s). Give the node the addresses that its /etc/corosync/corosync.conf says."
    words = ", ".join(f"link{number} {address}" for number, address in enumerate(addresses))
    return Proof("an address for each link", has_all, words or "none that it has", advice)


def _taken(addresses: Sequence[str], others: Sequence[Member]) -> list[str]:
    """Return which of the addresses the cluster's list has for another node."""
    taken = list[str]()
    for member in others:
        for address in addresses:
            if address in member.addresses:
                taken.append(f"{address} is {member.name}'s")
    return taken


def _majority(seen: Situation) -> Proof:
    """Prove that the others are still quorate while the node's corosync is stopped, and its own votes with it."""
    member = seen.conf.member(seen.node.name)
    without = (member.nodeid,) if member else ()
    remaining, needed, words = _votes_meanwhile(seen, without)
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


def _votes_meanwhile(seen: Situation, without: tuple[int, ...]) -> tuple[int, int, str]:
    """The votes of the others while the node is not there, those that they need, and both in words.

    A forced rejoin makes them read a new list, with the node in it.
    """
    quorum, entry = seen.lead.quorum, seen.plan.entry
    if quorum is None:
        return 0, 1, f"{quorum_words(seen.lead)} on {seen.lead.name}"
    remaining = votes_without(quorum, without)
    if entry is None:
        words = f"{remaining} votes without it, {quorum.needed} needed while its corosync is restarted"
        return remaining, quorum.needed, words
    joining = Member(seen.node.name, entry.nodeid or 0, entry.votes, entry.addresses)
    conf = replace(seen.conf, members=(*seen.conf.others(seen.node.name), joining))
    needed = needed_by(conf, quorum, without)
    words = f"{remaining} votes without it, {needed} of {expected_votes(conf)} needed while it joins"
    if is_two_node(conf):
        words += " (two_node: one of two is enough)"
    return remaining, needed, words


def _readiness(seen: Situation, ready: Readiness) -> list[Proof]:
    """Return what ``pvecm add`` needs: ssh that asks nothing, programs, and to be run outside of /etc/pve."""
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


class Fate(StrEnum):
    """The fates of a guest that the node has."""

    KEPT = "kept"
    CHANGED = "changed"
    """The cluster has its configuration, too, and another one: the cluster's counts."""
    MOVED = "moved"
    """The same guest is on another node now, with the same disks: they are shared."""
    LOST = "lost"
    """Only the node has its configuration."""
    CONFLICT = "conflict"
    """The cluster has another guest with this VMID, or the same one with other disks: two would share their names."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A guest of the node, where the cluster has its VMID (empty: nowhere), and of a conflict what differs.

    ``loose``: its disks that no configuration of the cluster's on this node would name any more.
    """

    guest: Guest
    fate: Fate
    owner: str = ""
    why: str = ""
    loose: tuple[str, ...] = ()


def judge_guests(own: Iterable[Guest], lead: NodeFacts, node: str) -> tuple[Judged, ...]:
    """Every guest of ``node`` (as it has them itself) with what a rejoin would do to it, by VMID.

    After a rejoin the cluster's ``/etc/pve`` counts: a configuration that only the node has is gone, its disks are not.
    """
    by_id = dict[int, Guest]()
    for guests in lead.guests.values():
        for guest in guests:
            by_id[guest.vmid] = guest
    ordered = sorted(set(own), key=lambda guest: (guest.vmid, guest.kind))
    return tuple(_judged(guest, lead, by_id, node) for guest in ordered)


def blocking(judged: Iterable[Judged], given_up: Collection[int]) -> tuple[Judged, ...]:
    """Those for which a rejoin is refused, unless the user has given the node's configuration of them up."""
    refusals = list[Judged]()
    for judgement in judged:
        is_bad = judgement.fate in (Fate.LOST, Fate.CONFLICT)
        if is_bad and judgement.guest.vmid not in given_up:
            refusals.append(judgement)
    return tuple(refusals)


def guest_words(judged: Judged) -> str:
    """One guest and its fate, in a line."""
    guest = judged.guest
    kind_and_name = f"{guest.kind} {guest.name}".rstrip()
    fates = {
        Fate.KEPT: "the cluster has it on this node, too",
        Fate.CHANGED: "the cluster's configuration of it differs, and will be the one that counts",
        Fate.MOVED: f"the same guest is on {judged.owner} now; its configuration there counts",
        Fate.LOST: "only this node has its configuration",
        Fate.CONFLICT: judged.why,
    }
    return f"{guest.vmid} ({kind_and_name}): {fates[judged.fate]}"


def recovery_words(judged: Judged, node: str, lead: str, address: str) -> str:
    """Return what to do about a guest for which a rejoin is refused, in commands; VMIDs are numbers, names are names.

    ``address``: where ``lead`` reaches ``node``; its name may lead nowhere there.
    """
    guest = judged.guest
    folder = "lxc" if guest.kind == "lxc" else "qemu-server"
    file = f"/etc/pve/nodes/{node}/{folder}/{guest.vmid}.conf"
    if judged.fate is Fate.LOST:
        host = f"[{address}]" if ":" in address else address
        return f"{guest.vmid}: to keep it, give the cluster its configuration. On {lead}: scp root@{host}:{file} {file}"
    if judged.loose:
        return (
            f"{guest.vmid}: to keep {', '.join(judged.loose)}, name them in the cluster's configuration of the guest. "
            f"On {lead}: {file}. To lose track of them: --give-up {guest.vmid}"
        )
    disks = ", ".join(guest.volumes) or "none"
    return (
        f"{guest.vmid}: to keep it, give it a free VMID (on {lead}: pvesh get /cluster/nextid). Rename its disks on "
        f"{node} ({disks}), write its configuration with their new names to /etc/pve/nodes/{node}/{folder}/NEW.conf on "
        f"{lead}, and give the old one up: --give-up {guest.vmid}"
    )


def _judged(guest: Guest, lead: NodeFacts, by_id: Mapping[int, Guest], node: str) -> Judged:
    """Return what a rejoin would do to one guest, by the node on which the cluster has its VMID."""
    owner = lead.vmlist.get(guest.vmid, "")
    if not owner:
        return Judged(guest, Fate.LOST)
    there = by_id.get(guest.vmid)
    if there is None:
        why = f"the cluster has a guest with this VMID on {owner}, and what it is could not be read"
        return Judged(guest, Fate.CONFLICT, owner, why)
    if owner == node:
        return _at_home(guest, there, owner)
    return _elsewhere(guest, there, owner, lead)


def _at_home(guest: Guest, there: Guest, owner: str) -> Judged:
    """The cluster has the VMID on this node, too: the same guest, unless its kind or its disks say otherwise."""
    if there.kind != guest.kind:
        return Judged(guest, Fate.CONFLICT, owner, f"the cluster has a {there.kind} guest with this VMID on {owner}")
    loose = tuple(volume for volume in guest.volumes if volume not in there.volumes)
    if loose:
        why = f"the cluster's configuration of it does not have {', '.join(loose)}"
        return Judged(guest, Fate.CONFLICT, owner, why, loose)
    fate = Fate.KEPT if there.digest == guest.digest else Fate.CHANGED
    return Judged(guest, fate, owner)


def _elsewhere(guest: Guest, there: Guest, owner: str, lead: NodeFacts) -> Judged:
    """The cluster has the VMID on another node: the guest has moved there, if all its disks could move along."""
    if not _is_same_guest(guest, there):
        return Judged(guest, Fate.CONFLICT, owner, f"the cluster has another guest with this VMID on {owner}")
    shared = {storage.name for storage in lead.storages if storage.is_shared}
    local = list[str]()
    for volume in guest.volumes:
        is_own = volume.startswith("/")  # a device or folder of the node's own
        if is_own or volume.partition(":")[0] not in shared:
            local.append(volume)
    if local:
        why = f"the cluster has it on {owner}, and {', '.join(local)} is on no shared storage: there are two of it now"
        return Judged(guest, Fate.CONFLICT, owner, why)
    return Judged(guest, Fate.MOVED, owner)


def _is_same_guest(guest: Guest, other: Guest) -> bool:
    """By kind and name and disks: its other settings may have changed since it moved."""
    if (guest.kind, guest.name) != (other.kind, other.name):
        return False
    return sorted(guest.volumes) == sorted(other.volumes)


def lets_root_in(line: str) -> bool:
    """Return whether it is the line that ``pvecm add`` writes into ``sshd_config``."""
    return bool(re.fullmatch(r"PermitRootLogin\s+yes\s*", line))


def root_login_in(sshd_config: str) -> str:
    """The line of that file which says whether root may log in; empty without one."""
    found = re.search(r"^PermitRootLogin.*$", sshd_config, re.MULTILINE)
    return found[0].strip() if found else ""


def missing_programs(text: str) -> tuple[str, ...]:
    """The programs that the script did not find."""
    return tuple(_told("missing", text))


def ssh_refusal(text: str) -> str:
    """Return what ssh said when it could not log in to the other node without a question; empty when it could."""
    return "" if "\nssh: ok\n" in f"\n{text}\n" else "\n".join(_told("ssh", text)).strip() or FAILED


def root_login(text: str) -> str:
    """The line of ``sshd_config``."""
    return next(iter(_told("root-login", text)), "")


def fingerprints(text: str) -> tuple[str, ...]:
    """The host's own keys, as ``ssh-keygen -l`` prints them."""
    return tuple(_told("host-key", text))


def _told(name: str, text: str) -> list[str]:
    return re.findall(rf"^{name}: (.*?)\r?$", text, re.MULTILINE)  # ssh's own lines end in CRLF


def require_lead(facts: ClusterFacts) -> tuple[NodeFacts, CorosyncConf]:
    """The quorate node whose word counts, and its list; ``PreflightError``: no cluster, or none that has quorum."""
    if not any(node.files or node.peers for node in facts.nodes):
        raise PreflightError(
            f"{WHAT} anything: {facts.asked} is not in a cluster",
            details="It has no corosync.conf, so no node can be missing from it.",
            resolution="Name a node of the cluster as HOST.",
        )
    lead = facts.lead
    if lead is None or lead.pve_conf is None:
        raise _no_quorum(facts)
    return lead, lead.pve_conf


def _no_quorum(facts: ClusterFacts) -> PreflightError:
    """The error for a cluster in which no node that answers has quorum."""
    words = [f"{node.name}: {quorum_words(node)}" for node in facts.nodes]
    words += [f"{silent.name}: {silent.why}" for silent in facts.silent]
    resolution = "Nothing can be changed in a cluster without quorum. See: provision runbook show lost-quorum"
    asked = facts.node(facts.asked)
    if asked is None or asked.quorum is None:
        resolution += "   or ask a healthy node: HOST"
    return PreflightError(
        f"{WHAT} anything: no node that answers has quorum", details="; ".join(words), resolution=resolution
    )


def require_node(facts: ClusterFacts, word: str) -> NodeFacts:
    """The node of that name, which answers; an error that says what the word is, else."""
    lead, conf = require_lead(facts)
    _require_one_state(word, lead, conf)
    for node in facts.nodes:
        if word in (node.name, node.hostname):
            _require_own_name(node, conf)
            return node
    name = _name_at(facts, conf, word)
    if name:
        raise InputError(f"{WHAT} {word}: that is an address", resolution=f"Name the node: {name}.")
    silent = facts.silence(word)
    if silent is not None:
        raise _silence(silent)
    if word in lead.guests:
        raise PreflightError(
            f"{WHAT} {word}: no machine of that name answers, and the cluster's list does not have it",
            details=f"Of it there is only the folder /etc/pve/nodes/{word} on {lead.name}.",
            resolution=f"If it runs somewhere, ask it itself: provision cluster rejoin {word} root@ITS-ADDRESS. "
            f"If it is gone for good: provision cluster forget {word}",
        )
    raise _unknown(word, facts, conf)


def _require_own_name(node: NodeFacts, conf: CorosyncConf) -> None:
    """Raise ``PreflightError`` for a member by id and addresses that has another name: a join would make it two."""
    if node.hostname:
        raise PreflightError(
            f"{WHAT} {node.hostname}: the host name of {node.name} was changed to {node.hostname}",
            details=f"It is the member {node.name} by its id and address, and its guests belong to that name.",
            resolution=put_name_back(node),
        )
    other = named_otherwise(node, own_entry(node), conf.members)
    if other is not None:
        raise PreflightError(
            f"{WHAT} {node.name}: the cluster's list has its id and addresses as {other.name}",
            details=f"Its own list has {node.name}, with id {other.nodeid} at {', '.join(other.addresses)}.",
            resolution="Decide for one name first, see: provision cluster check",
        )


def _silence(silent: Silent) -> UnavailableError:
    """The error for a node that does not answer, or not with the host key that is known."""
    if silent.key_advice:
        return UnavailableError(
            f"{WHAT} {silent.name}: it answers with another host key than the one that is known here",
            details=f"{silent.address}: {silent.why}",
            resolution=silent.key_advice,
        )
    return UnavailableError(
        f"{WHAT} {silent.name}: it does not answer",
        details=f"{silent.address}: {silent.why}" if silent.address else silent.why,
        resolution="Is it switched on? First see: provision runbook show power-on-check. If its address changed, "
        f"ask it itself: provision cluster rejoin {silent.name} root@ITS-ADDRESS",
    )


def _unknown(word: str, facts: ClusterFacts, conf: CorosyncConf) -> InputError:
    """The error for a word that is no node's name, with the names that there are and the nearest of them."""
    nodes: list[NodeFacts | Silent | Member] = [*facts.nodes, *facts.silent, *conf.members]
    known = sorted({node.name for node in nodes})
    suggestion = did_you_mean(word, known)
    return InputError(
        f"{WHAT} {word}: no node has that name",
        details=f"Known nodes: {', '.join(known)}",
        resolution=f"D{suggestion[1:]}" if suggestion.startswith("did") else "Name one of them.",
    )


def require_other(node: NodeFacts, facts: ClusterFacts) -> None:
    """Raise ``PreflightError`` for the node that was asked when it is quorate: by its own word it is not stale."""
    if node.name == facts.asked and node.is_quorate:
        raise PreflightError(
            f"{WHAT} {node.name}: it is the node that was asked, and it has quorum",
            details=quorum_words(node),
            resolution="Name the node that is stale. To have this one judged, ask another: HOST.",
        )


def quorum_words(node: NodeFacts) -> str:
    """Its quorum in a few words, counted in votes."""
    if node.quorum is None:
        return "corosync does not run"
    word = "quorate" if node.quorum.is_quorate else "no quorum"
    return f"{word}, {node.quorum.total} of {node.quorum.expected} votes, {node.quorum.needed} needed"


def _require_one_state(name: str, lead: NodeFacts, conf: CorosyncConf) -> None:
    """Raise ``PreflightError`` for a name that is a member by one of the lead's lists and none by another."""
    lists = {"/etc/pve/corosync.conf": conf.members}
    if lead.local_conf:
        lists["/etc/corosync/corosync.conf"] = lead.local_conf.members
    if lead.running:
        lists["the running corosync"] = lead.running
    having, lacking = list[str](), list[str]()
    for place, members in lists.items():
        if named(members, name) is None:
            lacking.append(place)
        else:
            having.append(place)
    if having and lacking:
        raise PreflightError(
            f"{WHAT} {name}: it is a member and it is none",
            details=f"On {lead.name} it is in {', '.join(having)}, and not in {', '.join(lacking)}.",
            resolution=f"Somebody changes the list now, or a change went wrong. On {lead.name}: corosync-cfgtool -R "
            "makes corosync read its list again; then provision cluster check.",
        )


def _name_at(facts: ClusterFacts, conf: CorosyncConf, address: str) -> str:
    """The name of the node that has the address; empty where none has."""
    for node in facts.nodes:
        if address in node.all_addresses:
            return node.name
    for member in conf.members:
        if address in member.addresses:
            return member.name
    for silent in facts.silent:
        if silent.address == address:
            return silent.name
    return ""
