"""Whether a part of a cluster may decide alone: what speaks against it, and how many votes it is to expect; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from provisioner.repair.facts import ClusterFacts, CorosyncConf, NodeFacts
from provisioner.repair.forgetting import Sign
from provisioner.values.errors import InputError, PreflightError


@dataclass(frozen=True, slots=True)
class Regaining:
    """What is to be done on ``host``: expect ``votes`` votes; ``off_ids``: the nodes that are said to be off.

    ``is_needed``: it has no quorum now. ``objections`` must be none for it to be done.
    """

    host: str
    cluster: str
    votes: int
    off: tuple[str, ...]
    off_ids: tuple[int, ...]
    is_needed: bool
    objections: tuple[str, ...] = ()


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


def make_regaining(facts: ClusterFacts, off: Sequence[str], signs: Sequence[Sign] = ()) -> Regaining:
    """What having the asked node's part decide alone means; ``InputError`` for a name that is no member."""
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
    present = [member for member in conf.members if member.nodeid in asked.partition]
    return Regaining(
        host=asked.name,
        cluster=conf.cluster,
        votes=sum(member.votes for member in present),
        off=tuple(off),
        off_ids=tuple(ids[name] for name in off),
        is_needed=not asked.is_quorate,
        objections=tuple(_objections(facts, asked, off, signs)),
    )


def _objections(facts: ClusterFacts, asked: NodeFacts, off: Sequence[str], signs: Sequence[Sign]) -> Iterator[str]:
    """Why the part may not decide alone: only members that are proved off, or said to be, may be left out."""
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
