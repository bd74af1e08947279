"""Observe the lab on a node: in few calls, however many unmanaged containers there are, and inside of ours by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from itertools import islice
from typing import Any

from provisioner.hosts.base import Looked
from provisioner.hosts.proxmox import execute, marks, network, templates, volumes
from provisioner.hosts.proxmox.execute import PctCall
from provisioner.hosts.proxmox.guest import Guest, address_in, names_of, pools_of, snapshots_of
from provisioner.hosts.proxmox.host import Entry, ProxmoxHost, containers_elsewhere, elsewhere_hint, elsewhere_text
from provisioner.hosts.proxmox.ssh import SESSIONS, Shell, no_ssh_error
from provisioner.hosts.proxmox.translate import instance_of
from provisioner.hosts.proxmox.volumes import READY_SCRIPT
from provisioner.values import limits
from provisioner.values.errors import ProviderError
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Execution, Fleet, HostState, Instance, Status


@dataclass(frozen=True, slots=True)
class _FirstAnswers:
    """The answers to the first calls: the cluster's guests, the node's containers, what templates there are."""

    cluster: Sequence[Entry]
    entries: Sequence[Entry]
    offers: Sequence[Entry]
    storages: Sequence[str]
    machine: str
    confines: bool


def observe(host: ProxmoxHost, lab: str, *, detailed: bool, adopt: Collection[str] = ()) -> Fleet:
    """The containers of ``lab``, and what else the node has."""
    first = _first_answers(host)
    entries = _entries_to_read(first, lab, adopt)
    contents, guests, ready = _second_answers(host, first, entries, detailed=detailed)
    ours = [guest for guest in guests if guest.lab == lab]
    for guest in ours:
        host.remember(guest)
    if detailed:
        ours = host.client.many([partial(_with_details, host, guest) for guest in ours])
    held: dict[int, tuple[str, ...] | None] = {}
    if first.confines:
        told = host.client.many([partial(network.read_reaches, host, guest) for guest in ours])
        held = {guest.vmid: reaches for guest, reaches in zip(ours, told, strict=True)}
    adoptable: dict[str, Instance] = {}
    for guest in guests:
        if guest.mark is None and guest.name in adopt:
            adoptable[guest.name] = instance_of(guest, host.host)
    elsewhere = containers_elsewhere(host.client, first.cluster, lab)
    state = HostState(
        name=host.host,
        architecture=first.machine,
        processor_flags=host.processor_flags,
        unmanaged=unmanaged_names(first, ours, host.client.node),
        moved={name: f"on {elsewhere_text(guest)}" for name, guest in sorted(elsewhere.items())},
        moved_hints={name: elsewhere_hint(host.client.node, guest) for name, guest in elsewhere.items()},
        images=templates.gathered(contents, first.offers, first.machine).images,
        volumes=ready,
        confines=first.confines,
        adoptable=adoptable,
        image_hint=templates.HINT,
    )
    instances = [replace(instance_of(guest, host.host), reaches=held.get(guest.vmid)) for guest in ours]
    instances.sort(key=lambda instance: instance.name)
    return Fleet(lab, tuple(instances), hosts={host.host: state})


def _entries_to_read(first: _FirstAnswers, lab: str, adopt: Collection[str]) -> list[Entry]:
    """The containers whose configuration is read: those with the lab's tags, then those to be adopted."""
    with_tags: dict[int, Entry] = {}
    to_adopt: dict[int, Entry] = {}
    for entry in first.entries:
        vmid = int(entry["vmid"])
        if marks.is_candidate(str(entry.get("tags", "")), lab):
            with_tags[vmid] = entry
        if entry.get("name") in adopt:
            to_adopt[vmid] = entry
    return list((with_tags | to_adopt).values())


def _first_answers(host: ProxmoxHost) -> _FirstAnswers:
    client = host.client
    node = client.node
    calls: list[Callable[[], Any]] = [
        partial(client.get, "cluster", "resources", type="vm"),
        host.entries,
        partial(client.get, "nodes", node, "aplinfo"),
        partial(templates.storages_of, client),
        lambda: host.machine,
        partial(network.is_firewall_on, client),
    ]
    return _FirstAnswers(*client.many(calls))


def _second_answers(
    host: ProxmoxHost, first: _FirstAnswers, entries: Sequence[Entry], *, detailed: bool
) -> tuple[list[Any], list[Guest], frozenset[str]]:
    """What is on the storages for templates, the containers in ``entries``, and the artifact volumes that are ready.

    The last only if ``detailed``: a command on the node tells them, and it is the one that looks into containers, too.
    """
    pools = pools_of(first.cluster)
    content_calls = templates.calls(host.client, first.storages)
    guest_calls: list[Callable[[], Any]] = []
    for entry in entries:
        pool = pools.get(int(entry["vmid"]), "")
        guest_calls.append(partial(host.guest, entry, pool))
    ready_calls: list[Callable[[], Any]] = []
    if host.shell and detailed:
        ready_calls.append(partial(volumes.ready, host.shell))
    answers = iter(host.client.many([*content_calls, *guest_calls, *ready_calls]))
    contents = list(islice(answers, len(content_calls)))
    guests = list(islice(answers, len(guest_calls)))
    ready: frozenset[str] = next(answers, frozenset())
    return contents, [guest for guest in guests if guest is not None], ready


def _with_details(host: ProxmoxHost, guest: Guest) -> Guest:
    """The same container with its snapshots, and its address when it runs."""
    snapshots = host.client.find(*host.path(guest.vmid, "snapshot")) or []
    interfaces = None
    if guest.status is Status.RUNNING:
        interfaces = host.client.find(*host.path(guest.vmid, "interfaces"))
    return replace(guest, snapshots=snapshots_of(snapshots, guest.vmid), address=address_in(interfaces))


def unmanaged_names(first: _FirstAnswers, ours: Sequence[Guest], node: str) -> frozenset[str]:
    """The names that guests have on the node which are not this lab's: containers and virtual machines."""
    our_numbers = {guest.vmid for guest in ours}
    our_names = {guest.name for guest in ours}
    other_containers = [entry for entry in first.entries if entry["vmid"] not in our_numbers]
    names = set(names_of(other_containers))
    for guest in first.cluster:
        is_machine_here = guest.get("node") == node and guest.get("type") != "lxc"
        if is_machine_here and guest.get("name"):
            names.add(str(guest["name"]))
    return frozenset(names - our_names)


# One program in many containers by one command on their node: `ssh` is asked once, however many there are. The node's
# side gets everything by stdin and keeps it, while it works, in a folder of its memory that only root reads.

LATE, CUT = "late", "cut"
LOOK_GRACE_S = 5
DETAILS_BYTES = 200
LOOK_JOBS = 8
"""At least so many are asked at once."""
_ONE_SCRIPT = r"""
folder=$1 limit=$2 grace=$3 most=$4 held=$5 configs=$6 n=$7
ask() {
  code=0
  cat "$folder/$n.head" "$folder/shared" "$folder/$n.own" |
    timeout --foreground -k "$grace" "$limit" sh "$folder/$n.call" 3>&- || code=$?
  echo "$code" >"$folder/$n.code"
}
# What outlives its call may hold its outputs open for ever.
keep() { timeout --foreground "$((limit + 2 * grace))" head -c "$((most + 1))" >"$folder/$n.$1"; }
read -r began _ </proc/uptime
{ ask 2>&1 >&3 3>&- | keep err; } 3>&1 | keep out
code=
read -r ended _ </proc/uptime
[ "$((${ended%.*} - ${began%.*}))" -lt "$limit" ] || code=late
for size in $(stat -c %s "$folder/$n.out" "$folder/$n.err"); do
  [ "$size" -le "$most" ] || { code=cut; : >"$folder/$n.out"; : >"$folder/$n.err"; }
done
[ -z "$code" ] || { echo "$code"; sh -c "$held" sh "$configs" "$(cat "$folder/$n.vmid")"; } >"$folder/$n.code"
"""
LOOK_SCRIPT = (
    execute.WHY_PCT_SCRIPT
    + r"""
set -eu
umask 077
root=$1 limit=$2 grace=$3 most=$4 one=$5 ready=$6 held=$7 module=$8 configs=$9
read -r count size
[ "$count" = 0 ] || command -v pct >/dev/null || { echo 'There is no pct there.' >&2; exit 1; }
PROVISIONER_PCT=$(why_pct)
export PROVISIONER_PCT
folder=$(mktemp -d /dev/shm/provision.XXXXXX)
trap 'rm -rf -- "$folder"' EXIT
trap 'exit 129' HUP INT TERM PIPE
head -c "$size" >"$folder/shared"
n=0
while [ "$n" -lt "$count" ]; do
  read -r vmid call head own
  echo "$vmid" >"$folder/$n.vmid"
  head -c "$call" >"$folder/$n.call"
  head -c "$head" >"$folder/$n.head"
  head -c "$own" >"$folder/$n.own"
  n=$((n + 1))
done
printf '%s\n%s\n' "$PROVISIONER_PCT" "$(sh -c "$ready" sh "$root" | tr '\n' ' ')"
# Where pct is used, a call costs a second of a processor before anything is asked in the container.
jobs=$((2 * $(nproc)))
seq 0 "$((n - 1))" | xargs -r -P "$((jobs > 8 ? jobs : 8))" -n 1 \
  sh -c "$one" sh "$folder" "$limit" "$grace" "$most" "$held" "$configs"
n=0
set --
while [ "$n" -lt "$count" ]; do
  set -- "$@" "$folder/$n.code" "$folder/$n.out" "$folder/$n.err"
  n=$((n + 1))
done
[ "$count" = 0 ] || { stat -c %s "$@"; cat "$@"; }
"""
)


@dataclass(frozen=True, slots=True)
class _Answer:
    """How one call ended: its exit code, ``LATE``, or ``CUT`` when it wrote more than it may.

    ``held``: for the last two, what ``execute.HELD_SCRIPT`` said of the container.
    """

    code: str
    held: str
    out: bytes
    err: bytes


def look_into_containers(
    shell: Shell | None,
    command: Sequence[str],
    vmids: Mapping[str, int],
    stdins: Mapping[str, bytes],
    *,
    shared: bytes,
    timeout_s: float,
    on_pct: Callable[[str], None] = lambda _why: None,
) -> Looked:
    """What ``command`` gave in each of the containers, and the artifact volumes that are ready on the node.

    ``on_pct`` is called with the reason when containers are entered by ``pct`` itself, which takes a second for each.
    Those in which it did not run, took longer than ``timeout_s`` or wrote more than ``limits.OUTPUT_BYTES`` are among
    the failures. ``ProviderError`` when the node itself does not do what it is told.
    """
    if shell is None:
        if stdins:
            raise no_ssh_error(f"Unable to look into {', '.join(stdins)}")
        return Looked({}, frozenset())
    calls = {name: PctCall(vmids[name], command) for name in stdins}
    stdin = b"".join(_look_input(list(calls.values()), list(stdins.values()), shared))
    why, volumes_ready, answers = _ask_all(shell, calls, stdin, timeout_s)
    if why and calls:
        on_pct(why)
    stopped = [calls[name] for name, answer in answers.items() if answer.code in (LATE, CUT)]
    with ThreadPoolExecutor(SESSIONS) as pool:  # what lxc-attach leaves behind
        list(pool.map(lambda call: execute.kill_processes(shell, call), stopped))
    executions: dict[str, Execution] = {}
    failures: dict[str, ProviderError] = {}
    for name, answer in answers.items():
        try:
            executions[name] = _execution(name, calls[name], answer, timeout_s)
        except ProviderError as error:
            if answer.code == LATE:
                error.details = execute.held_text(vmids[name], error.details, answer.held)
            failures[name] = error
    return Looked(executions, frozenset(volumes_ready.split()), failures)


def _ask_all(
    shell: Shell, calls: Mapping[str, PctCall], stdin: bytes, timeout_s: float
) -> tuple[str, str, dict[str, _Answer]]:
    """Why ``pct`` was used for the calls, the line about volumes, and how each of the calls ended."""
    most = limits.OUTPUT_BYTES
    argv = [
        "sh",
        "-c",
        LOOK_SCRIPT,
        "sh",
        volumes.ROOT,
        str(round(timeout_s)),
        str(LOOK_GRACE_S),
        str(most),
        _ONE_SCRIPT,
        READY_SCRIPT,
        execute.HELD_SCRIPT,
        execute.PCT_MODULE,
        execute.CONFIGS,
    ]
    rounds = len(calls) // LOOK_JOBS + 1
    whole_s = limits.COMMAND_S + rounds * (timeout_s + LOOK_GRACE_S)
    done = shell.run(argv, stdin=stdin, timeout_s=whole_s, limit=(len(calls) + 1) * 2 * most)
    what = f"Unable to look into containers on {shell.destination}"
    if done.returncode:
        raise ProviderError(what, details=Foreign.of_output(done.stderr), resolution=execute.NO_NODE_HINT)
    why, _, rest = done.stdout.partition(b"\n")
    ready, _, rest = rest.partition(b"\n")
    try:
        answers = dict(zip(calls, _answers_in(rest, len(calls)), strict=True))
    except ValueError as error:
        details = rest[:DETAILS_BYTES].decode(errors="replace")
        raise ProviderError(f"{what}: its answer is damaged", details=details) from error
    return why.decode(errors="replace"), ready.decode(errors="replace"), answers


def _look_input(calls: Sequence[PctCall], stdins: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
    yield b"%d %d\n" % (len(calls), len(shared))
    yield shared
    for call, own in zip(calls, stdins, strict=True):
        parts = (call.script, call.head, own)
        yield b"%d %d %d %d\n" % (call.vmid, *map(len, parts))
        yield b"".join(parts)


def _answers_in(text: bytes, count: int) -> Iterator[_Answer]:
    """The answers in ``text``: a line with the length of each of their three parts, and then all parts."""
    *lines, rest = text.split(b"\n", 3 * count)
    lengths = list(map(int, lines))
    if (len(lengths), sum(lengths)) != (3 * count, len(rest)):
        raise ValueError("it has another length than it says")
    parts = BytesIO(rest)
    for first in range(0, 3 * count, 3):
        code, out, err = map(parts.read, lengths[first : first + 3])
        ended, _, held = code.decode(errors="replace").partition("\n")
        yield _Answer(ended, held, out, err)


def _execution(name: str, call: PctCall, answer: _Answer, timeout_s: float) -> Execution:
    what = f"Unable to look into container {name}"
    if answer.code == LATE:
        raise ProviderError(what, details=limits.killed_after(timeout_s))
    if answer.code == CUT:
        raise ProviderError(what, details=limits.cut_at(limits.OUTPUT_BYTES))
    own = call.own_stderr(answer.err)
    if own is None:
        raise execute.not_begun_error(what, answer.err)
    return Execution(int(answer.code), answer.out, own)
