"""What a run says while it goes: values that the CLI turns into a live display, plain lines or JSON lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One change of the plan: ``action`` on ``target`` for ``reason``; ``changes``: attribute → (before, after).

    ``meanwhile``: what requests meet; empty where nobody's are touched.
    """

    target: str
    action: str
    reason: str
    changes: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    meanwhile: str = ""


@dataclass(frozen=True, slots=True)
class Orphan:
    """A container that bears the lab's mark and is no longer in the file."""

    target: str
    host: str


@dataclass(frozen=True, slots=True)
class Leftover:
    """A service that was put into a container once and is no longer in the file; it runs on."""

    target: str


@dataclass(frozen=True, slots=True)
class ApplyStart:
    """Work on ``target`` begins; ``last_s``: seconds that it took the last time, where that is known."""

    target: str
    action: str
    last_s: float | None = None


@dataclass(frozen=True, slots=True)
class ApplyProgress:
    """Work on ``target`` goes on: ``message`` is what it does now; empty: it waits for others.

    ``goes_on``: it is at the step that was told before, and says how far: the newest message stands for all.
    """

    target: str
    message: str
    goes_on: bool = False


@dataclass(frozen=True, slots=True)
class ApplyComplete:
    """Work on ``target`` is done."""

    target: str
    action: str
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class ApplyErrored:
    """Work on ``target`` failed."""

    target: str
    action: str
    message: str


@dataclass(frozen=True, slots=True)
class Check:
    """One proof: ``ok`` or not, with what was seen.

    ``not_asked``: no proof could be had now, of a service that is busy or ``asleep``; then ``ok`` is None.
    """

    target: str
    name: str
    ok: bool | None
    message: str = ""
    not_asked: bool = False
    asleep: bool = False


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """An error, a warning or a note for the user; or a detail, which people read only when they ask for more."""

    severity: str
    message: str
    details: str = ""
    resolution: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """How the run ended; always the last event, also after a failure."""

    verb: str
    exit_code: int
    counts: Mapping[str, int] = field(default_factory=dict)
    elapsed_s: float = 0.0


Event = (
    PlannedChange
    | Orphan
    | Leftover
    | ApplyStart
    | ApplyProgress
    | ApplyComplete
    | ApplyErrored
    | Check
    | Diagnostic
    | Summary
)
