"""Commands and files in containers, through ``pct exec`` on their node: Proxmox' API can do neither."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

from provisioner.providers.proxmox import frozen
from provisioner.providers.proxmox.pct import KILL, MARK, Call, kill_call
from provisioner.providers.proxmox.shell import CommandKilledError, Shell
from provisioner.values import limits
from provisioner.values.errors import ProviderError
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Execution

KILL_TIMEOUT_S = 3 * limits.KILL_S
"""It has patience of its own, and a call costs its node half a second."""
_BLOCK_BYTES = 1 << 20
_PUSH = """
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
_PULL = """
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
    call = Call(vmid, command, environment or {})
    what = f"Unable to run {command[0]} in container {name or vmid}"
    return _run(shell, call, what, chunks=[stdin], timeout_s=timeout_s, limit=limit)


def push(
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
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    call = Call(vmid, ["sh", "-c", _PUSH, "sh", path, f"{mode:04o}", str(uid), str(gid), str(size)])
    what = f"Unable to copy a file to {path} in container {name or vmid}"
    chunks = [source] if isinstance(source, bytes) else blocks(source)
    _require(_run(shell, call, what, chunks=chunks, timeout_s=limits.LONGEST_S), what)


def pull(shell: Shell, vmid: int, path: str, target: Path, *, name: str = "") -> None:
    """Copy ``path`` in the container to ``target``, streamed; that appears when it is whole."""
    what = f"Unable to copy {path} from container {name or vmid}"
    call = Call(vmid, ["sh", "-c", _PULL, "sh", path])
    with whole(target) as file:
        _require(_run(shell, call, what, stdout=file, timeout_s=limits.LONGEST_S, limit=limits.FILE_BYTES), what)


def kill(shell: Shell, call: Call, signal: str = "KILL", *, is_ending: bool = False) -> None:
    """End a call's processes in the container, by force where a signal does not; a container that is gone has none.

    A container whose shell does not do what it is told is not waited for: its node sees its processes, too.
    ``is_ending`` says that a session is held until this is done, as in ``Shell.run``.
    """
    try:
        killing = kill_call(call, signal)
        ended = shell.run(killing.argv, stdin=killing.head, timeout_s=KILL_TIMEOUT_S, is_ending=is_ending)
        is_done = ended.returncode == 0
    except ProviderError:
        is_done = False
    if not is_done:
        with suppress(ProviderError):
            on_node = ["sh", "-c", KILL, "sh", f"{MARK}={call.mark}", "KILL", "0"]
            shell.run(on_node, timeout_s=KILL_TIMEOUT_S, is_ending=is_ending)


def execute_call(shell: Shell, call: Call, what: str, *, stdin: bytes = b"") -> Execution:
    """Run a call as it is; ``what`` begins the error when its container does not run."""
    return _run(shell, call, what, chunks=[stdin])


@contextmanager
def whole(target: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name once all has been written to it, and leaves nothing else behind."""
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        partial = Path(file.name)
        try:
            yield file.file
        except BaseException:
            partial.unlink()
            raise
    partial.replace(target)


def _run(
    shell: Shell,
    call: Call,
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
        ended = partial(kill, shell, call, is_ending=True)
        done = shell.run(call.argv, stdin=stdin(), stdout=stdout, timeout_s=timeout_s, limit=limit, before_kill=ended)
    except CommandKilledError as error:
        raise ProviderError(what, details=frozen.explained(shell, call.vmid, error.details)) from error
    own = call.own_stderr(done.stderr)
    if own is None:
        raise ProviderError(what, details=Foreign.of_output(done.stderr) or "pct exec said nothing.")
    return Execution(done.returncode, done.stdout, own)


def _require(done: Execution, what: str) -> None:
    if done.returncode:
        raise ProviderError(what, details=Foreign.of_output(done.stderr))


def blocks(source: Path) -> Iterator[bytes]:
    """A file, piece by piece."""
    with source.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block
