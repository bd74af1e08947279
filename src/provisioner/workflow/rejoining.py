"""Bringing a stale node back: look, prove, save, run the runbook, look again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from provisioner.catalog.runbooks import known_runbook
from provisioner.cluster import backup, readiness, runs
from provisioner.cluster.gather import gather
from provisioner.cluster.reaching import Reach
from provisioner.cluster.running import Job, run_steps
from provisioner.cluster.runs import Run
from provisioner.cluster.turn import cluster_turn
from provisioner.repair.conditions import Diagnosis
from provisioner.repair.diagnosis import diagnose
from provisioner.repair.facts import ClusterFacts
from provisioner.repair.join import playbook_plan
from provisioner.repair.naming import require_lead, require_node, require_other
from provisioner.repair.readiness import lets_root_in, root_login_in
from provisioner.repair.record import Record, StepRecord, StepStatus
from provisioner.repair.refusals import Proof, Situation, rejoin_proofs
from provisioner.repair.rejoining import Kind, RejoinPlan, is_healthy, lead_address, rejoin_plan
from provisioner.values.errors import PreflightError, ProviderError, VerificationError
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart, Event
from provisioner.workflow.repairing import Hands, finish

REJOIN = "rejoin"
CHANGING = ("write-list", "forget-address", "join")
"""Steps after which the node is no longer as it was: from then on an earlier backup is the only one."""
JOIN_LOCK = "/run/lock/provisioner-rejoin"
JOIN_WAIT_S = 200


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user says: ``given_up`` are VMIDs whose configuration on the node may be lost."""

    node: str
    given_up: frozenset[int] = field(default_factory=frozenset)
    restores_sshd: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What was looked at and decided, and how both nodes are reached; ``left``: the run that is taken up again."""

    situation: Situation
    proofs: tuple[Proof, ...]
    before: tuple[Diagnosis, ...]
    lead: Reach
    node: Reach
    left: Run | None = None

    @property
    def plan(self) -> RejoinPlan:
        """What will be done."""
        return self.situation.plan

    @property
    def refused(self) -> tuple[Proof, ...]:
        """The proofs that do not hold; nothing is in the way where there is nothing to do."""
        return tuple(one for one in self.proofs if not one.holds) if self.plan.kind is not Kind.NOTHING else ()


def look(asked: Reach, wish: Wish, emit: Callable[[Event], None]) -> Seen:
    """What there is to know and to decide; nothing is changed. ``ProvisionError``: the words name no stale node."""
    facts = gather(asked, emit)
    _, conf = require_lead(facts)
    node = require_node(facts, wish.node)
    require_other(node, facts)
    left = _left(conf.cluster, node.name)
    if left is not None:
        _settle(_reach(asked, facts, node.name), emit)
        facts = gather(asked, emit)
    return _judged(asked, facts, wish, left, emit)


def refuse(seen: Seen) -> None:
    """Raise ``PreflightError`` with every proof that does not hold, if there is one."""
    if seen.refused:
        raise PreflightError(
            f"Unable to rejoin {seen.plan.node}: {', '.join(one.what for one in seen.refused)}",
            details="\n".join(f"{one.what}: {one.seen}" for one in seen.refused),
            resolution="\n".join(one.advice for one in seen.refused if one.advice),
        )


def rejoin(asked: Reach, wish: Wish, hands: Hands) -> Run:
    """Do it, by a look of its own while nobody else repairs the cluster; the run, ended.

    ``ProviderError``: a step failed; the same command goes on from there. ``VerificationError``: all steps were done,
    and the node is not what it should be.
    """
    emit = said_of(wish.node, hands.emit)
    facts = gather(asked, emit)
    require_lead(facts)
    with cluster_turn(asked, facts, f"rejoin {wish.node}, since {runs.now()}", without=wish.node):
        seen = look(asked, wish, emit)
        refuse(seen)
        return _carried_out(asked, seen, wish, hands)


def said_of(target: str, emit: Callable[[Event], None]) -> Callable[[Event], None]:
    """``emit`` for a look in the middle of work on ``target``: what other nodes are asked is progress of that work."""

    def told(event: Event) -> None:
        if isinstance(event, ApplyProgress) and event.target != target:
            event = ApplyProgress(target, f"{event.message}: {event.target}")
        emit(event)

    return told


def _carried_out(asked: Reach, seen: Seen, wish: Wish, hands: Hands) -> Run:
    plan, began = seen.plan, time.monotonic()
    hands.emit(ApplyStart(plan.node, REJOIN))
    run = _saved(seen, hands)
    restores_sshd = _restores_sshd(seen, wish) and (run.backup / "sshd_config").is_file()
    given = playbook_plan(seen.situation, seen.proofs, run.remote, restores_sshd=restores_sshd)
    run = runs.write(run, replace(run.record, plan=given, backup=str(run.backup)))
    job = Job({"lead": {plan.lead: seen.lead.shell}, "node": {plan.node: seen.node.shell}}, given)
    run = run_steps(job, run, hands.run_playbook, lambda one: hands.emit(ApplyProgress(plan.node, one.does)))
    facts = gather(asked, said_of(plan.node, hands.emit))
    if not run.record.error and not _is_back(facts, plan.node):
        run = runs.write(run, replace(run.record, error="All steps were done, and the node is not healthy."))
    run = finish(run, diagnose(facts))
    if run.record.error:
        hands.emit(ApplyErrored(plan.node, REJOIN, run.record.error))
        raise _failure(run)
    hands.emit(ApplyComplete(plan.node, REJOIN, time.monotonic() - began))
    return run


def left_open(run: Run) -> str:
    """What ``pvecm add`` left in the node's ``sshd_config``, and how to put the file back; empty where it left nothing.

    By the copy that was saved before; a file that was put back is as it was.
    """
    saved, record = run.backup / "sshd_config", run.record
    status = next((one.status for one in record.steps if one.id == "restore-sshd"), None)
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


def _restores_sshd(seen: Seen, wish: Wish) -> bool:
    """Whether sshd_config is put back: as was said now, or to the run that is taken up again."""
    said_before = seen.left is not None and seen.plan.resumes and seen.left.record.plan.get("restores_sshd", False)
    return wish.restores_sshd or bool(said_before)


def _failure(run: Run) -> ProviderError | VerificationError:
    ended = (StepStatus.DONE, StepStatus.UNCHANGED, StepStatus.LEFT_OUT)
    is_done = all(one.status in ended for one in run.record.steps)
    kind = VerificationError if is_done else ProviderError
    return kind(
        f"Unable to finish {run.record.runbook} for {run.record.node}",
        details=run.record.error,
        resolution=f"What was done is in {run.folder}. The same command goes on from there; to bring the node's files "
        f"back as they were: provision cluster restore {run.name}",
    )


def _saved(seen: Seen, hands: Hands) -> Run:
    """The run that goes on, with its backup: a new one is taken as long as nothing on the node was changed."""
    run = seen.left if seen.left is not None and seen.plan.resumes else _begin(seen)
    if not (run.record.has_begun(*CHANGING) and run.backup.is_dir()):
        hands.emit(ApplyProgress(seen.plan.node, "save the node's cluster files, there and here"))
        backup.save(seen.node.shell, run)
    return run


def _begin(seen: Seen) -> Run:
    plan = seen.plan
    steps = tuple(StepRecord(one.id, one.does, StepStatus.NOT_REACHED) for one in known_runbook(plan.kind).steps)
    return runs.begin(
        Record(plan.kind.value, plan.cluster, plan.node, plan.lead, runs.now(), before=seen.before, steps=steps)
    )


def _judged(asked: Reach, facts: ClusterFacts, wish: Wish, left: Run | None, emit: Callable[[Event], None]) -> Seen:
    lead, conf = require_lead(facts)
    node = require_node(facts, wish.node)
    plan = rejoin_plan(node, lead, conf, left.record if left else None)
    reaches = _reach(asked, facts, lead.name), _reach(asked, facts, node.name)
    ready = None
    if plan.kind is Kind.FORCED and not plan.is_joined:
        emit(ApplyProgress(node.name, "look whether it can join"))
        address = next(iter(plan.entry.addresses if plan.entry else ()), node.address)
        ready = readiness.ask(reaches[1], reaches[0], address, lead_address(lead, conf))
    is_kept = left is not None and left.record.has_begun(*CHANGING) and left.backup.is_dir()
    situation = Situation(
        facts=facts,
        node=node,
        lead=lead,
        conf=conf,
        plan=plan,
        ready=ready,
        saved=backup.saved_guests(left.backup, node.name) if left is not None and is_kept else (),
        open_runs=_open_runs(facts, conf.cluster, node.name),
        given_up=wish.given_up,
    )
    return Seen(situation, rejoin_proofs(situation), diagnose(facts), *reaches, left)


def _reach(asked: Reach, facts: ClusterFacts, name: str) -> Reach:
    found = facts.node(name)
    return asked if found is None or name == facts.asked else asked.at(found.address, name)


def _left(cluster: str, node: str) -> Run | None:
    """The run of ours on the node that did not come to its end, or None."""
    found = runs.unfinished(cluster, node)
    return found if found is not None and found.record.runbook in (Kind.LIGHT, Kind.FORCED) else None


def _settle(node: Reach, emit: Callable[[Event], None]) -> None:
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
    names = {one.record.node for one in runs.runs(cluster)} - {node}
    found = (_left(cluster, name) for name in sorted(names))
    begun = (one.record for one in found if one is not None and one.record.has_begun("stop-corosync", *CHANGING))
    return tuple(one for one in begun if not _is_back(facts, one.node))


def _is_back(facts: ClusterFacts, name: str) -> bool:
    lead, node = facts.lead, facts.node(name)
    if lead is None or node is None or lead.pve_conf is None:
        return False
    return is_healthy(node, lead, lead.pve_conf)
