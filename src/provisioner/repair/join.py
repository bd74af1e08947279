"""What the playbooks of a rejoin get as ``repair_plan``, and the record keeps: what was proved and decided. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from provisioner.repair.refusals import Proof, Situation
from provisioner.repair.rejoining import Entry, lead_address


def playbook_plan(seen: Situation, proofs: Iterable[Proof], folder: str, *, restores_sshd: bool) -> dict[str, Any]:
    """The plan in JSON's types, no secret in it; ``folder``: where the node has its backup."""
    plan, entry = seen.plan, seen.plan.entry
    common = {
        "node": plan.node,
        "lead": plan.lead,
        "version": plan.version,
        "digest": plan.digest,
        "folder": folder,
        "nodes": nodes_after(seen),
        "is_joined": plan.is_joined,
        "restarts": plan.restarts,
        "reasons": list(plan.reasons),
        "proved": [{"what": proof.what, "seen": proof.seen} for proof in proofs],
    }
    if entry is None:
        return common
    return common | {
        "lead_address": lead_address(seen.lead, seen.conf),
        "nodeid": entry.nodeid,
        "votes": entry.votes,
        "addresses": list(entry.addresses),
        "join_options": join_options(entry),
        "forgets_address": entry.replaces,
        "restores_sshd": restores_sshd,
    }


def nodes_after(seen: Situation) -> int:
    """How many nodes the lead's partition has with this one."""
    member = seen.conf.member(seen.node.name)
    others = set(seen.lead.present)
    if member is not None:
        others.discard(member.nodeid)
    return len(others) + 1


def join_options(entry: Entry) -> list[str]:
    """The options of ``pvecm add``: over ssh, by force, with the votes, the id and the address of each link."""
    options = ["--use_ssh", "--force", "--votes", str(entry.votes)]
    if entry.nodeid is not None:
        options += ["--nodeid", str(entry.nodeid)]
    for number, address in enumerate(entry.addresses):
        options += [f"--link{number}", address]
    return options
