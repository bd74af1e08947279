"""Which node of a cluster a word of the command line names, and why it may name none. Pure."""

from __future__ import annotations

from provisioner.repair.facts import ClusterFacts, CorosyncConf, Member, NodeFacts, Silent
from provisioner.repair.view import member_in
from provisioner.values.errors import InputError, PreflightError, UnavailableError
from provisioner.values.refusals import did_you_mean

WHAT = "Unable to rejoin"


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
    node = facts.node(word)
    if node is not None:
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


def _silence(silent: Silent) -> UnavailableError:
    return UnavailableError(
        f"{WHAT} {silent.name}: it does not answer",
        details=f"{silent.address}: {silent.why}" if silent.address else silent.why,
        resolution="Is it switched on? First see: provision runbook show power-on-check. If its address changed, "
        f"ask it itself: provision cluster rejoin {silent.name} root@ITS-ADDRESS",
    )


def _unknown(word: str, facts: ClusterFacts, conf: CorosyncConf) -> InputError:
    """The error for a word that is no node's name, with the names that there are and the nearest of them."""
    named: list[NodeFacts | Silent | Member] = [*facts.nodes, *facts.silent, *conf.members]
    known = sorted({node.name for node in named})
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
        if member_in(members, name) is None:
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
