"""Having one part of a cluster decide alone: look, prove that the others are off, set the expected votes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from provisioner.cluster import evidence
from provisioner.cluster.gather import gather
from provisioner.cluster.reaching import Reach
from provisioner.cluster.turn import turn
from provisioner.repair.forgetting import Sign
from provisioner.repair.quorum import Regaining, absent_members, asked_node, make_regaining
from provisioner.values.errors import PreflightError, VerificationError
from provisioner.values.events import ApplyProgress, Event
from provisioner.workflow.repairing import Hands, Where, begin, carry_out

RUNBOOK = "lost-quorum"


@dataclass(frozen=True, slots=True)
class Seen:
    """The decision, and what came back when the others were tried."""

    regaining: Regaining
    signs: tuple[Sign, ...]


def look(asked: Reach, off: Sequence[str], emit: Callable[[Event], None]) -> Seen:
    """What there is to know and to decide; nothing is changed."""
    facts = gather(asked, emit)
    addresses = [address for tried in absent_members(facts).values() for address in tried]
    emit(ApplyProgress(asked_node(facts).name, "try whether the others answer"))
    signs = evidence.signs_of_life(asked.shell, addresses)
    return Seen(make_regaining(facts, off, signs), signs)


def refuse(regaining: Regaining) -> None:
    """Raise ``PreflightError`` with all objections, if there are any."""
    if regaining.objections:
        raise PreflightError(
            f"Unable to have {regaining.host} decide alone",
            details="\n".join(regaining.objections),
            resolution="Nothing was touched. If two parts of a cluster run, both would be writable: "
            "read provision runbook show lost-quorum",
        )


def regain(asked: Reach, off: Sequence[str], hands: Hands) -> str:
    """Do it, and give the folder of its record; ``VerificationError``: it is not quorate all the same."""
    with turn(asked.shell, RUNBOOK):
        regaining = look(asked, off, hands.emit).regaining
        refuse(regaining)
        where = Where(regaining.cluster, regaining.host, regaining.host, asked.shell)
        plan = {"votes": regaining.votes, "off_ids": list(regaining.off_ids)}
        run = carry_out(begin(RUNBOOK, where), where, plan, hands)
    after = asked_node(gather(asked, hands.emit))
    if after.quorum is None or not after.quorum.is_quorate or not after.is_writable:
        raise VerificationError(
            f"Unable to say that {regaining.host} is quorate",
            details=f"What was done is in {run.folder}.",
            resolution="Look with: provision cluster check",
        )
    return str(run.folder)
