"""Runbook ``lost-quorum``: one part of a cluster is to decide alone, once the others are proved off; and its texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.cluster.facts import ClusterFacts, CorosyncConf, NodeFacts, Sign
from provisioner.cluster.gather import Reach, gather, signs_of_life
from provisioner.cluster.run import Effects, RepairTarget, begin_run, node_lock, run_runbook
from provisioner.report.style import PLAIN, Style, count_text, safe_line
from provisioner.values.errors import InputError, PreflightError, VerificationError
from provisioner.values.events import ApplyProgress, Event

RUNBOOK = "lost-quorum"
DANGER = (
    "Danger: if any of them runs and is only cut off, both parts can write from now on. The same guest may then run\n"
    "twice on one disk, and nothing merges the two afterwards. Prefer to bring the others back."
)
NOT_NEEDED = "Nothing to do: it is quorate."


@dataclass(frozen=True, slots=True)
class QuorumPlan:
    """The work on ``host``: expect ``votes`` votes; ``off_ids``: the nodes that are said to be off.

    ``is_needed``: it has no quorum now. ``objections`` must be none for it to be done.
    """

    host: str
    cluster: str
    votes: int
    off: tuple[str, ...]
    off_ids: tuple[int, ...]
    is_needed: bool
    objections: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observed:
    """The decision, and what came back when the others were tried."""

    plan: QuorumPlan
    signs: tuple[Sign, ...]


def asked_node(facts: ClusterFacts) -> NodeFacts:
    """The node that was asked; ``PreflightError`` when it is in no cluster."""
    asked = facts.node(facts.asked)
    if asked is None and facts.nodes:
        asked = facts.nodes[0]
    if asked is not None and asked.starting_conf is not None:
        return asked
    name = asked.name if asked else facts.asked
    raise PreflightError(
        f"Unable to judge the quorum of {name}: it is in no cluster",
        details="A single node needs no votes but its own.",
        resolution="Name a node of a cluster: --host root@ADDRESS",
    )


def absent_members(facts: ClusterFacts) -> dict[str, tuple[str, ...]]:
    """The members that are not in the asked node's part of the cluster → their addresses."""
    asked = asked_node(facts)
    absent = dict[str, tuple[str, ...]]()
    for member in _list(asked).others(asked.name):
        if member.nodeid not in asked.partition:
            absent[member.name] = member.addresses
    return absent


def make_quorum_plan(facts: ClusterFacts, off: Sequence[str], signs: Sequence[Sign] = ()) -> QuorumPlan:
    """Decide whether the asked node's part may decide alone; ``InputError`` for a name that is no member."""
    asked = asked_node(facts)
    conf = _list(asked)
    ids = {member.name: member.nodeid for member in conf.members}
    for name in off:
        if name not in ids:
            raise InputError(
                f"Unable to find node {name}",
                details=f"The members are: {', '.join(ids)}",
                resolution="Name with --off each member that is off.",
            )
    return QuorumPlan(
        host=asked.name,
        cluster=conf.cluster,
        votes=asked.quorum.total if asked.quorum else 0,
        off=tuple(off),
        off_ids=tuple(ids[name] for name in off),
        is_needed=not asked.is_quorate,
        objections=tuple(_objections(facts, asked, off, signs)),
    )


def _objections(facts: ClusterFacts, asked: NodeFacts, off: Sequence[str], signs: Sequence[Sign]) -> Iterator[str]:
    """Yield why the part may not decide alone: only members that are proved off, or said to be, may be left out."""
    if asked.quorum is None:
        yield f"corosync does not answer on {asked.name}. Start it first: systemctl start corosync"
        return
    absent = absent_members(facts)
    for name in off:
        if name not in absent:
            yield f"{name} is not off: it is in one part of the cluster with {asked.name}, or is {asked.name}."
    for name, addresses in absent.items():
        if facts.node(name) is not None:
            yield f"{name} is running: it answers by ssh. Mend its link to {asked.name}, or shut it down."
        elif name not in off:
            yield f"{name} may be running, cut off from here. When you have seen that it is off, say so: --off {name}"
        tried = [sign for sign in signs if sign.address in addresses]
        if tried:
            yield from _signs_of_life(name, tried)
        elif facts.node(name) is None:
            yield f"Nobody has tried whether {name} answers at {', '.join(addresses)}."


def _signs_of_life(name: str, signs: Sequence[Sign]) -> Iterator[str]:
    """An objection for each address of a member at which something answers."""
    for sign in signs:
        if sign.is_alive:
            yield f"{sign.words(name)}."


def _list(node: NodeFacts) -> CorosyncConf:
    """The list of a node that ``asked_node`` let pass: it has one."""
    conf = node.starting_conf
    assert conf is not None  # noqa: S101 - asked_node refuses a node without one
    return conf


def observe(asked: Reach, off: Sequence[str], emit: Callable[[Event], None]) -> Observed:
    """Return the decision and what it rests on; nothing is changed."""
    facts = gather(asked, emit)
    addresses = [address for tried in absent_members(facts).values() for address in tried]
    emit(ApplyProgress(asked_node(facts).name, "try whether the others answer"))
    signs = signs_of_life(asked.shell, addresses)
    return Observed(make_quorum_plan(facts, off, signs), signs)


def require_preconditions(plan: QuorumPlan) -> None:
    """Raise ``PreflightError`` with all objections, if there are any."""
    if plan.objections:
        raise PreflightError(
            f"Unable to have {plan.host} decide alone",
            details="\n".join(plan.objections),
            resolution="Nothing was touched. If two parts of a cluster run, both would be writable: "
            "read provision runbook show lost-quorum",
        )


def restore_quorum(asked: Reach, off: Sequence[str], effects: Effects) -> str:
    """Do it, and give the folder of its record; ``VerificationError``: it is not quorate all the same."""
    with node_lock(asked.shell, RUNBOOK):
        decision = observe(asked, off, effects.emit).plan
        require_preconditions(decision)
        target = RepairTarget(decision.cluster, decision.host, decision.host, asked.shell)
        plan = {"votes": decision.votes, "off_ids": list(decision.off_ids)}
        run = run_runbook(begin_run(RUNBOOK, target), target, plan, effects)
    after = asked_node(gather(asked, effects.emit))
    if after.quorum is None or not after.quorum.is_quorate or not after.is_writable:
        raise VerificationError(
            f"Unable to say that {decision.host} is quorate",
            details=f"What was done is in {run.folder}.",
            resolution="Look with: provision cluster check",
        )
    return str(run.folder)


def plan_text(plan: QuorumPlan, signs: Sequence[Sign], style: Style = PLAIN) -> str:
    """Return what would be done, what was proved, and the danger."""
    if not plan.is_needed:
        return f"{plan.host}: {NOT_NEEDED}"
    votes = count_text(plan.votes, "vote")
    head = style.paint(f"{plan.host} is to decide with {votes}: pvecm expected {plan.votes}", "bold")
    lines = [head]
    if plan.off:
        lines.append(f"Said to be off: {', '.join(plan.off)}")
    for sign in signs:
        state = "alive " if sign.is_alive else "silent"
        lines.append(f"  {state}  {sign.address} ({sign.how}): {safe_line(sign.said)}")
    return "\n".join([*lines, style.paint(DANGER, "yellow")])


def quorum_content(plan: QuorumPlan, signs: Sequence[Sign]) -> dict[str, Any]:
    """Return what would be done and what was proved, for machine-readable output."""
    return {
        "host": plan.host,
        "cluster": plan.cluster,
        "votes": plan.votes,
        "off": plan.off,
        "is_needed": plan.is_needed,
        "objections": plan.objections,
        "signs": signs,
    }
