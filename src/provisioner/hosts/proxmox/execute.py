"""Commands and files in containers, by what ``pct exec`` calls on their node: Proxmox' API can do neither."""

from __future__ import annotations

import secrets
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

from provisioner.hosts.proxmox.ssh import CommandKilledError, Shell
from provisioner.values import limits
from provisioner.values.errors import ProviderError, UnavailableError
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Execution

KILL_TIMEOUT_S = 3 * limits.KILL_S
"""It has patience of its own, and where ``pct`` is used a call costs its node a second."""
_BLOCK_BYTES = 1 << 20
_PUSH_SCRIPT = """
umask 077
path=$1
if [ -d "$path" ] && [ ! -L "$path" ]; then echo "it is a directory" >&2; exit 1; fi
new=$(mktemp "$(dirname -- "$path")/.provision.XXXXXX") || exit 1
trap 'rm -f -- "$new"' EXIT
cat >"$new" || exit 1
size=$(($(wc -c <"$new")))
if [ "$size" != "$5" ]; then echo "$5 bytes were sent, $size arrived" >&2; exit 1; fi
chown "$3:$4" "$new" && chmod "$2" "$new" && mv -f -- "$new" "$path"
"""
_PULL_SCRIPT = """
if [ -d "$1" ]; then echo "it is a directory, not a file" >&2; exit 1; fi
if [ -e "$1" ] && [ ! -f "$1" ]; then echo "it is no file" >&2; exit 1; fi
exec cat -- "$1"
"""


def execute(
    shell: Shell,
    vmid: int,
    command: Sequence[str],
    *,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    timeout_s: float = limits.COMMAND_S,
    limit: int = limits.OUTPUT_BYTES,
    name: str = "",
) -> Execution:
    """Run ``command`` as root in the container; one that is not there gives 127, one that hangs is killed.

    ``name`` is what errors call the container. ``ProviderError`` when it does not run.
    """
    call = PctCall(vmid, command, environment or {})
    what = f"Unable to run {command[0]} in container {name or vmid}"
    return _run_call(shell, call, what, chunks=[stdin], timeout_s=timeout_s, limit=limit)


def push_file(
    shell: Shell,
    vmid: int,
    source: Path | bytes,
    path: str,
    *,
    mode: int = 0o600,
    uid: int = 0,
    gid: int = 0,
    name: str = "",
) -> None:
    """Write ``path`` in the container anew with this mode and owner, streamed; it appears when it is whole."""
    chunks: Sequence[bytes] | Iterator[bytes]
    if isinstance(source, bytes):
        size, chunks = len(source), [source]
    else:
        size, chunks = source.stat().st_size, file_blocks(source)
    call = PctCall(vmid, ["sh", "-c", _PUSH_SCRIPT, "sh", path, f"{mode:04o}", str(uid), str(gid), str(size)])
    what = f"Unable to copy a file to {path} in container {name or vmid}"
    _require_success(_run_call(shell, call, what, chunks=chunks, timeout_s=limits.LONGEST_S), what)


def pull_file(shell: Shell, vmid: int, path: str, target: Path, *, name: str = "") -> None:
    """Copy ``path`` in the container to ``target``, streamed; that appears when it is whole."""
    what = f"Unable to copy {path} from container {name or vmid}"
    call = PctCall(vmid, ["sh", "-c", _PULL_SCRIPT, "sh", path])
    with whole_file(target) as file:
        _require_success(
            _run_call(shell, call, what, stdout=file, timeout_s=limits.LONGEST_S, limit=limits.FILE_BYTES), what
        )


def kill_processes(shell: Shell, call: PctCall, signal: str = "KILL", *, is_ending: bool = False) -> None:
    """End a call's processes in the container, by force where a signal does not; a container that is gone has none.

    A container whose shell does not do what it is told is not waited for: its node sees its processes, too.
    ``is_ending`` says that a session is held until this is done, as in ``Shell.run``.
    """
    try:
        killing = killing_call(call, signal)
        ended = shell.run(killing.argv, stdin=killing.head, timeout_s=KILL_TIMEOUT_S, is_ending=is_ending)
        is_done = ended.returncode == 0
    except ProviderError:
        is_done = False
    if not is_done:
        with suppress(ProviderError):
            on_node = ["sh", "-c", KILL_SCRIPT, "sh", f"{MARK_VARIABLE}={call.mark}", "KILL", "0"]
            shell.run(on_node, timeout_s=KILL_TIMEOUT_S, is_ending=is_ending)


def execute_call(shell: Shell, call: PctCall, what: str, *, stdin: bytes = b"") -> Execution:
    """Run a call as it is; ``what`` begins the error when its container does not run."""
    return _run_call(shell, call, what, chunks=[stdin])


@contextmanager
def whole_file(target: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name once all has been written to it, and leaves nothing else behind."""
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        partial = Path(file.name)
        try:
            yield file.file
        except BaseException:
            partial.unlink()
            raise
    partial.replace(target)


def _run_call(
    shell: Shell,
    call: PctCall,
    what: str,
    *,
    chunks: Sequence[bytes] | Iterator[bytes] = (),
    stdout: IO[bytes] | None = None,
    timeout_s: float = limits.COMMAND_S,
    limit: int = limits.OUTPUT_BYTES,
) -> Execution:
    def stdin() -> Iterator[bytes]:
        yield call.head
        yield from chunks

    try:
        # In the container first: what has dropped its mark is found only while its ancestors are there.
        ended = partial(kill_processes, shell, call, is_ending=True)
        done = shell.run(call.argv, stdin=stdin(), stdout=stdout, timeout_s=timeout_s, limit=limit, before_kill=ended)
    except CommandKilledError as error:
        raise ProviderError(what, details=held_details(shell, call.vmid, error.details)) from error
    own = call.own_stderr(done.stderr)
    if own is None:
        raise not_begun_error(what, done.stderr)
    return Execution(done.returncode, done.stdout, own)


def _require_success(done: Execution, what: str) -> None:
    if done.returncode:
        raise ProviderError(what, details=Foreign.of_output(done.stderr))


def file_blocks(source: Path) -> Iterator[bytes]:
    """A file, piece by piece."""
    with source.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


# The way into a container: `pct exec` is Perl, which takes a second to start. All that it does is to look for the
# container's configuration on this node and for its monitor, and to become lxc-attach (PVE/CLI/pct.pm); a lock does
# not matter to it. So lxc-attach is called at once where `pct` is that program and the container runs. In all other
# cases `pct` itself is: it may be a wrapper that allows less, and it says best why a container cannot be entered.

PCT_MODULE = "/usr/share/perl5/PVE/CLI/pct.pm"
CONFIGS = "/etc/pve/local/lxc"
"""The configurations of the node's own containers."""
NO_PCT = "There is no pct there."
NO_NODE_HINT = "Does ssh: lead to a Proxmox VE node, as root?"

_ATTACH_CALLS = (
    """exec(@lxc_attach_cmd);\
my@lxc_attach_cmd=('lxc-attach','-n',$vmid);\
push@lxc_attach_cmd,$keep_env?'--keep-env':'--clear-env';\
push@lxc_attach_cmd,'--',@{$param->{'extra-args'}};""",
    "exec('lxc-attach','-n',$vmid);exec('lxc-attach','-n',$vmid,'--',@{$param->{'extra-args'}});",
)
"""The lines of ``pct``'s module that call lxc-attach, since 5.0.9 and before, each once and without spaces."""
WHY_PCT_SCRIPT = rf"""
why_pct() {{
  [ -z "${{SSH_ORIGINAL_COMMAND-}}" ] || {{ echo 'sshd runs a command of its own for this key'; return; }}
  [ -z "${{SUDO_COMMAND-}}" ] || {{ echo 'the login goes through sudo'; return; }}
  [ "$(id -u)" = 0 ] || {{ echo 'the login is not root'; return; }}
  grep -qsx 'PVE::CLI::pct->run_cli_handler();' "$(command -v pct)" || {{ echo "pct is not Proxmox VE's own"; return; }}
  command -v lxc-attach >/dev/null || {{ echo 'there is no lxc-attach'; return; }}
  case $(grep -s 'lxc[-_]attach' "$module" | tr -d ' \t' | LC_ALL=C sort -u | tr -d '\n') in
    {"|".join(map(shlex.quote, _ATTACH_CALLS))}) ;;
    *) echo 'pct of this version calls lxc-attach in another way' ;;
  esac
}}
"""
"""Says by ``why_pct`` why lxc-attach may not be called instead of ``pct exec``; ``module``: the path ``PCT_MODULE``."""
_ENTER_SCRIPT = f"""{WHY_PCT_SCRIPT}
module=$1 configs=$2 vmid=$3; shift 3
command -v pct >/dev/null || {{ echo '{NO_PCT}' >&2; exit 127; }}
if [ -z "${{PROVISIONER_PCT-$(why_pct)}}" ] && [ -f "$configs/$vmid.conf" ] &&
  [ "$(lxc-info -n "$vmid" -s -H 2>/dev/null)" = RUNNING ]
then exec lxc-attach -n "$vmid" --clear-env -- "$@"; fi
exec pct exec "$vmid" -- "$@"
"""
"""Becomes the command in the container; ``PROVISIONER_PCT``: what ``why_pct`` has said, where it was asked before."""

# A program in a container gets its arguments and environment by stdin. On a command line everybody on the node can
# read them, and a shell takes 128 KiB of them. `pct exec` hands its environment on, so the container's side begins
# with an empty one.

USUAL_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
    "LANG": "C.UTF-8",
}
"""What every command has, besides what it is given: the same as on other hosts."""
MARK_VARIABLE = "PROVISIONER_EXECUTION"
"""The variable by which the processes of one call are found again."""

_RECEIVE_SCRIPT = """
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
KILL_SCRIPT = """
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
class PctCall:
    """One program in one container."""

    vmid: int
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def argv(self) -> list[str]:
        """What the node runs."""
        return self._started("-c", _RECEIVE_SCRIPT, "provision", self.mark)

    @property
    def script(self) -> bytes:
        """The same as a script for a shell, whose place the call takes: whoever kills the shell kills it."""
        _, _, script, _, *words = self.argv
        return f"set -- {shlex.join(words)}\n{script}".encode(errors="surrogateescape")

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
        return plain_call(self.vmid, [f"{MARK_VARIABLE}={self.mark}", "/bin/sh", *shell])


def plain_call(vmid: int, command: Sequence[str]) -> list[str]:
    """What the node runs for a command that everybody may read, with nothing but the usual environment."""
    variables = [f"{name}={value}" for name, value in USUAL_ENVIRONMENT.items()]
    return ["sh", "-c", _ENTER_SCRIPT, "sh", PCT_MODULE, CONFIGS, str(vmid), "/usr/bin/env", "-i", *variables, *command]


def killing_call(call: PctCall, signal: str = "KILL", patience_s: float = 2.0) -> PctCall:
    """The call that ends another one with its children: by ``signal`` first, by force after ``patience_s``."""
    tenths = "0" if signal == "KILL" else str(round(patience_s * 10))
    return PctCall(call.vmid, ["sh", "-c", KILL_SCRIPT, "sh", f"{MARK_VARIABLE}={call.mark}", signal, tenths])


def not_begun_error(what: str, said: bytes) -> ProviderError:
    """The error for a command that did not begin in its container; ``said`` is what stood on its stderr instead."""
    details = Foreign.of_output(said)
    resolution = NO_NODE_HINT if details == NO_PCT else ""
    return ProviderError(what, details=details or "pct exec said nothing.", resolution=resolution)


# Containers that are held: the API calls them running, and nothing in them answers.

HELD_TIMEOUT_S = 15.0
HELD_SCRIPT = r"""
printf '%s %s\n' "$(timeout 5 lxc-info -n "$2" -s -H 2>/dev/null)" \
  "$(timeout 5 sed -n '/^\[/q; s/^lock: *\([a-z-]*\)$/\1/p' "$1/$2.conf" 2>/dev/null)"
"""
"""Says a container's state in LXC's word and its lock, each where it has one; ``CONFIGS`` and its number are given."""
FROZEN = "FROZEN"


def held_details(shell: Shell, vmid: int, details: str) -> str:
    """Why nothing was answered, with what to do where the container is frozen or locked."""
    try:
        done = shell.run(["sh", "-c", HELD_SCRIPT, "sh", CONFIGS, str(vmid)], timeout_s=HELD_TIMEOUT_S)
    except (ProviderError, UnavailableError):
        return details
    return held_text(vmid, details, done.stdout.decode(errors="replace"))


def held_text(vmid: int, details: str, said: str) -> str:
    """The details with what ``HELD_SCRIPT`` said of the container."""
    state, _, lock = said.rstrip("\n").partition(" ")
    if lock:
        return (
            f"{details}\nCT {vmid} is locked ({lock}). Wait until that has ended; a lock that nothing holds any more "
            f"goes by, on its node: pct unlock {vmid}"
        )
    if state == FROZEN:
        return f"{details}\nCT {vmid} is frozen: nothing in it runs. Resume it, on its node: lxc-unfreeze -n {vmid}"
    return details
