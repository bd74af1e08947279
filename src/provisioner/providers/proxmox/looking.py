"""One program in many containers by one command on their node: ``ssh`` is asked once, however many there are.

The node's side gets everything by stdin and keeps it, while it works, in a folder of its memory that only root reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from provisioner.providers.base import Looked
from provisioner.providers.proxmox import frozen, inside, volumes
from provisioner.providers.proxmox.pct import Call
from provisioner.providers.proxmox.shell import SESSIONS, Shell
from provisioner.providers.proxmox.ssh_failures import no_ssh
from provisioner.providers.proxmox.volume_scripts import READY
from provisioner.values import limits
from provisioner.values.errors import ProviderError
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Execution

LATE, CUT = "late", "cut"
GRACE_S = 5
DETAILS_BYTES = 200
JOBS = 8
"""At least so many are asked at once."""
_ONE = r"""
folder=$1 limit=$2 grace=$3 most=$4 n=$5
ask() {
  code=0
  cat "$folder/$n.head" "$folder/shared" "$folder/$n.own" |
    timeout --foreground -k "$grace" "$limit" sh "$folder/$n.call" 3>&- || code=$?
  echo "$code" >"$folder/$n.code"
}
# What outlives its call may hold its outputs open for ever.
keep() { timeout --foreground "$((limit + 2 * grace))" head -c "$((most + 1))" >"$folder/$n.$1"; }
began=$(date +%s)
{ ask 2>&1 >&3 3>&- | keep err; } 3>&1 | keep out
code=
[ "$(($(date +%s) - began))" -lt "$limit" ] || code=late
for one in out err; do
  [ "$(($(wc -c <"$folder/$n.$one")))" -le "$most" ] || { code=cut; : >"$folder/$n.out"; : >"$folder/$n.err"; }
done
[ -z "$code" ] || echo "$code" >"$folder/$n.code"
"""
LOOK = r"""
set -eu
umask 077
root=$1 limit=$2 grace=$3 most=$4 one=$5 ready=$6
read -r count size
[ "$count" = 0 ] || command -v pct >/dev/null || { echo 'There is no pct there.' >&2; exit 1; }
folder=$(mktemp -d /dev/shm/provision.XXXXXX)
trap 'rm -rf -- "$folder"' EXIT
trap 'exit 129' HUP INT TERM PIPE
head -c "$size" >"$folder/shared"
n=0
while [ "$n" -lt "$count" ]; do
  read -r call head own
  head -c "$call" >"$folder/$n.call"
  head -c "$head" >"$folder/$n.head"
  head -c "$own" >"$folder/$n.own"
  n=$((n + 1))
done
printf '%s\n' "$(sh -c "$ready" sh "$root" | tr '\n' ' ')"
# A call costs half a second of a processor on the node before anything is asked in the container.
jobs=$((2 * $(nproc)))
seq 0 "$((n - 1))" | xargs -r -P "$((jobs > 8 ? jobs : 8))" -n 1 sh -c "$one" sh "$folder" "$limit" "$grace" "$most"
n=0
while [ "$n" -lt "$count" ]; do
  printf '%s %s %s\n' "$(cat "$folder/$n.code")" "$(wc -c <"$folder/$n.out")" "$(wc -c <"$folder/$n.err")"
  cat "$folder/$n.out" "$folder/$n.err"
  n=$((n + 1))
done
"""


@dataclass(frozen=True, slots=True)
class _Answer:
    """How one call ended: its exit code, ``LATE``, or ``CUT`` when it wrote more than it may."""

    code: str
    out: bytes
    err: bytes


def look(
    shell: Shell | None,
    command: Sequence[str],
    vmids: Mapping[str, int],
    stdins: Mapping[str, bytes],
    *,
    shared: bytes,
    timeout_s: float,
) -> Looked:
    """What ``command`` gave in each of the containers, and the artifact volumes that are ready on the node.

    Those in which it did not run, took longer than ``timeout_s`` or wrote more than ``limits.OUTPUT_BYTES`` are among
    the failures. ``ProviderError`` when the node itself does not do what it is told.
    """
    if shell is None:
        if stdins:
            raise no_ssh(f"Unable to look into {', '.join(stdins)}")
        return Looked({}, frozenset())
    calls = {name: Call(vmids[name], command) for name in stdins}
    stdin = b"".join(_input(list(calls.values()), list(stdins.values()), shared))
    first, answers = _asked(shell, calls, stdin, timeout_s)
    stopped = [calls[name] for name, answer in answers.items() if answer.code in (LATE, CUT)]
    with ThreadPoolExecutor(SESSIONS) as pool:  # what lxc-attach leaves behind
        list(pool.map(lambda call: inside.kill(shell, call), stopped))
    executions: dict[str, Execution] = {}
    failures: dict[str, ProviderError] = {}
    for name, answer in answers.items():
        try:
            executions[name] = _execution(name, calls[name], answer, timeout_s)
        except ProviderError as error:
            if answer.code == LATE:
                error.details = frozen.explained(shell, vmids[name], error.details)
            failures[name] = error
    return Looked(executions, frozenset(first.decode(errors="replace").split()), failures)


def _asked(shell: Shell, calls: Mapping[str, Call], stdin: bytes, timeout_s: float) -> tuple[bytes, dict[str, _Answer]]:
    """The line about volumes, and how each of the calls ended."""
    most = limits.OUTPUT_BYTES
    argv = ["sh", "-c", LOOK, "sh", volumes.ROOT, str(round(timeout_s)), str(GRACE_S), str(most), _ONE, READY]
    rounds = len(calls) // JOBS + 1
    whole_s = limits.COMMAND_S + rounds * (timeout_s + GRACE_S)
    done = shell.run(argv, stdin=stdin, timeout_s=whole_s, limit=(len(calls) + 1) * 2 * most)
    what = f"Unable to look into containers on {shell.destination}"
    if done.returncode:
        resolution = "Does ssh: lead to a Proxmox VE node, as root?"
        raise ProviderError(what, details=Foreign.of_output(done.stderr), resolution=resolution)
    first, _, rest = done.stdout.partition(b"\n")
    try:
        return first, dict(zip(calls, _answers(rest, len(calls)), strict=True))
    except ValueError as error:
        details = rest[:DETAILS_BYTES].decode(errors="replace")
        raise ProviderError(f"{what}: its answer is damaged", details=details) from error


def _input(calls: Sequence[Call], stdins: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
    yield b"%d %d\n" % (len(calls), len(shared))
    yield shared
    for call, own in zip(calls, stdins, strict=True):
        parts = (call.line, call.head, own)
        yield b"%d %d %d\n" % tuple(len(part) for part in parts)
        yield b"".join(parts)


def _answers(text: bytes, count: int) -> Iterator[_Answer]:
    for _ in range(count):
        line, _, text = text.partition(b"\n")
        code, out, err = line.decode().split()
        end = int(out) + int(err)
        yield _Answer(code, text[: int(out)], text[int(out) : end])
        text = text[end:]


def _execution(name: str, call: Call, answer: _Answer, timeout_s: float) -> Execution:
    what = f"Unable to look into container {name}"
    if answer.code == LATE:
        raise ProviderError(what, details=limits.killed_after(timeout_s))
    if answer.code == CUT:
        raise ProviderError(what, details=limits.cut_at(limits.OUTPUT_BYTES))
    own = call.own_stderr(answer.err)
    if own is None:
        raise ProviderError(what, details=Foreign.of_output(answer.err) or "pct exec said nothing.")
    return Execution(int(answer.code), answer.out, own)
