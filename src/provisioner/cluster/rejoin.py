"""``cluster rejoin``: bring a stale node back: observe, prove, save, run the runbook, observe again; and its texts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from provisioner.cluster import backup
from provisioner.cluster.diagnosis import diagnose
from provisioner.cluster.facts import ClusterFacts, Diagnosis
from provisioner.cluster.gather import Reach, gather, progress_of
from provisioner.cluster.record import (
    Record,
    Run,
    StepStatus,
    all_runs,
    now,
    unfinished_run,
    write_record,
)
from provisioner.cluster.rejoin_plan import Entry, Kind, RejoinPlan, is_healthy, lead_address, rejoin_plan
from provisioner.cluster.rejoin_preconditions import (
    Proof,
    Readiness,
    Situation,
    fingerprints,
    lets_root_in,
    missing_programs,
    rejoin_proofs,
    require_lead,
    require_node,
    require_other,
    root_login,
    root_login_in,
    ssh_refusal,
)
from provisioner.cluster.run import Effects, Job, RepairTarget, begin_run, cluster_lock, finish_run, run_steps
from provisioner.cluster.runbooks import Runbook
from provisioner.cluster.text import numbered
from provisioner.report.style import PLAIN, Style, indent, safe_line, safe_text
from provisioner.values import paths
from provisioner.values.errors import PreflightError, ProviderError, VerificationError
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart, Event
from provisioner.values.plain_data import Foreign

REJOIN = "rejoin"
CHANGING = ("write-list", "forget-address", "join")
"""Steps after which the node is no longer as it was: from then on an earlier backup is the only one."""
JOIN_LOCK = "/run/lock/provisioner-rejoin"
JOIN_WAIT_S = 200
READINESS_TIMEOUT_S = 60.0
SSHD_DANGER = (
    "pvecm add writes PermitRootLogin yes into /etc/ssh/sshd_config. Now there stands: {}. "
    "--restore-sshd puts the file back afterwards."
)


@dataclass(frozen=True, slots=True)
class RejoinOptions:
    """The user's options: ``given_up`` are VMIDs whose configuration on the node may be lost."""

    node: str
    given_up: frozenset[int] = field(default_factory=frozenset)
    restores_sshd: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """The facts and the decision, and how both nodes are reached; ``left``: the run that is taken up again."""

    situation: Situation
    proofs: tuple[Proof, ...]
    before: tuple[Diagnosis, ...]
    lead: Reach
    node: Reach
    left: Run | None = None

    @property
    def plan(self) -> RejoinPlan:
        """The repair that is to be done."""
        return self.situation.plan

    @property
    def unmet(self) -> tuple[Proof, ...]:
        """The proofs that do not hold; nothing is in the way where there is nothing to do."""
        return tuple(proof for proof in self.proofs if not proof.holds) if self.plan.kind is not Kind.NOTHING else ()


def observe(asked: Reach, options: RejoinOptions, emit: Callable[[Event], None]) -> Observed:
    """Return the facts and the decision; nothing is changed. ``ProvisionError``: the words name no stale node."""
    facts = gather(asked, emit)
    _, conf = require_lead(facts)
    node = require_node(facts, options.node)
    require_other(node, facts)
    left = _left(conf.cluster, node.name)
    if left is not None:
        _wait_for_join(asked.of(node, facts), emit)
        facts = gather(asked, emit)
    lead, conf = require_lead(facts)
    node = require_node(facts, options.node)
    plan = rejoin_plan(node, lead, conf, left.record if left else None)
    lead_reach, node_reach = asked.of(lead, facts), asked.of(node, facts)
    ready = None
    if plan.kind is Kind.FORCED and not plan.is_joined:
        emit(ApplyProgress(node.name, "look whether it can join"))
        address = next(iter(plan.entry.addresses if plan.entry else ()), node.address)
        ready = ask_readiness(node_reach, lead_reach, address, lead_address(lead, conf))
    has_changed = left is not None and left.record.has_begun(*CHANGING) and left.backup.is_dir()
    situation = Situation(
        facts=facts,
        node=node,
        lead=lead,
        conf=conf,
        plan=plan,
        ready=ready,
        saved=backup.saved_guests(left.backup, node.name) if left is not None and has_changed else (),
        open_runs=_open_runs(facts, conf.cluster, node.name),
        given_up=options.given_up,
    )
    return Observed(situation, rejoin_proofs(situation), diagnose(facts), lead_reach, node_reach, left)


def require_preconditions(observed: Observed) -> None:
    """Raise ``PreflightError`` with every proof that does not hold, if there is one."""
    if observed.unmet:
        raise PreflightError(
            f"Unable to rejoin {observed.plan.node}: {', '.join(proof.what for proof in observed.unmet)}",
            details="\n".join(f"{proof.what}: {proof.seen}" for proof in observed.unmet),
            resolution="\n".join(proof.advice for proof in observed.unmet if proof.advice),
        )


def rejoin_node(asked: Reach, first: ClusterFacts, options: RejoinOptions, effects: Effects) -> Run:
    """Do it, by facts gathered while nobody else repairs the cluster; the run, ended.

    ``ProviderError``: a step failed; the same command goes on from there. ``VerificationError``: all steps were done,
    and the node is not what it should be. ``first``: what was observed before, which says on which nodes the lock is
    held.
    """
    with cluster_lock(asked, first, f"rejoin {options.node}, since {now()}", without=options.node):
        observed = observe(asked, options, progress_of(options.node, effects.emit))
        require_preconditions(observed)
        return _applied(asked, observed, options, effects)


def _applied(asked: Reach, observed: Observed, options: RejoinOptions, effects: Effects) -> Run:
    """Save, run the runbook, observe again, and end the record."""
    plan, began = observed.plan, time.monotonic()
    effects.emit(ApplyStart(plan.node, REJOIN))
    run = _saved(observed, effects)
    restores_sshd = _restores_sshd(observed, options) and (run.backup / "sshd_config").is_file()
    given = playbook_plan(observed.situation, observed.proofs, run.remote, restores_sshd=restores_sshd)
    run = write_record(run, replace(run.record, plan=given, backup=str(run.backup)))
    job = Job({"lead": {plan.lead: observed.lead.shell}, "node": {plan.node: observed.node.shell}}, given)
    run = run_steps(job, run, effects.run_playbook, lambda step: effects.emit(ApplyProgress(plan.node, step.does)))
    facts = gather(asked, progress_of(plan.node, effects.emit))
    if not run.record.error and not _is_back(facts, plan.node):
        run = write_record(run, replace(run.record, error="All steps were done, and the node is not healthy."))
    run = finish_run(run, diagnose(facts))
    if run.record.error:
        effects.emit(ApplyErrored(plan.node, REJOIN, run.record.error))
        raise _failure(run)
    effects.emit(ApplyComplete(plan.node, REJOIN, time.monotonic() - began))
    return run


def left_open(run: Run) -> str:
    """Say what ``pvecm add`` left in the node's ``sshd_config``, and how to put it back; empty where it left nothing.

    By the copy that was saved before; a file that was put back is as it was.
    """
    saved, record = run.backup / "sshd_config", run.record
    status = next((step.status for step in record.steps if step.id == "restore-sshd"), None)
    if not record.has_begun("join") or not saved.is_file() or status in (StepStatus.DONE, StepStatus.UNCHANGED):
        return ""
    before = root_login_in(saved.read_text(encoding="utf-8", errors="replace"))
    if lets_root_in(before):
        return ""
    address = next(iter(record.plan.get("addresses", ())), record.node)
    copy = f"{run.remote}/sshd_config"
    return (
        f"PermitRootLogin yes stands in {record.node}'s /etc/ssh/sshd_config now: pvecm add has written it. Before, "
        f"there stood {before or 'nothing, which means prohibit-password'}. To put the file back, on {record.node} "
        f"(root@{address}): sshd -t -f {copy} && cp {copy} /etc/ssh/sshd_config && systemctl reload ssh"
    )


def _restores_sshd(observed: Observed, options: RejoinOptions) -> bool:
    """Return whether sshd_config is put back: as was said now, or to the run that is taken up again."""
    left = observed.left if observed.plan.resumes else None
    said_before = left is not None and bool(left.record.plan.get("restores_sshd", False))
    return options.restores_sshd or said_before


def _failure(run: Run) -> ProviderError | VerificationError:
    """The error for a run that did not bring the node back."""
    ended = (StepStatus.DONE, StepStatus.UNCHANGED, StepStatus.LEFT_OUT)
    is_done = all(step.status in ended for step in run.record.steps)
    kind = VerificationError if is_done else ProviderError
    return kind(
        f"Unable to finish {run.record.runbook} for {run.record.node}",
        details=run.record.error,
        resolution=f"What was done is in {run.folder}. The same command goes on from there; to bring the node's files "
        f"back as they were: provision cluster restore {run.name}",
    )


def _saved(observed: Observed, effects: Effects) -> Run:
    """The run that goes on, with its backup: a new one is taken as long as nothing on the node was changed."""
    plan = observed.plan
    if observed.left is not None and plan.resumes:
        run = observed.left
    else:
        target = RepairTarget(plan.cluster, plan.node, plan.lead, observed.lead.shell)
        run = begin_run(plan.kind.value, target, observed.before)
    if not (run.record.has_begun(*CHANGING) and run.backup.is_dir()):
        effects.emit(ApplyProgress(plan.node, "save the node's cluster files, there and here"))
        backup.save(observed.node.shell, run)
    return run


def _left(cluster: str, node: str) -> Run | None:
    """The run of ours on the node that did not come to its end, or None."""
    found = unfinished_run(cluster, node)
    return found if found is not None and found.record.runbook in (Kind.LIGHT, Kind.FORCED) else None


def _wait_for_join(node: Reach, emit: Callable[[Event], None]) -> None:
    """Wait until no ``pvecm add`` of a killed run goes on: it does not end with us, and changes what we see."""
    emit(ApplyProgress(node.name, "wait for a join that was begun before"))
    argv = ["flock", "-w", str(JOIN_WAIT_S), JOIN_LOCK, "true"]
    if node.shell.run(argv, timeout_s=JOIN_WAIT_S + 30).returncode:
        raise PreflightError(
            f"Unable to rejoin {node.name}: a join that was begun before does not end",
            details=f"{JOIN_LOCK} on it is held.",
            resolution=f"Look at it on {node.name}: fuser -v {JOIN_LOCK}",
        )


def _open_runs(facts: ClusterFacts, cluster: str, node: str) -> tuple[Record, ...]:
    """The repairs of other nodes that began to change something and did not bring the node back."""
    names = {run.record.node for run in all_runs(cluster)} - {node}
    records = list[Record]()
    for name in sorted(names):
        left = _left(cluster, name)
        has_begun = left is not None and left.record.has_begun("stop-corosync", *CHANGING)
        if left is not None and has_begun and not _is_back(facts, name):
            records.append(left.record)
    return tuple(records)


def _is_back(facts: ClusterFacts, name: str) -> bool:
    """Return whether the node is a healthy member by the lead's list."""
    lead, node = facts.lead, facts.node(name)
    if lead is None or node is None or lead.pve_conf is None:
        return False
    return is_healthy(node, lead, lead.pve_conf)


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
    """Return how many nodes the lead's partition has with this one."""
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


def ask_readiness(node: Reach, lead: Reach, node_address: str, lead_address: str) -> Readiness:
    """Return what both say; the addresses are those at which the nodes reach each other."""
    here, there = _readiness_answer(node, lead_address), _readiness_answer(lead, node_address)
    return Readiness(
        missing_programs(here), ssh_refusal(here), ssh_refusal(there), root_login(here), fingerprints(there)
    )


def _readiness_answer(node: Reach, other: str) -> str:
    """Return what ``ready.sh`` wrote on the node about itself and the other one."""
    script = (paths.data() / "cluster" / "ready.sh").read_text(encoding="utf-8")
    done = node.shell.run(["sh", "-c", script, "ready", other], timeout_s=READINESS_TIMEOUT_S)
    if done.returncode:
        words = Foreign.of_output(done.stderr)
        raise ProviderError(f"Unable to ask {node.name} whether it is ready", details=words)
    return done.stdout.decode(errors="replace")


def nothing_text(seen: Situation, style: Style = PLAIN) -> str:
    """That there is nothing to do, and by what it is known."""
    reasons = safe_text(" ".join(seen.plan.reasons))
    return style.paint(f"{safe_line(seen.node.name)}: nothing to do. {reasons}", "green")


def rejoin_text(seen: Situation, proofs: Sequence[Proof], runbook: Runbook, style: Style = PLAIN) -> str:
    """The plan of a rejoin: why, what was proved, what will be done step by step, and what is dangerous about it."""
    plan = seen.plan
    again = ", taken up again" if plan.resumes else ""
    head = style.paint(f"{safe_line(plan.node)} in cluster {safe_line(plan.cluster)}: {plan.kind.value}{again}", "bold")
    lines = [head, *_indented(plan.reasons), "", style.paint("Proved:", "bold")]
    lines += [_proof_text(proof, style) for proof in proofs]
    lines += ["", style.paint("To be done:", "bold"), indent("Save the node's cluster files, there and here.")]
    lines += numbered([step.does for step in runbook.steps])
    lines += ["", style.paint("Danger:", "bold"), *_indented(dangers(seen, runbook))]
    return "\n".join([*lines, indent(f"Way back: {runbook.undo}")])


def _indented(texts: Sequence[str]) -> list[str]:
    return [indent(safe_text(text)) for text in texts]


def dangers(seen: Situation, runbook: Runbook) -> tuple[str, ...]:
    """Return what is dangerous about this one."""
    texts = [runbook.danger]
    if seen.given_up:
        guests = ", ".join(map(str, sorted(seen.given_up)))
        texts.append(f"Given up, kept in the backup only: {guests}.")
    if seen.plan.entry is not None and seen.plan.entry.replaces:
        texts.append(f"{seen.plan.node} is removed from the cluster's list for a moment, to be added with its address.")
    if seen.ready is not None and not seen.ready.keeps_root_login:
        texts.append(SSHD_DANGER.format(seen.ready.root_login or "nothing"))
    return tuple(texts)


def rejoin_content(seen: Situation, proofs: Sequence[Proof], runbook: Runbook | None) -> dict[str, Any]:
    """The plan of a rejoin and what was proved, for machine-readable output; ``runbook`` is None with nothing to do."""
    plan = seen.plan
    steps = runbook.steps if runbook else ()
    return {
        "node": plan.node,
        "lead": plan.lead,
        "cluster": plan.cluster,
        "runbook": None if plan.kind is Kind.NOTHING else plan.kind.value,
        "reasons": list(plan.reasons),
        "resumes": plan.resumes,
        "entry": plan.entry,
        "proofs": list(proofs),
        "steps": [{"id": step.id, "does": step.does, "changes": step.changes} for step in steps],
        "dangers": list(dangers(seen, runbook)) if runbook else [],
    }


def _proof_text(proof: Proof, style: Style) -> str:
    """A proof with its evidence, and what to do where it does not hold."""
    if proof.is_note:
        mark = style.paint("note", "yellow")
    elif proof.holds:
        mark = style.paint("ok  ", "green")
    else:
        mark = style.paint("FAIL", "red", "bold")
    first, *rest = safe_text(proof.seen).splitlines() or [""]
    lines = [f"  {mark} {proof.what}: {first}"]
    lines += [indent(line, 9) for line in rest]
    if not proof.holds and proof.advice:
        lines.append(indent(style.paint("What to do:", "bold") + " " + safe_text(proof.advice), 7))
    return "\n".join(lines)
