"""A container that somebody has moved to another node is named by the verbs that would otherwise say nothing of it."""

from __future__ import annotations

from typing import Any

from provisioner.reconcile.observe import warn_of_moved
from provisioner.values.events import Diagnostic, Event
from provisioner.values.state import Fleet, HostState, Instance


class Said:
    """Effects that keep what was said."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        """Keep it."""
        self.events.append(event)


def said(*instances: Instance) -> list[str]:
    """The warnings about a lab whose container has moved from host box to another node."""
    effects: Any = Said()
    hints = {"web": "Bring it back."}
    host = HostState("box", moved={"web": "on node pve2, as CT 105"}, moved_hints=hints)
    warn_of_moved(Fleet("lab", instances, hosts={"box": host}), effects)
    warnings = [one for one in effects.events if isinstance(one, Diagnostic)]
    assert {one.severity for one in warnings} <= {"warning"}
    return [one.message for one in warnings]


def test_it_is_named_with_its_node_and_what_to_do() -> None:
    (message,) = said()
    assert message.startswith("container web of this lab is not on host box but on node pve2, as CT 105")
    assert message.endswith("Bring it back.")


def test_one_that_another_host_of_the_file_has_is_where_it_belongs() -> None:
    assert said(Instance("web", "other", "lab", "debian/12")) == []
