"""Services that end when nobody asks them: what is said of them, and what cannot be asked of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from provisioner.lab.opening import Lab
from provisioner.services.base import IDLE_OPTION, QUEUE_OPTION
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
    """Raise ``InputError`` where requests would not wait for as long as a service takes to start, as was measured."""
    found: list[Problem] = []
    for rest in of_kind(facts, Rest):
        service = lab.resolved.services.get(rest.address)
        if service is None or not service.idle_s:
            continue
        queue = service.option(QUEUE_OPTION)
        if service.queue_s < rest.start_s:
            message = f"its start took {rest.start_s:.1f} s, and requests wait for it for {queue} at most"
            option = QUEUE_OPTION if service.written.get(QUEUE_OPTION) is not None else IDLE_OPTION
            hint = f"Write a longer {QUEUE_OPTION}, or leave {IDLE_OPTION} out."
            found.append(service.problem(option, message, hint))
    if found:
        raise lab.loaded.error(found)
