"""Asks every node of a cluster what it knows, in parallel; starts at one and follows the lists that it finds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from provisioner.cluster.reaching import Reach
from provisioner.repair.answers import UnreadableError
from provisioner.repair.candidates import Candidate, candidates, claims_of
from provisioner.repair.facts import ClusterFacts, NodeFacts, Silent
from provisioner.repair.reading import read_node
from provisioner.values import paths
from provisioner.values.errors import PreflightError, ProviderError, ProvisionError, UnavailableError
from provisioner.values.events import ApplyProgress, Event

LOOK_TIMEOUT_S = 90
"""For the whole script: a corosync and a pmxcfs that both hang take 60."""
ANSWER_TIMEOUT_S = 10
"""For the first word of a node to which there is a connection: one that was switched off since does not answer."""
CLOCK_ATTEMPTS = 3
CLOCK_ERROR_S = 0.5
"""A tenth of what counts as skew."""
AT_ONCE = 16
ROUNDS = 5
"""A list that knows nodes that know others: three are a lot."""

Emit = Callable[[Event], None]


def gather(asked: Reach, emit: Emit = lambda _event: None) -> ClusterFacts:
    """What all nodes say that can be found from ``asked`` on; those that do not answer are ``silent``, with the reason.

    ``UnavailableError``: ``asked`` itself does not answer. ``PreflightError``: it is no Proxmox VE host.
    """
    first = look(asked, emit)
    if not first.is_proxmox:
        raise no_proxmox(asked)
    nodes, silent = _all_found(asked, first, emit)
    for name, again in _again(asked, claims_of(nodes.values(), silent.values()), emit).items():
        if isinstance(again, NodeFacts):
            nodes[name] = again
        else:
            silent[name] = again
            del nodes[name]
    names = set(nodes)
    for node in nodes.values():
        names.update(node.addresses)
    return ClusterFacts(
        asked=first.name,
        nodes=tuple(sorted(nodes.values(), key=lambda node: node.name)),
        silent=tuple(silent[key] for key in sorted(silent) if key not in names),
    )


def look(node: Reach, emit: Emit = lambda _event: None) -> NodeFacts:
    """What one node says; ``UnavailableError``: it does not answer, ``ProvisionError`` says why it does not tell."""
    emit(ApplyProgress(node.name, "look at it"))
    shell = node.shell
    shell.open()
    offset = clock_offset(lambda: _first_word(node))
    script = (paths.data() / "cluster" / "look.sh").read_text(encoding="utf-8")
    done = shell.run(["sh", "-c", script, "look"], timeout_s=LOOK_TIMEOUT_S)
    return read_node(done.stdout.decode(errors="replace"), node.destination.host, offset)


def clock_offset(ask: Callable[[], bytes]) -> float:
    """Seconds by which the clock that ``ask`` reads (``date +%s.%N``) is ahead of ours.

    The error is half the time of the call. One that took long is repeated: on a busy machine it would look like a
    clock that is wrong.
    """
    offset, error = 0.0, math.inf
    for _ in range(CLOCK_ATTEMPTS):
        before, began = time.time(), time.monotonic()
        said = _seconds(ask())
        half = (time.monotonic() - began) / 2
        if half < error:
            offset, error = said - before - half, half
        if error <= CLOCK_ERROR_S:
            break
    return round(offset, 3)


def _first_word(node: Reach) -> bytes:
    """Its clock; a node without power leaves a connection that is open and hangs: that is no failure of a command."""
    try:
        return node.shell.run(["date", "+%s.%N"], timeout_s=ANSWER_TIMEOUT_S).stdout
    except ProviderError as error:
        raise UnavailableError(
            f"Unable to reach {node.destination} by ssh: the connection hangs",
            details=error.details,
            resolution="Is it switched on, and its network well?",
        ) from error


def no_proxmox(node: Reach) -> PreflightError:
    """The error for a host that is none of ours."""
    return PreflightError(
        f"Unable to look at a cluster: {node.name} is no Proxmox VE host",
        details="There is no pvecm on it.",
        resolution="Name a node of the cluster: root@ADDRESS[:PORT].",
    )


def _all_found(asked: Reach, first: NodeFacts, emit: Emit) -> tuple[dict[str, NodeFacts], dict[str, Silent]]:
    """The nodes that the lists lead to, and those that do not answer, by name (or address, where that is all)."""
    nodes, silent = {first.name: first}, dict[str, Silent]()
    tried = {asked.destination.host}
    for _ in range(ROUNDS):
        wanted = list[Candidate]()
        for candidate in candidates(nodes.values()):
            is_tried = tried.issuperset(candidate.addresses)
            if candidate.key not in silent or not is_tried:
                wanted.append(candidate)
        if not wanted:
            break
        for candidate, found in _ask_all(asked, wanted, first, emit):
            tried.update(candidate.addresses)
            if isinstance(found, Silent):
                silent[candidate.key] = found
            else:
                nodes.setdefault(found.name, found)
    return nodes, silent


def _again(asked: Reach, names: Mapping[str, str], emit: Emit) -> dict[str, NodeFacts | Silent]:
    """A second look at nodes: what they said of one that does not answer is older than its silence."""

    def ask(name: str) -> NodeFacts | Silent:
        try:
            return look(asked.at(names[name], name), emit)
        except ProvisionError as error:
            return Silent(name, names[name], _why(error))

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        return dict(zip(names, pool.map(ask, names), strict=True))


def _ask_all(
    asked: Reach, wanted: Iterable[Candidate], first: NodeFacts, emit: Emit
) -> list[tuple[Candidate, NodeFacts | Silent]]:
    targets = list(wanted)
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        found = pool.map(lambda candidate: _ask(asked, candidate, first, emit), targets)
        return list(zip(targets, found, strict=True))


def _ask(asked: Reach, candidate: Candidate, first: NodeFacts, emit: Emit) -> NodeFacts | Silent:
    """Look at a candidate at each of its addresses, then by its name; an answer of another node does not count."""
    reasons = list[str]()
    for address in candidate.addresses:
        try:
            found = look(asked.at(address, candidate.name), emit)
        except ProvisionError as error:  # why it is silent is a fact like others
            reasons.append(_why(error))
            continue
        objection = _objection(found, candidate, first)
        if not objection:
            return found
        reasons.append(objection)
    by_name = _by_name(asked, candidate, first, emit) if candidate.name else None
    if by_name is not None:
        return by_name
    where = candidate.addresses[0] if candidate.addresses else ""
    return Silent(candidate.name, where, "; ".join(dict.fromkeys(reasons)) or "no address of it is known")


def _by_name(asked: Reach, candidate: Candidate, first: NodeFacts, emit: Emit) -> NodeFacts | None:
    """The node where this machine has its name: the lists do not know of an address that changed."""
    try:
        found = look(asked.at(candidate.name, candidate.name), emit)
    except ProvisionError:
        return None  # a name that leads nowhere is the usual case
    return None if _objection(found, candidate, first) else found


def _objection(found: NodeFacts, candidate: Candidate, first: NodeFacts) -> str:
    """Why what answered is not the node that was looked for; empty when it is."""
    if not found.is_proxmox:
        return f"at {found.address} is {found.name}, no Proxmox VE host"
    ours, theirs = _cluster(first), _cluster(found)
    if ours and theirs and ours != theirs:
        return f"at {found.address} is {found.name}, of the cluster {theirs}"
    if candidate.name and candidate.name != found.name:
        return f"at {found.address} is {found.name}"
    return ""


def _cluster(node: NodeFacts) -> str:
    conf = node.starting_conf
    return conf.cluster if conf else ""


def _why(error: ProvisionError) -> str:
    last = (error.details.strip().splitlines() or [""])[-1]
    return f"{error.message}: {last}" if last else error.message


def _seconds(date: bytes) -> float:
    try:
        return float(date)
    except ValueError as error:
        raise UnreadableError("Unable to read the node's clock", details=date.decode(errors="replace")) from error
