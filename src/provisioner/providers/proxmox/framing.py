"""Frame a command on the other side of ``ssh``, so that its exit code is not taken for that of ``ssh`` or ``pct``.

Both of those give 255 when they fail, which a command may give, too; and both write to its stderr. So each side writes
a line with a random mark before and after the command, which ``Frame`` takes out again.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

_SCRIPT = """
mark=$1; shift
printf '%s:node:%s\\n' "$mark" $$ >&2
if command -v "$1" >/dev/null; then ("$@"); printf '%s:end:%s\\n' "$mark" $? >&2
else printf '%s:missing\\n' "$mark" >&2; fi
"""
_BOUND = """
seconds=$1 most=$2; shift 2
exec 4>&1 5>&2
code=$({
  {
    { timeout --foreground -k 10 "$seconds" "$@" 3>&- 4>&- 5>&- 6>&-; echo $? >&3; } 2>&1 >&6 6>&- |
      head -c "$most" >&5
  } 6>&1 | head -c "$most" >&4
} 3>&1)
exit "${code:-255}"
"""


def bounded(argv: Sequence[str], seconds: float, most: int) -> list[str]:
    """The call that runs ``argv`` for no longer than ``seconds``, and gives ``most`` bytes of each of its outputs."""
    return ["sh", "-c", _BOUND, "provision", str(round(seconds)), str(most), *argv]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a framed command.

    ``pid``: its process group on the node. ``code``: its exit code, None when that is not known. ``stderr``: what it
    wrote; ``noise``: what was written before it began, by ssh, by a shell's start files.
    """

    pid: int | None
    code: int | None
    is_missing: bool
    stderr: bytes
    noise: bytes


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of one command."""

    mark: str = field(default_factory=lambda: secrets.token_hex(16))

    def command(self, argv: Sequence[str]) -> str:
        """What the node's shell is given to run ``argv``; it ends with 0 once the command has ended, however."""
        return shlex.join(["exec", "/bin/sh", "-c", _SCRIPT, "provision", self.mark, *argv])

    def outcome(self, stderr: bytes) -> Outcome:
        """What a whole stderr says of the command."""
        mark = re.escape(self.mark).encode()
        begun = re.search(mark + rb":node:(\d+)\n", stderr)
        if begun is None:
            return Outcome(None, None, is_missing=False, stderr=b"", noise=stderr)
        own = stderr[begun.end() :]
        ended = re.search(mark + rb":(?:end:(\d+)|(missing))\n", own)
        code = int(ended[1]) if ended and ended[1] else None
        if ended:
            own = own[: ended.start()] + own[ended.end() :]
        return Outcome(
            int(begun[1]), code, is_missing=bool(ended and ended[2]), stderr=own, noise=stderr[: begun.start()]
        )
