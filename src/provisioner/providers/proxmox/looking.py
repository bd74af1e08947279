"""One program in many containers by one command on their node: ``ssh`` is asked once, however many there are.

The node's side gets everything by stdin and keeps it, while it works, in a folder of its memory that only root reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from provisioner.errors import ProviderError
from provisioner.providers.base import Looked
from provisioner.providers.proxmox import inside, volumes
from provisioner.providers.proxmox.pct import Call
from provisioner.providers.proxmox.shell import Shell
from provisioner.providers.proxmox.ssh_failures import no_ssh
from provisioner.providers.proxmox.volume_scripts import READY
from provisioner.state import Execution

LATE = "late"
GRACE_S = 5
_ONE = r"""
folder=$1 limit=$2 grace=$3 n=$4 code=0
began=$(date +%s)
cat "$folder/$n.head" "$folder/shared" "$folder/$n.own" |
  timeout --foreground -k "$grace" "$limit" sh "$folder/$n.call" >"$folder/$n.out" 2>"$folder/$n.err" || code=$?
[ "$(($(date +%s) - began))" -lt "$limit" ] || code=late
echo "$code" >"$folder/$n.code"
"""
LOOK = r"""
set -eu
umask 077
root=$1 limit=$2 grace=$3 one=$4 ready=$5
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
seq 0 "$((n - 1))" | xargs -r -P "$((jobs > 8 ? jobs : 8))" -n 1 sh -c "$one" sh "$folder" "$limit" "$grace"
n=0
while [ "$n" -lt "$count" ]; do
  printf '%s %s %s\n' "$(cat "$folder/$n.code")" "$(wc -c <"$folder/$n.out")" "$(wc -c <"$folder/$n.err")"
  cat "$folder/$n.out" "$folder/$n.err"
  n=$((n + 1))
done
"""


@dataclass(frozen=True, slots=True)
class _Answer:
    """How one call ended: its exit code, or ``LATE``."""

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

    ``ProviderError`` for the first in which it did not run, or took longer than ``timeout_s`` and was killed.
    """
    if shell is None:
        if stdins:
            raise no_ssh(f"Unable to look into {', '.join(stdins)}")
        return Looked({}, frozenset())
    calls = {name: Call(vmids[name], command) for name in stdins}
    stdin = b"".join(_input(list(calls.values()), list(stdins.values()), shared))
    argv = ["sh", "-c", LOOK, "sh", volumes.ROOT, str(round(timeout_s)), str(GRACE_S), _ONE, READY]
    done = shell.run(argv, stdin=stdin)
    if done.returncode:
        what = f"Unable to look into containers on {shell.destination}"
        resolution = "Does ssh: lead to a Proxmox VE node, as root?"
        raise ProviderError(what, details=done.stderr.decode(errors="replace").strip(), resolution=resolution)
    first, _, rest = done.stdout.partition(b"\n")
    answers = dict(zip(calls, _answers(rest, len(calls)), strict=True))
    for name, answer in answers.items():
        if answer.code == LATE:  # what lxc-attach leaves behind; of all, before any of them is told
            inside.kill(shell, calls[name])
    found = {name: _execution(name, calls[name], answer, timeout_s) for name, answer in answers.items()}
    return Looked(found, frozenset(first.decode().split()))


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
        raise ProviderError(what, details=f"It was killed after {timeout_s:.0f} s.")
    own = call.own_stderr(answer.err)
    if own is None:
        raise ProviderError(what, details=answer.err.decode(errors="replace").strip() or "pct exec said nothing.")
    return Execution(int(answer.code), answer.out, own)
