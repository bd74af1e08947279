"""``cluster forget``: observe, decide, save, run the runbooks one after the other, observe again; and its texts."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from provisioner.cluster import backup
from provisioner.cluster.diagnosis import diagnose
from provisioner.cluster.facts import ClusterFacts, Guest
from provisioner.cluster.forget_plan import (
    ForgetOptions,
    ForgetPlan,
    GuestFate,
    Kind,
    Leftovers,
    Reference,
    addresses_to_try,
    lead_of,
    leftovers_from,
    make_forget_plan,
    member_of,
    target_of,
)
from provisioner.cluster.gather import SIGNS_TIMEOUT_S, Reach, gather, script_answer, signs_of_life
from provisioner.cluster.read_corosync import read_corosync_conf
from provisioner.cluster.record import Run, all_runs, now, write_record
from provisioner.cluster.run import Effects, RepairTarget, begin_run, cluster_lock, finish_run, run_runbook
from provisioner.cluster.runbooks import Runbook
from provisioner.hosts.proxmox.ssh import Shell
from provisioner.report.style import PLAIN, Style, indent, safe_line
from provisioner.values.errors import PreflightError, ProviderError, VerificationError
from provisioner.values.events import ApplyProgress, Event
from provisioner.values.plain_data import Foreign
from provisioner.values.regular_files import text_of

FOLDERS = {"lxc": "lxc", "qemu": "qemu-server"}
"""By kind of guest, where in a node's directory its configuration is."""
OURS = ("retired-node", "ghost-node", "removed-node-leftovers")
ARCHIVE = "guests"
READ_TIMEOUT_S = 30.0
KINDS = {
    Kind.MEMBER: "a member that is to leave the cluster",
    Kind.GHOST: "no member; its directory is still in /etc/pve/nodes",
    Kind.REMOVED: "neither a member nor a directory in /etc/pve/nodes",
}
NOTHING_TO_DO = "Nothing to do: nothing of the node is left that this program removes."
NEVER_BOOT = (
    "Never boot the machine again in this network as it is: it would run on its own with old guests. "
    "Install it anew, or wipe its disks."
)
LEFTOVERS_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Observed:
    """The facts, the decision, and how the lead is reached."""

    facts: ClusterFacts
    plan: ForgetPlan
    lead: Reach


@dataclass(frozen=True, slots=True)
class Outcome:
    """The runs that were made, and what names the node and was left for a person."""

    runs: tuple[Run, ...]
    references: tuple[Reference, ...]


def observe(asked: Reach, options: ForgetOptions, emit: Callable[[Event], None]) -> Observed:
    """The facts and the decision; nothing is changed. Raises what ``target_of`` and ``make_forget_plan`` do."""
    facts = gather(asked, emit)
    lead = lead_of(facts)
    reach = asked.of(lead, facts)
    addresses = _known_addresses(facts, options.node)
    emit(ApplyProgress(lead.name, f"look for what names {options.node}"))
    found = _read_leftovers(reach.shell, options.node, addresses) if is_name(options.node) else Leftovers()
    forgotten = {run.record.node for run in all_runs(_cluster(facts)) if run.record.runbook in OURS}
    target = target_of(facts, options.node, found, forgotten)
    told = list[str]()
    if is_name(target.name):  # the addresses of its name and in its certificate, as the lead has them
        told = script_answer(reach.shell, "sh", "addresses.sh", (target.name,), SIGNS_TIMEOUT_S).split()
    tried = addresses_to_try(facts, target, (*addresses, *told))
    if tried:
        emit(ApplyProgress(lead.name, f"try whether {options.node} answers"))
    signs = signs_of_life(reach.shell, tried)
    return Observed(facts, make_forget_plan(facts, target, options, found, signs), reach)


def is_name(text: str) -> bool:
    """Return whether it could be the name of a node: nothing else is handed to a program on a node."""
    return re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?", text) is not None


def require_preconditions(plan: ForgetPlan) -> None:
    """Raise ``PreflightError`` with all objections, if there are any."""
    if plan.objections:
        raise PreflightError(
            f"Unable to forget {plan.target.name}",
            details="\n".join(plan.objections),
            resolution="Nothing was touched. Deal with each of them, then run the same command again.",
        )


def forget_node(asked: Reach, first: ClusterFacts, options: ForgetOptions, effects: Effects) -> Outcome:
    """Do it, by facts gathered once nobody else repairs the cluster; ``VerificationError``: something is left.

    ``first``: what was observed before, which says on which nodes the lock is held.
    """
    with cluster_lock(asked, first, f"forget {options.node}, since {now()}", without=options.node):
        observed = observe(asked, options, effects.emit)
        require_preconditions(observed.plan)
        target = RepairTarget(_cluster(observed.facts), options.node, observed.plan.lead, observed.lead.shell)
        done = tuple(_runs(observed, target, effects))
        facts = gather(asked, effects.emit)
        if done:
            finish_run(done[-1], tuple(diagnose(facts)))
        return Outcome(done, _remaining_references(facts, observed))


def _runs(observed: Observed, target: RepairTarget, effects: Effects) -> Iterator[Run]:
    """Each runbook in its turn; what was saved before the first is the backup of all."""
    saved = ""
    for runbook in observed.plan.runbooks:
        run = begin_run(runbook, target, tuple(diagnose(observed.facts)))
        if not saved:
            effects.emit(ApplyProgress(target.node, f"save the cluster's files of {target.lead}"))
            saved = str(backup.save(target.shell, run))
        run = write_record(run, replace(run.record, backup=saved))
        yield run_runbook(run, target, _playbook_plan(runbook, observed, target, run), effects)


def _playbook_plan(runbook: str, observed: Observed, target: RepairTarget, run: Run) -> dict[str, Any]:
    """Return what the playbook gets."""
    plan, name = observed.plan, observed.plan.target.name
    if runbook == "retired-node":
        return {"nodeid": plan.target.nodeid, "off_for_good": name}
    if runbook == "ghost-node":
        moves, archived = list[dict[str, Any]](), list[dict[str, Any]]()
        for fate in plan.guests:
            if fate.to:
                moves.append({"kind": FOLDERS[fate.guest.kind], "vmid": fate.guest.vmid, "to": fate.to})
            if fate.is_archived:
                archived.append(_archive(fate.guest, target.shell, run))
        return {"moves": moves, "archived": archived}
    changes = [{"storage": change.storage, "nodes": list(change.nodes)} for change in plan.storages]
    return {"addresses": list(_known_addresses(observed.facts, name)), "storages": changes}


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


def _remaining_references(facts: ClusterFacts, observed: Observed) -> tuple[Reference, ...]:
    """Return what a person has still to decide, once nothing else is left; ``VerificationError`` else."""
    name = observed.plan.target.name
    lead = lead_of(facts)
    found = _read_leftovers(observed.lead.shell, name, _known_addresses(observed.facts, name))
    left = list[str]()
    if member_of(facts, name):
        left.append(f"{name} is still a member.")
    if name in lead.guests:
        left.append(f"/etc/pve/nodes/{name} is still there.")
    for vmid, node in lead.vmlist.items():
        if node == name:
            left.append(f".vmlist has guest {vmid} on {name}.")
    if not found.is_clean:
        left.append(f"/etc/pve/priv still names {name}.")
    if left:
        raise VerificationError(
            f"Unable to say that {name} is forgotten",
            details="\n".join(left),
            resolution="Run the same command again, and look with: provision cluster check",
        )
    return (*found.references, *observed.plan.guest_references)


def _cluster(facts: ClusterFacts) -> str:
    """The cluster's name by the lead's list; empty without one."""
    conf = lead_of(facts).pve_conf
    return conf.cluster if conf else ""


def _known_addresses(facts: ClusterFacts, name: str) -> tuple[str, ...]:
    """A member's addresses, else those it had when it was one; none that another member has now."""
    member = member_of(facts, name)
    if member is not None:
        return member.addresses
    taken = set[str]()
    conf = lead_of(facts).pve_conf
    for other in conf.members if conf else ():
        taken.update(other.addresses)
    former: Sequence[str] = ()
    for run in reversed(all_runs(_cluster(facts))):
        file = run.backup / "corosync.conf"
        if run.record.node == name and run.record.runbook == "retired-node" and file.is_file():
            former_member = read_corosync_conf(text_of(file)).member(name)
            former = former_member.addresses if former_member else ()
            break
    return tuple(address for address in former if address not in taken)


def plan_text(plan: ForgetPlan, runbooks: Sequence[Runbook], style: Style = PLAIN) -> str:
    """Return what was seen of the node, what becomes of its guests, and every step that would be done.

    "~" stands before each step that changes something.
    """
    target = plan.target
    lines = [style.paint(f"{safe_line(target.name)}: {KINDS[target.kind]}", "bold"), f"Done from {plan.lead}."]
    silent = [sign for sign in plan.signs if not sign.is_alive]
    lines += [f"  silent  {sign.address} ({sign.how}): {safe_line(sign.said)}" for sign in silent]
    for fate in plan.guests:
        lines += _guest_lines(fate, style)
    node = safe_line(target.name)
    lines += [f"  key     {safe_line(key)} (root@{node}) opens every node" for key in plan.leftovers.keys]
    lines += [f"  host key of {safe_line(name)}" for name in plan.leftovers.host_names]
    if not runbooks:
        lines.append(NOTHING_TO_DO)
    for runbook in runbooks:
        lines += ["", style.paint(f"{runbook.id}: {runbook.title}", "bold")]
        for step in runbook.steps:
            mark = "~" if step.changes else " "  # the page says NODE
            does = re.sub(r"\bNODE\b", lambda _match: node, " ".join(step.does.split()))
            lines.append(f"  {mark} {step.id}: {does}")
    return "\n".join([*lines, *_references((*plan.leftovers.references, *plan.guest_references))])


def done_text(plan: ForgetPlan, references: Sequence[Reference], folders: Sequence[str]) -> str:
    """Return what is so now, what a person has still to decide, and where the records lie."""
    lines = [f"{plan.target.name} is forgotten."]
    if plan.target.kind is Kind.MEMBER:
        lines.append(NEVER_BOOT)
    lines += [f"Record: {folder}" for folder in folders]
    return "\n".join([*lines, *_references(references)])


def forget_content(plan: ForgetPlan) -> dict[str, Any]:
    """Return what would be done, for machine-readable output."""
    return {
        "node": plan.target.name,
        "kind": plan.target.kind,
        "lead": plan.lead,
        "runbooks": plan.runbooks,
        "objections": plan.objections,
        "signs": plan.signs,
        "guests": plan.guests,
        "leftovers": plan.leftovers,
        "guest_references": plan.guest_references,
        "storages": plan.storages,
    }


def _guest_lines(fate: GuestFate, style: Style) -> list[str]:
    """The guest with what becomes of its configuration, and what is left of each disk."""
    guest = fate.guest
    name = f" {safe_line(guest.name)}" if guest.name else ""
    if fate.to:
        becomes = f"moved to {safe_line(fate.to)}"
    elif fate.is_archived:
        becomes = "archived"
    else:
        becomes = "not decided about yet"
    lines = [f"  guest   {guest.vmid}{name} ({guest.kind}): its configuration is {becomes}"]
    for volume, disk_fate in fate.disks:
        lines.append(indent(f"{safe_line(volume)}: {style.paint(disk_fate.value, 'yellow')}", 10))
    return lines


def _references(references: Sequence[Reference]) -> list[str]:
    """Return what names the node and is not ours to decide about, each with what to type."""
    if not references:
        return []
    lines = ["", "Left for you to decide, each with what to type:"]
    for reference in references:
        place = f"{safe_line(reference.file)}, {safe_line(reference.section)}"
        lines += [f"  {place}: {safe_line(reference.line)}", f"      {safe_line(reference.command)}"]
    return lines


def _read_leftovers(shell: Shell, node: str, addresses: Sequence[str]) -> Leftovers:
    """Return what in ``/etc/pve`` on the lead still names ``node``; ``ProviderError``: it could not be read."""
    said = script_answer(shell, "sh", "leftovers.sh", (node, " ".join(addresses)), LEFTOVERS_TIMEOUT_S)
    return leftovers_from(said, node)
