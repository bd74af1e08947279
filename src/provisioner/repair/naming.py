"""Which node of a cluster a word of the command line names, and why it may name none. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from provisioner.errors import InputError, PreflightError, UnavailableError
from provisioner.repair.facts import ClusterFacts, CorosyncConf, Member, NodeFacts, Silent
from provisioner.spec.suggestion import did_you_mean

WHAT = "Unable to rejoin"


def require_lead(facts: ClusterFacts) -> tuple[NodeFacts, CorosyncConf]:
    """The quorate node whose word counts, and its list; ``PreflightError``: no cluster, or none that has quorum."""
    asked = facts.node(facts.asked)
    if not any(one.local_conf or one.pve_conf or (one.pmxcfs and one.pmxcfs.peers) for one in facts.nodes):
        raise PreflightError(
            f"{WHAT} anything: {facts.asked} is not in a cluster",
            details="It has no corosync.conf, so no node can be missing from it.",
            resolution="Name a node of the cluster as HOST.",
        )
    lead = facts.lead
    conf = lead.pve_conf if lead else None
    if lead is None or conf is None:
        seen = "; ".join(f"{one.name}: {quorum_words(one)}" for one in facts.nodes)
        silent = "".join(f"; {one.name}: {one.why}" for one in facts.silent)
        raise PreflightError(
            f"{WHAT} anything: no node that answers has quorum",
            details=seen + silent,
            resolution="Nothing can be changed in a cluster without quorum. See: provision runbook show lost-quorum"
            + ("" if asked and asked.quorum else "   or ask a healthy node: HOST"),
        )
    return lead, conf


def require_node(facts: ClusterFacts, word: str) -> NodeFacts:
    """The node of that name, which answers; an error that says what the word is, else."""
    lead, conf = require_lead(facts)
    _require_one_state(word, lead, conf)
    found = facts.node(word)
    if found is not None:
        return found
    if name := _name_at(facts, conf, word):
        raise InputError(f"{WHAT} {word}: that is an address", resolution=f"Name the node: {name}.")
    silent = next((one for one in facts.silent if one.name == word), None)
    if silent is not None:
        raise UnavailableError(
            f"{WHAT} {word}: it does not answer",
            details=f"{silent.address}: {silent.why}" if silent.address else silent.why,
            resolution="Is it switched on? First see: provision runbook show power-on-check. If its address changed, "
            f"ask it itself: provision cluster rejoin {word} root@ITS-ADDRESS",
        )
    if word in lead.guests:
        raise PreflightError(
            f"{WHAT} {word}: no machine of that name answers, and the cluster's list does not have it",
            details=f"Of it there is only the folder /etc/pve/nodes/{word} on {lead.name}.",
            resolution=f"If it runs somewhere, ask it itself: provision cluster rejoin {word} root@ITS-ADDRESS. "
            f"If it is gone for good: provision cluster forget {word}",
        )
    lists: tuple[Iterable[NodeFacts | Silent | Member], ...] = (facts.nodes, facts.silent, conf.members)
    known = sorted({one.name for some in lists for one in some})
    suggestion = did_you_mean(word, known)
    raise InputError(
        f"{WHAT} {word}: no node has that name",
        details=f"Known nodes: {', '.join(known)}",
        resolution=f"D{suggestion[1:]}" if suggestion.startswith("did") else "Name one of them.",
    )


def require_other(node: NodeFacts, facts: ClusterFacts) -> None:
    """Raise ``PreflightError`` for the node that was asked when it is quorate: by its own word it is not stale."""
    if node.name == facts.asked and node.quorum is not None and node.quorum.is_quorate:
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
    lists = {"/etc/pve/corosync.conf": {one.name for one in conf.members}}
    if lead.local_conf:
        lists["/etc/corosync/corosync.conf"] = {one.name for one in lead.local_conf.members}
    if lead.running:
        lists["the running corosync"] = {one.name for one in lead.running}
    having = [where for where, names in lists.items() if name in names]
    if having and len(having) < len(lists):
        without = [where for where in lists if where not in having]
        raise PreflightError(
            f"{WHAT} {name}: it is a member and it is none",
            details=f"On {lead.name} it is in {', '.join(having)}, and not in {', '.join(without)}.",
            resolution=f"Somebody changes the list now, or a change went wrong. On {lead.name}: corosync-cfgtool -R "
            "makes corosync read its list again; then provision cluster check.",
        )


def _name_at(facts: ClusterFacts, conf: CorosyncConf, word: str) -> str:
    for one in facts.nodes:
        if word == one.address or word in one.addresses:
            return one.name
    names = [one.name for one in conf.members if word in one.addresses]
    return next(iter([*names, *(one.name for one in facts.silent if one.address == word)]), "")
