"""Services that end when nobody asks them, or when others take their turn: what is said, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from provisioner.lab.opening import Lab
from provisioner.lab.turns import others_hold_s, place_in_share
from provisioner.services.base import HOLD_OPTION, IDLE_OPTION, QUEUE_OPTION, Path, ResolvedService
from provisioner.values.facts import ContainerFact, Rest, of_kind
from provisioner.values.state import Problem


def asleep_words(rest: Rest) -> str:
    """Since when it is asleep, when it was proved, and what the next request waits for."""
    words = [f"asleep since {_moment(rest.since)}"]
    if rest.proved:
        words.append(f"proved {_moment(rest.proved)}")
    words.append(f"starts in {rest.start_s:.1f} s" if rest.start_s else "its start was not measured yet")
    return ", ".join(words)


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def require_queues(lab: Lab, facts: Iterable[ContainerFact]) -> None:
    """Raise ``InputError`` where requests would not wait for as long as a service takes to start, as was measured.

    One that takes turns starts when the others of its group have held the card.
    """
    found: list[Problem] = []
    for rest in of_kind(facts, Rest):
        service = lab.resolved.services.get(rest.address)
        if service is None or not (service.idle_s or service.share):
            continue
        held_s = others_hold_s(lab.resolved, service)
        if service.queue_s >= rest.start_s + held_s:
            continue
        queue = service.option(QUEUE_OPTION)
        taken = f"its start took {rest.start_s:.1f} s"
        if held_s:
            taken += f" after the others of its group, who may hold the card for {held_s:.0f} s"
        message = f"{taken}, and requests wait for it for {queue} at most"
        found.append(Problem(_place(lab, service), message, _hint(service)))
    if found:
        raise lab.loaded.error(found)


def _place(lab: Lab, service: ResolvedService) -> Path:
    """Where the file says how long requests wait, else why they have to."""
    if service.written.get(QUEUE_OPTION) is not None:
        return (*service.path, QUEUE_OPTION)
    if service.share:
        return place_in_share(lab.resolved, service)
    return (*service.path, IDLE_OPTION)


def _hint(service: ResolvedService) -> str:
    if service.share:
        return f"Write a longer {QUEUE_OPTION}, or a shorter {HOLD_OPTION} for the others."
    return f"Write a longer {QUEUE_OPTION}, or leave {IDLE_OPTION} out."
