"""Reaches and asks nodes: every node of a cluster in parallel, from one on by the lists that are found."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from provisioner.cluster.facts import ClusterFacts, NodeFacts, Sign, Silent
from provisioner.cluster.read_corosync import UnreadableError
from provisioner.cluster.read_node import read_node
from provisioner.hosts.proxmox.access import SSH_CONFIG, Access
from provisioner.hosts.proxmox.ssh import (
    CHANGED_KEY,
    UNKNOWN_KEY,
    Destination,
    Shell,
    destination_of,
    no_ssh_error,
    ssh_failure,
)
from provisioner.values import paths
from provisioner.values.errors import InputError, PreflightError, ProviderError, ProvisionError, UnavailableError
from provisioner.values.events import ApplyProgress, Event
from provisioner.values.plain_data import Foreign

if TYPE_CHECKING:  # imported when a file names the node
    from provisioner.labfile.hosts import ProxmoxHost

DIRECT = "root@ADDRESS[:PORT]"
_DESTINATION = re.compile(r"[^\s-]\S*@[^\s@:-][^\s@]*")
"""A user and a host, neither of which ssh could take for an option."""
OBSERVE_TIMEOUT_S = 90
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
SIGNS_TIMEOUT_S = 60.0
SIGN_WORDS = 4
"""Of a line that ``signs.sh`` writes: the address, how it was tried, what came of it, and what came back."""


@dataclass(frozen=True, slots=True)
class Reach:
    """A node as the user names it, and how it is reached: ``ssh`` is [USER@]HOST[:PORT], ``ssh_config`` for ``-F``."""

    name: str
    ssh: str
    ssh_config: Path | None = None

    @property
    def destination(self) -> Destination:
        """``ssh`` taken apart."""
        return destination_of(self.ssh)

    @property
    def shell(self) -> Shell:
        """Runs commands there."""
        return Shell(Access(url="", user="", ssh=self.ssh, ssh_config=self.ssh_config))

    def at(self, address: str, name: str = "") -> Reach:
        """The node at ``address``, with the same user, port and configuration."""
        to = self.destination
        user, at, _ = to.login.rpartition("@")
        host = f"[{address}]" if ":" in address else address
        port = f":{to.port}" if to.port else ""
        return replace(self, name=name or address, ssh=f"{user}{at}{host}{port}")

    def of(self, node: NodeFacts, facts: ClusterFacts) -> Reach:
        """A node that was reached by this one: itself where it is the one that was asked."""
        return self if node.name == facts.asked else self.at(node.address, node.name)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that was not asked yet; ``name`` is empty where only an address is known, ``addresses`` in order."""

    name: str
    addresses: tuple[str, ...]

    @property
    def key(self) -> str:
        """By what it is known: its name, else its address."""
        return self.name or self.addresses[0]


def reach(words: str, file: Path) -> Reach:
    """Return how to reach the node that ``words`` name: a Proxmox host of ``file``, or ``root@ADDRESS[:PORT]``.

    Without words it is the file's only Proxmox host. ``InputError`` says which there are; ``PreflightError``: the file
    gives no way in.
    """
    config = os.environ.get(SSH_CONFIG)
    ssh_config = Path(config) if config else None
    if "@" in words:
        return Reach(words, destination_checked(words), ssh_config)
    hosts = _proxmox_hosts(words, file)
    name = words
    if not words and len(hosts) == 1:
        (name,) = hosts
    if name not in hosts:
        raise _unknown_host(words, file, tuple(hosts))
    ssh = hosts[name].ssh
    if ssh is None:
        raise no_ssh_error(f"Unable to reach {name}")
    return Reach(name, ssh, ssh_config)


def destination_checked(words: str) -> str:
    """``words`` when ssh can take them as a destination; else ``InputError``."""
    if not _DESTINATION.fullmatch(words):
        raise InputError(f"Unable to use {words!r} as a host", resolution=f"Write {DIRECT}.")
    destination_of(words)
    return words


def _proxmox_hosts(words: str, file: Path) -> dict[str, ProxmoxHost]:
    """The file's Proxmox hosts by their names; ``InputError`` without a file."""
    if not file.is_file():
        what = f"no host is named, and there is no {file}"
        if words:
            what = f"{words} is no host: there is no {file}"
        raise InputError(f"Unable to find the cluster: {what}", resolution=f"Name a node: {DIRECT}.")
    # Nothing that a node's address needs: they take as long as a node does to answer.
    from provisioner.lab.opening import open_lab
    from provisioner.labfile.hosts import ProxmoxHost

    hosts = open_lab(file, needs="none").resolved.hosts
    return {name: host for name, host in hosts.items() if isinstance(host, ProxmoxHost)}


def _unknown_host(words: str, file: Path, names: tuple[str, ...]) -> InputError:
    """The error for words that name none of the file's Proxmox hosts, or for no words where it has not just one."""
    known = f"Its Proxmox hosts are: {', '.join(names)}." if names else "It has no Proxmox host."
    resolution = f"Name one of them, or write {DIRECT}."
    if words:
        return InputError(f"Unable to find host {words} in {file}", details=known, resolution=resolution)
    if names:
        return InputError(f"Unable to choose one of {file}'s hosts", details=known, resolution="Name one.")
    return InputError(f"Unable to find a Proxmox host in {file}", details=known, resolution=resolution)


def gather(asked: Reach, emit: Emit = lambda _event: None) -> ClusterFacts:
    """Ask all nodes that are found from ``asked`` on; those that do not answer are ``silent``, with the reason.

    ``UnavailableError``: ``asked`` itself does not answer. ``PreflightError``: it is no Proxmox VE host.
    """
    lists = read_lists(asked)
    if not lists.is_proxmox:
        raise PreflightError(
            f"Unable to look at a cluster: {asked.name} is no Proxmox VE host",
            details="There is no pvecm on it.",
            resolution="Name a node of the cluster: root@ADDRESS[:PORT].",
        )
    nodes, silent = _all_found(asked, lists, emit)
    for name, again in _observed_again(asked, claims_of(nodes.values(), silent.values()), emit).items():
        if isinstance(again, NodeFacts):
            nodes[name] = again
        else:
            silent[name] = again
            del nodes[name]
    names = set(nodes)
    for node in nodes.values():
        names.update(node.addresses)
    return ClusterFacts(
        asked=lists.name,
        nodes=tuple(sorted(nodes.values(), key=lambda node: node.name)),
        silent=tuple(silent[key] for key in sorted(silent) if key not in names),
    )


def observe_node(node: Reach, emit: Emit = lambda _event: None) -> NodeFacts:
    """Ask one node for its facts; ``UnavailableError``: it does not answer, else a ``ProvisionError`` says why."""
    emit(ApplyProgress(node.name, "look at it"))
    shell = node.shell
    shell.open()
    offset = clock_offset(lambda: _first_word(node))
    said = script_answer(shell, "sh", "look.sh", (), OBSERVE_TIMEOUT_S)
    return read_node(said, node.destination.host, offset)


def read_lists(node: Reach) -> NodeFacts:
    """Ask one node only for its name and for the nodes that its lists have; errors as of ``observe_node``."""
    node.shell.open()
    _first_word(node)
    said = script_answer(node.shell, "sh", "look.sh", ("lists",), OBSERVE_TIMEOUT_S)
    return read_node(said, node.destination.host)


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


def _all_found(asked: Reach, lists: NodeFacts, emit: Emit) -> tuple[dict[str, NodeFacts], dict[str, Silent]]:
    """The nodes that the lists lead to, and those that do not answer, by name (or address, where that is all).

    ``lists``: what ``asked`` said of them, so that it and they are observed at the same time.
    """
    nodes, silent = dict[str, NodeFacts](), dict[str, Silent]()
    tried = {asked.destination.host}
    known: Iterable[NodeFacts] = [lists]
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        first = pool.submit(observe_node, asked, emit)
        for _ in range(ROUNDS):
            wanted = list[Candidate]()
            for candidate in candidates(known):
                is_tried = tried.issuperset(candidate.addresses)
                if candidate.key not in silent or not is_tried:
                    wanted.append(candidate)
            answers = list(pool.map(lambda candidate: _ask(asked, candidate, lists, emit), wanted))
            for candidate, found in zip(wanted, answers, strict=True):
                tried.update(candidate.addresses)
                if isinstance(found, Silent):
                    silent[candidate.key] = found
                else:
                    nodes.setdefault(found.name, found)
            if not wanted and lists.name in nodes:
                break
            nodes[lists.name] = first.result()
            known = nodes.values()
    return nodes, silent


def _observed_again(asked: Reach, names: Mapping[str, str], emit: Emit) -> dict[str, NodeFacts | Silent]:
    """Observe nodes once more: what they said of one that does not answer is older than its silence."""

    def ask(name: str) -> NodeFacts | Silent:
        try:
            return observe_node(asked.at(names[name], name), emit)
        except ProvisionError as error:
            return Silent(name, names[name], _why(error))

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        return dict(zip(names, pool.map(ask, names), strict=True))


def _ask(asked: Reach, candidate: Candidate, first: NodeFacts, emit: Emit) -> NodeFacts | Silent:
    """Observe a candidate at each of its addresses, then by its name; an answer of another node does not count."""
    reasons, key_advice = list[str](), ""
    for address in candidate.addresses:
        try:
            found = observe_node(asked.at(address, candidate.name), emit)
        except ProvisionError as error:  # why it is silent is a fact like others
            failure = ssh_failure(error.details)
            reasons.append(f"{_why(error)}. {error.resolution}" if failure == UNKNOWN_KEY else _why(error))
            if failure == CHANGED_KEY:
                key_advice = key_advice or error.resolution
            continue
        objection = _why_another(found, candidate, first)
        if not objection:
            return found
        reasons.append(objection)
    by_name = _by_name(asked, candidate, first, emit) if candidate.name else None
    if by_name is not None:
        return by_name
    where = candidate.addresses[0] if candidate.addresses else ""
    why = "; ".join(dict.fromkeys(reasons)) or "no address of it is known"
    return Silent(candidate.name, where, why, key_advice)


def _by_name(asked: Reach, candidate: Candidate, first: NodeFacts, emit: Emit) -> NodeFacts | None:
    """The node where this machine has its name: the lists do not know of an address that changed."""
    try:
        found = observe_node(asked.at(candidate.name, candidate.name), emit)
    except ProvisionError:
        return None  # a name that leads nowhere is the usual case
    return None if _why_another(found, candidate, first) else found


def _why_another(found: NodeFacts, candidate: Candidate, first: NodeFacts) -> str:
    """Return why what answered is not the node that was looked for; empty when it is."""
    if not found.is_proxmox:
        return f"at {found.address} is {found.name}, no Proxmox VE host"
    ours, theirs = _cluster(first), _cluster(found)
    if ours and theirs and ours != theirs:
        return f"at {found.address} is {found.name}, of the cluster {theirs}"
    if candidate.name and candidate.name != found.name:
        return f"at {found.address} is {found.name}"
    return ""


def _cluster(node: NodeFacts) -> str:
    """The cluster's name by the list with which the node starts; empty without one."""
    conf = node.starting_conf
    return conf.cluster if conf else ""


def _why(error: ProvisionError) -> str:
    """An error in one line: its message, and the last line of what was said."""
    last = (error.details.strip().splitlines() or [""])[-1]
    return f"{error.message}: {last}" if last else error.message


def _seconds(date: bytes) -> float:
    """Return what ``date +%s.%N`` printed."""
    try:
        return float(date)
    except ValueError as error:
        raise UnreadableError("Unable to read the node's clock", details=date.decode(errors="replace")) from error


def candidates(nodes: Iterable[NodeFacts]) -> tuple[Candidate, ...]:
    """The nodes of all lists except those in ``nodes``, then addresses that speak to corosync without a name.

    pmxcfs's address comes first: it is the node's own; a link of corosync may be in a network of its own.
    """
    answered = tuple(nodes)
    listed = _listed(answered)
    own = set[str]()
    for node in answered:
        own.update(node.all_addresses)
        listed.pop(node.name, None)
    known = set(own)
    found = list[Candidate]()
    for name, addresses in sorted(listed.items()):
        known.update(addresses)
        untried = [address for address in addresses if address and address not in own]
        found.append(Candidate(name, tuple(dict.fromkeys(untried))))
    for address in _senders(answered):
        if address not in known:
            found.append(Candidate("", (address,)))
    return tuple(found)


def _listed(nodes: Iterable[NodeFacts]) -> dict[str, list[str]]:
    """The addresses by name that the nodes' lists have, in the order in which they are to be tried."""
    addresses_by_name = dict[str, list[str]]()
    for node in nodes:
        for peer in node.peers:
            addresses_by_name.setdefault(peer.name, []).append(peer.address)
        for member in node.listed:
            addresses_by_name.setdefault(member.name, []).extend(member.addresses)
    return addresses_by_name


def _senders(nodes: Iterable[NodeFacts]) -> list[str]:
    """The addresses from which packets came to the nodes' corosync, each once."""
    senders = list[str]()
    for node in nodes:
        senders += [*node.heard.values(), *node.signatures.turned_away]
    return list(dict.fromkeys(senders))


def claims_of(nodes: Iterable[NodeFacts], silent: Iterable[Silent]) -> Mapping[str, str]:
    """The nodes (name → address) that say a silent one is joined: corosync takes seconds to see that one is gone."""
    silent_names = {node.name for node in silent if node.name}
    claims = dict[str, str]()
    for node in nodes:
        present_names = {member.name for member in node.running if member.nodeid in node.present}
        if not silent_names.isdisjoint(present_names):
            claims[node.name] = node.address
    return claims


def signs_of_life(shell: Shell, addresses: Sequence[str]) -> tuple[Sign, ...]:
    """Return what came back at each address when the node pinged it and knocked at its ssh port."""
    if not addresses:
        return ()
    said = script_answer(shell, "bash", "signs.sh", addresses, SIGNS_TIMEOUT_S)
    signs = list[Sign]()
    for row in sorted(line.split("\t") for line in said.splitlines()):
        if len(row) == SIGN_WORDS:
            address, how, state, text = row
            signs.append(Sign(address, "ping" if how == "ping" else "ssh", is_alive=state == "alive", said=text))
    return tuple(signs)


def script_answer(shell: Shell, program: str, script: str, arguments: Sequence[str], timeout_s: float) -> str:
    """Return what a script of ``data/cluster`` wrote on the node; ``ProviderError`` when it failed there."""
    text = (paths.data() / "cluster" / script).read_text(encoding="utf-8")
    done = shell.run([program, "-c", text, script, *arguments], timeout_s=timeout_s)
    if done.returncode:
        raise ProviderError(
            f"Unable to look around on {shell.destination} ({script})",
            details=Foreign.of_output(done.stderr),
        )
    return done.stdout.decode(errors="replace")


def progress_of(target: str, emit: Emit) -> Emit:
    """``emit`` for facts gathered during work on ``target``: what other nodes are asked is progress of that work."""

    def emit_as_progress(event: Event) -> None:
        if isinstance(event, ApplyProgress) and event.target != target:
            event = ApplyProgress(target, f"{event.message}: {event.target}")
        emit(event)

    return emit_as_progress
