"""Forgetting a node: look, decide, save, run the runbooks one after the other, look again."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from provisioner.cluster import backup, evidence, runs
from provisioner.cluster.gather import gather
from provisioner.cluster.reaching import Reach
from provisioner.cluster.turn import cluster_turn
from provisioner.repair.corosync_conf import read_corosync_conf
from provisioner.repair.diagnosis import diagnose
from provisioner.repair.facts import ClusterFacts, Guest
from provisioner.repair.forgetting import Forgetting, Wish, lead_of, member_of, target_of
from provisioner.repair.leftovers import Leftovers, Reference
from provisioner.repair.objections import make_forgetting
from provisioner.repair.whereabouts import whereabouts
from provisioner.values.errors import PreflightError, ProviderError, VerificationError
from provisioner.values.events import ApplyProgress, Event
from provisioner.values.plain_data import Foreign
from provisioner.values.regular_files import text_of
from provisioner.workflow.repairing import Hands, Where, begin, carry_out, finish

if TYPE_CHECKING:
    from provisioner.cluster.runs import Run
    from provisioner.providers.proxmox.shell import Shell

FOLDERS = {"lxc": "lxc", "qemu": "qemu-server"}
"""By kind of guest, where in a node's directory its configuration is."""
OURS = ("retired-node", "ghost-node", "removed-node-leftovers")
ARCHIVE = "guests"
READ_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What was looked at: the facts, the decision, and how the lead is reached."""

    facts: ClusterFacts
    forgetting: Forgetting
    lead: Reach


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done: the runs, and what names the node and was left for a person."""

    runs: tuple[Run, ...]
    references: tuple[Reference, ...]


def look(asked: Reach, wish: Wish, emit: Callable[[Event], None]) -> Seen:
    """What there is to know and to decide; nothing is changed. Raises what ``target_of`` and ``make_forgetting`` do."""
    facts = gather(asked, emit)
    lead = lead_of(facts)
    reach = asked if lead.name == facts.asked else asked.at(lead.address, lead.name)
    addresses = _addresses(facts, wish.node)
    emit(ApplyProgress(lead.name, f"look for what names {wish.node}"))
    found = evidence.leftovers(reach.shell, wish.node, addresses) if is_name(wish.node) else Leftovers()
    target = target_of(facts, wish.node, found, _forgotten(_cluster(facts)))
    told = evidence.addresses(reach.shell, target.name) if is_name(target.name) else ()
    tried = whereabouts(facts, target, (*addresses, *told))
    if tried:
        emit(ApplyProgress(lead.name, f"try whether {wish.node} answers"))
    signs = evidence.signs_of_life(reach.shell, tried)
    return Seen(facts, make_forgetting(facts, target, wish, found, signs), reach)


def is_name(text: str) -> bool:
    """Whether it could be the name of a node: nothing else is handed to a program on a node."""
    return re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?", text) is not None


def refuse(forgetting: Forgetting) -> None:
    """Raise ``PreflightError`` with all objections, if there are any."""
    if forgetting.objections:
        raise PreflightError(
            f"Unable to forget {forgetting.target.name}",
            details="\n".join(forgetting.objections),
            resolution="Nothing was touched. Deal with each of them, then run the same command again.",
        )


def forget(asked: Reach, first: ClusterFacts, wish: Wish, hands: Hands) -> Outcome:
    """Do it, from a look of its own once nobody else repairs the cluster; ``VerificationError``: something is left.

    ``first``: what was seen before, which tells on which nodes the turn is taken.
    """
    with cluster_turn(asked, first, f"forget {wish.node}, since {runs.now()}", without=wish.node):
        seen = look(asked, wish, hands.emit)
        refuse(seen.forgetting)
        where = Where(_cluster(seen.facts), wish.node, seen.forgetting.lead, seen.lead.shell)
        done = tuple(_runs(seen, where, hands))
        facts = gather(asked, hands.emit)
        if done:
            finish(done[-1], tuple(diagnose(facts)))
        return Outcome(done, _checked(facts, seen))


def _runs(seen: Seen, where: Where, hands: Hands) -> Iterator[Run]:
    """Each runbook in its turn; what was saved before the first is the backup of all."""
    saved = ""
    for runbook in seen.forgetting.runbooks:
        run = begin(runbook, where, tuple(diagnose(seen.facts)))
        if not saved:
            hands.emit(ApplyProgress(where.node, f"save the cluster's files of {where.lead}"))
            saved = str(backup.save(where.shell, run))
        run = runs.write(run, replace(run.record, backup=saved))
        yield carry_out(run, where, _plan(runbook, seen, where, run), hands)


def _plan(runbook: str, seen: Seen, where: Where, run: Run) -> dict[str, Any]:
    """What the playbook gets."""
    forgetting = seen.forgetting
    target = forgetting.target
    if runbook == "retired-node":
        return {"nodeid": target.nodeid, "off_for_good": target.name}
    if runbook == "ghost-node":
        moved = [one for one in forgetting.guests if one.to]
        kept = [one.guest for one in forgetting.guests if one.is_archived]
        return {
            "moves": [{"kind": FOLDERS[one.guest.kind], "vmid": one.guest.vmid, "to": one.to} for one in moved],
            "archived": [_archive(one, where.shell, run) for one in kept],
        }
    changes = [{"storage": one.storage, "nodes": list(one.nodes)} for one in forgetting.storages]
    return {"addresses": list(_addresses(seen.facts, target.name)), "storages": changes}


def _archive(guest: Guest, shell: Shell, run: Run) -> dict[str, Any]:
    """Keep a guest's configuration in the run's folder (0600), on disk when this returns; what the playbook needs."""
    file = f"/etc/pve/nodes/{guest.node}/{FOLDERS[guest.kind]}/{guest.vmid}.conf"
    done = shell.run(["cat", "--", file], timeout_s=READ_TIMEOUT_S)
    if done.returncode:
        raise ProviderError(f"Unable to archive {file}", details=Foreign.of_output(done.stderr))
    folder = run.folder / ARCHIVE / FOLDERS[guest.kind]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = os.open(folder / f"{guest.vmid}.conf", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(target, "wb") as stream:
        stream.write(done.stdout)
        stream.flush()
        os.fsync(stream.fileno())
    return {"kind": FOLDERS[guest.kind], "vmid": guest.vmid, "digest": hashlib.sha256(done.stdout).hexdigest()}


def _checked(facts: ClusterFacts, seen: Seen) -> tuple[Reference, ...]:
    """What a person has still to decide, once nothing else is left; ``VerificationError`` else."""
    name = seen.forgetting.target.name
    lead = lead_of(facts)
    found = evidence.leftovers(seen.lead.shell, name, _addresses(seen.facts, name))
    left = [
        *([f"{name} is still a member."] if member_of(facts, name) else []),
        *([f"/etc/pve/nodes/{name} is still there."] if name in lead.guests else []),
        *(f".vmlist has guest {vmid} on {name}." for vmid, node in lead.vmlist.items() if node == name),
        *([f"/etc/pve/priv still names {name}."] if not found.is_clean else []),
    ]
    if left:
        raise VerificationError(
            f"Unable to say that {name} is forgotten",
            details="\n".join(left),
            resolution="Run the same command again, and look with: provision cluster check",
        )
    return found.references


def _cluster(facts: ClusterFacts) -> str:
    conf = lead_of(facts).pve_conf
    return conf.cluster if conf else ""


def _addresses(facts: ClusterFacts, name: str) -> tuple[str, ...]:
    """A member's addresses, else those it had when it was one; none that another member has now."""
    member = member_of(facts, name)
    if member is not None:
        return member.addresses
    conf = lead_of(facts).pve_conf
    taken = {address for one in (conf.members if conf else ()) for address in one.addresses}
    return tuple(one for one in _former_addresses(_cluster(facts), name) if one not in taken)


def _former_addresses(cluster: str, name: str) -> Sequence[str]:
    for run in reversed(runs.runs(cluster)):
        file = run.backup / "corosync.conf"
        if run.record.node == name and run.record.runbook == "retired-node" and file.is_file():
            member = read_corosync_conf(text_of(file)).member(name)
            return member.addresses if member else ()
    return ()


def _forgotten(cluster: str) -> frozenset[str]:
    return frozenset(one.record.node for one in runs.runs(cluster) if one.record.runbook in OURS)
