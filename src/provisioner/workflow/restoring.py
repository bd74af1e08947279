"""Bringing a node back to what a repair saved of it: choose, look, prove, save what is there now, put back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from provisioner.cluster import backup, restoring, runs
from provisioner.cluster.gather import gather
from provisioner.cluster.reaching import Reach
from provisioner.cluster.runs import Run
from provisioner.cluster.turn import cluster_turn
from provisioner.repair.facts import ClusterFacts, NodeFacts
from provisioner.repair.record import Record, StepRecord, StepStatus
from provisioner.repair.rejoining import Kind
from provisioner.repair.sparing import require_same, require_spare
from provisioner.values.errors import InputError, PreflightError, UnavailableError
from provisioner.values.events import ApplyComplete, ApplyProgress, ApplyStart, Event
from provisioner.workflow.rejoining import said_of
from provisioner.workflow.repairing import Hands, finish

RESTORE = "restore"
STEP = StepRecord("put-back", "Put config.db, corosync.conf and authkey back.", StepStatus.NOT_REACHED)


@dataclass(frozen=True, slots=True)
class Seen:
    """The run whose backup is brought back, its node, and how that is reached; ``asked``: where the look began."""

    run: Run
    facts: ClusterFacts
    node: NodeFacts
    reach: Reach
    asked: Reach


def saved_runs() -> tuple[tuple[str, Record, tuple[str, ...]], ...]:
    """Each run that has saved anything, the newest first: its name, its record, the files."""
    found = [(one.name, one.record, saved_files(one)) for one in runs.runs() if one.backup.is_dir()]
    return tuple(reversed(found))


def saved_files(run: Run) -> tuple[str, ...]:
    """What its backup has."""
    return tuple(sorted(backup.sums_of(run.backup)))


def chosen_run(name: str) -> Run:
    """The run of that name; ``InputError`` lists those there are; ``PreflightError``: its backup is not for a node."""
    found = [one for one in runs.runs() if one.name == name and one.backup.is_dir()]
    if not found:
        known = "\n".join(one for one, _, _ in saved_runs()) or "There is none."
        raise InputError(
            f"Unable to find a backup of {name}", details=known, resolution="See: provision cluster restore"
        )
    run = found[-1]
    if run.record.runbook not in (Kind.LIGHT, Kind.FORCED, RESTORE):
        raise PreflightError(
            f"Unable to bring back all that {name} has saved",
            details=f"{run.record.runbook} works on a cluster with quorum: the others would not take an old database.",
            resolution=f"Take single files out of {run.backup / backup.TREE}, and copy them to /etc/pve on a node.",
        )
    return run


def look(asked: Reach, run: Run, emit: Callable[[Event], None]) -> Seen:
    """What there is to know; ``UnavailableError``: the node does not answer."""
    facts = gather(asked, emit)
    name = run.record.node
    node = facts.node(name)
    if node is None:
        raise UnavailableError(
            f"Unable to restore {name}: no node of that name answers",
            details=f"Seen from {facts.asked}: {', '.join(one.name for one in facts.nodes)}",
            resolution=f"Name {name} itself as HOST: root@ADDRESS.",
        )
    reach = asked if facts.asked == name else asked.at(node.address, name)
    return Seen(run, facts, node, reach, asked)


def refuse(seen: Seen) -> None:
    """Raise ``PreflightError`` where it is another node than the one that was saved, or cannot be spared."""
    has_backup = seen.node.local_conf is None and backup.has_copy(seen.reach.shell, seen.run)
    require_same(seen.node, seen.run.record, has_backup=has_backup)
    require_spare(seen.node)


def restore(first: Seen, hands: Hands) -> str:
    """Do it, by a look of its own while nobody else repairs the cluster; what the node said of its services.

    What is there now is saved before. ``first``: what was seen before, which tells on which nodes the turn is taken.
    """
    name, began = first.node.name, time.monotonic()
    hands.emit(ApplyStart(name, RESTORE))
    with cluster_turn(first.asked, first.facts, f"restore {name}, since {runs.now()}", without=name):
        seen = look(first.asked, first.run, said_of(name, hands.emit))
        refuse(seen)
        run, said = _put_back(seen, hands)
    hands.emit(ApplyComplete(name, RESTORE, time.monotonic() - began))
    return f"{said}\nWhat was there before is in {run.folder}: provision cluster restore {run.name}"


def _put_back(seen: Seen, hands: Hands) -> tuple[Run, str]:
    name, shell = seen.node.name, seen.reach.shell
    run = runs.begin(Record(RESTORE, seen.run.record.cluster, name, "", runs.now(), steps=(STEP,)))
    hands.emit(ApplyProgress(name, "save the node's cluster files as they are now, there and here"))
    run = runs.write(run, replace(run.record, backup=str(backup.save(shell, run)), begun=(STEP.id,)))
    hands.emit(ApplyProgress(name, "put the saved files back"))
    said = restoring.put_back(shell, seen.run.backup, f"{run.name}-put")
    return finish(
        runs.write(run, replace(run.record, steps=(replace(STEP, status=StepStatus.DONE, message=said),)))
    ), said
