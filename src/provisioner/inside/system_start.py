"""Whether the system in a container has started: what is asked inside of it, and what the answer says."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.values.state import Execution

ASK_S = 10
"""How long one command in the container watches its system."""
CALL_S = 5
"""How long systemd may take for one answer: a bus that takes a connection and says nothing would cost 90 s."""
COMMAND_S = ASK_S + 3 * CALL_S
"""How long the command may take in all."""
NO_SYSTEMD = 127
STARTED = frozenset({"running", "degraded"})
JOBS = 5
"""Of those that a start still waits for, so many are named."""
_LONGEST = 200
_SCRIPT = f"""
command -v systemctl >/dev/null || exit {NO_SYSTEMD}
end=$(($(date +%s) + $1))
while :; do
  said=$(timeout {CALL_S} systemctl is-system-running 2>&1)
  [ -n "$said" ] || said="it gave no answer within {CALL_S} s"
  case $said in running|degraded) break ;; esac
  [ "$(date +%s)" -lt "$end" ] || break
  sleep 0.3
done
printf '%s\\n' "$said" | head -n 1
case $said in running|degraded) ;; *) timeout {CALL_S} systemctl list-jobs --no-legend --plain 2>/dev/null ;; esac
exit 0
"""


@dataclass(frozen=True, slots=True)
class Start:
    """How far it is: systemd's word or error, and the jobs that it still waits for."""

    state: str
    jobs: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether all was started that starts by itself, well or badly."""
        return self.state in STARTED

    @property
    def text(self) -> str:
        """The state and its jobs in one line."""
        return f"{self.state} ({', '.join(self.jobs)})" if self.jobs else self.state


def command(left_s: float) -> list[str]:
    """The command that watches the system until it has started, for ``ASK_S`` or what is ``left_s`` at most.

    Not ``is-system-running --wait``: its one connection may hang for as long as nobody ends it.
    """
    return ["sh", "-c", _SCRIPT, "sh", str(max(0, min(ASK_S, round(left_s))))]


def start_of(done: Execution) -> Start | None:
    """What the command said; None where there is no systemd to ask."""
    if done.returncode == NO_SYSTEMD:
        return None
    lines = [line.strip()[:_LONGEST] for line in done.stdout.decode(errors="replace").splitlines()]
    first = lines[0] if lines else done.stderr.decode(errors="replace").strip()[:_LONGEST]
    jobs = []
    for line in lines[1:]:
        _, _, job = line.partition(" ")  # NUMBER UNIT TYPE STATE
        if job.endswith(" running"):
            jobs.append(job.split()[0])
    return Start(first, tuple(jobs[:JOBS]))
