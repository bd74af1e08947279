"""``diagnose``: what is wrong with a cluster, each thing with the lines that prove it and what to do; pure."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.repair.absent_members import absent_diagnoses
from provisioner.repair.cluster_conditions import cluster_diagnoses, votes_text
from provisioner.repair.conditions import Condition, Diagnosis
from provisioner.repair.facts import ClusterFacts, NodeFacts
from provisioner.repair.ghosts import ghost_diagnoses
from provisioner.repair.node_conditions import node_diagnoses
from provisioner.repair.ring import ring_diagnoses
from provisioner.repair.view import View, is_clustered


def diagnose(facts: ClusterFacts, last_versions: Mapping[str, int] | None = None) -> tuple[Diagnosis, ...]:
    """Everything that is wrong: who disturbs all others, then the cluster's conditions; one ``HEALTHY`` if nothing is.

    ``last_versions``: by name ("" for any) the config_version of nodes that are off, as the user read them. What could
    not be learned is ``UNKNOWN``, never healthy.
    """
    view = View(facts, dict(last_versions or {}))
    diagnoses = [*ring_diagnoses(view), *cluster_diagnoses(view)]
    for node in facts.nodes:
        if is_clustered(node):
            diagnoses += node_diagnoses(node, view)
        else:
            diagnoses.append(_unclustered(node, view))
        if node.has_copied_keys:
            diagnoses.append(_copied_keys(node))
    diagnoses += [*absent_diagnoses(view), *ghost_diagnoses(view)]
    return tuple(diagnoses) or (_nothing_wrong(view),)


def _nothing_wrong(view: View) -> Diagnosis:
    if view.quorum is None or not view.has_quorum:
        return Diagnosis(Condition.UNKNOWN, "", "nothing is known of this cluster")
    names = ", ".join(node.name for node in view.facts.nodes)
    what = f"{names}: {votes_text(view.quorum)}, config_version {view.version} everywhere"
    return Diagnosis(Condition.HEALTHY, "", what)


def is_healthy(diagnoses: tuple[Diagnosis, ...]) -> bool:
    """Whether there is nothing to do."""
    return all(diagnosis.condition is Condition.HEALTHY for diagnosis in diagnoses)


def _copied_keys(node: NodeFacts) -> Diagnosis:
    """A repair copies root's keys while /etc/pve is empty; one that was cut off leaves the copy."""
    what = (
        "a rejoin of it goes on, or was cut off: it has a copy of root's keys, with which one can log in also when "
        "they are taken out of /etc/pve"
    )
    remove = "sed -i '/^# BEGIN of a repair by provision$/,/^# END of a repair by provision$/d'"
    advice = (
        f"If none goes on: provision cluster rejoin {node.name}, on the machine that began it, brings it to its end. "
        f"Or remove the copy, on {node.name} (root@{node.address}): {remove} /root/.ssh/authorized_keys2"
    )
    evidence = ("/root/.ssh/authorized_keys2: BEGIN of a repair by provision",)
    return Diagnosis(Condition.LEFTOVERS, node.name, what, evidence, advice=advice)


def _unclustered(node: NodeFacts, view: View) -> Diagnosis:
    """A node without any list: a member that lost it, or one that is in no cluster."""
    if view.has_quorum and view.member(node.name):
        return Diagnosis(
            Condition.UNCLUSTERED,
            node.name,
            "the cluster has it as a member, and it has no corosync.conf at all: it was installed anew, or cleaned",
            (view.list_text,),
            "stale-corosync-rejoin",
            f"provision cluster rejoin {node.name}",
        )
    evidence = list[str]()
    others = [name for name in node.guests if name != node.name]
    if others:
        names = ", ".join(others)
        evidence.append(f"/etc/pve/nodes has {names}: another node, or an earlier host name of this one")
    return Diagnosis(
        Condition.UNCLUSTERED,
        node.name,
        "it is in no cluster: there is no list of nodes, so that one is missing from it proves nothing",
        tuple(evidence),
        advice="Name a node of the cluster, if there is one.",
    )
