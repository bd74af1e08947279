"""Calls of ``pct exec``: a program in a container gets its arguments and environment by stdin, not on a command line.

Arguments can be read by everybody on the node, and a shell takes 128 KiB of them. ``pct exec`` hands its environment
on, so the container's side begins with an empty one.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
    "LANG": "C.UTF-8",
}
"""What every command has, besides what it is given: the same as on other hosts."""
MARK = "PROVISIONER_EXECUTION"
"""The variable by which the processes of one call are found again."""

_RECEIVE = """
mark=$1; words=; line=
while IFS= read -r line && [ "$line" != "$mark" ]; do words="$words$line
"; done
[ "$line" = "$mark" ] || exit 125
printf '%s:inside\\n' "$mark" >&2
cd "$HOME" 2>/dev/null || cd /
unset line OLDPWD
eval "unset mark words; $words"
(exec "$@")
exit $?
"""
KILL = """
mark=$1 signal=$2 patience=$3 rounds=50
marked() { grep -lsF "$mark" /proc/[0-9]*/environ | sed 's,[^0-9],,g'; }
lives() { grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status"; }
parents() { grep -s '^PPid:' /proc/[0-9]*/status | sed 's,[^0-9:],,g'; }
tree() {
  all=" $(marked | tr '\\n' ' ')"; before=
  while [ "$all" != "$before" ]; do
    before=$all
    for line in $(parents); do
      case $all in *" ${line%%:*} "*) continue ;; esac
      case $all in *" ${line##*:} "*) all="$all${line%%:*} " ;; esac
    done
  done
}
tree
for one in $all; do kill -s "$signal" "$one" 2>/dev/null; done
old=$all
while [ "$patience" -gt 0 ] && [ "$old" ]; do
  sleep 0.1; patience=$((patience - 1)); alive=
  for one in $old; do lives "$one" && alive="$alive $one"; done
  old=$alive
done
while [ "$rounds" -gt 0 ]; do
  tree; alive=
  for one in $old $all; do lives "$one" && kill -s KILL "$one" 2>/dev/null && alive="$alive $one"; done
  [ "$alive" ] || exit 0
  sleep 0.1; old=$alive; rounds=$((rounds - 1))
done
exit 1
"""
"""Ends all that bears a mark in its environment, and their descendants: what has dropped the mark is found by these.

It ends when none of them lives any more: a process goes on for a moment after it was killed. One that is dead and
that nobody has waited for lives no more; its parent may never do that."""


@dataclass(frozen=True, slots=True)
class Call:
    """One program in one container."""

    vmid: int
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def argv(self) -> list[str]:
        """What the node runs."""
        return self._started("-c", _RECEIVE, "provision", self.mark)

    @property
    def line(self) -> bytes:
        """The same as a line for a shell, whose place the call takes: whoever kills the shell kills it."""
        return f"exec {shlex.join(self.argv)}\n".encode(errors="surrogateescape")

    @property
    def head(self) -> bytes:
        """What its stdin begins with; the program's own follows."""
        return f"{self.words}{self.mark}\n".encode(errors="surrogateescape")

    @property
    def words(self) -> str:
        """The environment and the command, for a shell in the container to read."""
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.environment.items())
        return f"{exports}set -- {shlex.join(self.command)}\n"

    def opened(self, path: str) -> list[str]:
        """What the node runs when ``words`` lie in a file of the container's: for a terminal, which has no head."""
        script = f'cd "$HOME" 2>/dev/null || cd /\n. {shlex.quote(path)}\nrm -f {shlex.quote(path)}\nexec "$@"'
        return self._started("-c", script, "provision")

    def own_stderr(self, stderr: bytes) -> bytes | None:
        """What the program itself wrote, without what ``pct`` wrote before; None when it did not begin."""
        _, begun, own = stderr.partition(f"{self.mark}:inside\n".encode())
        return own if begun else None

    def _started(self, *shell: str) -> list[str]:
        return plain(self.vmid, [f"{MARK}={self.mark}", "/bin/sh", *shell])


def plain(vmid: int, command: Sequence[str]) -> list[str]:
    """What the node runs for a command that everybody may read, with nothing but the usual environment."""
    variables = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    return ["pct", "exec", str(vmid), "--", "/usr/bin/env", "-i", *variables, *command]


def kill_call(call: Call, signal: str = "KILL", patience_s: float = 2.0) -> Call:
    """The call that ends another one with its children: by ``signal`` first, by force after ``patience_s``."""
    tenths = "0" if signal == "KILL" else str(round(patience_s * 10))
    return Call(call.vmid, ["sh", "-c", KILL, "sh", f"{MARK}={call.mark}", signal, tenths])
