"""One thing that was looked at: how it is said in a line, and as a finding where it is not as it should be."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.values.address import Address
from provisioner.values.events import Check, Diagnostic
from provisioner.values.state import Finding


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that was looked at, and what is wrong with it, if anything."""

    check: Check
    finding: Finding | None = None
    warning: Diagnostic | None = None
    """What should be known and stands in the way of nothing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was seen in words, or what is wrong with it, what the other side said, and what to do.

    ``warning``: what to do about what was seen, where that is in the way of nothing.
    """

    seen: str
    problem: str = ""
    hint: str = ""
    details: str = ""
    warning: str = ""


def diagnosed(subject: str, name: str, verdict: Verdict) -> Diagnosis:
    """The verdict on one thing of ``subject`` as it is told."""
    if verdict.problem:
        finding = Finding(Address(subject), f"{name}: {verdict.problem}", verdict.details, verdict.hint)
        return Diagnosis(Check(subject, name, False, verdict.problem), finding)
    check = Check(subject, name, True, verdict.seen)
    if not verdict.warning:
        return Diagnosis(check)
    warning = Diagnostic("warning", f"{subject}: {name}: {verdict.seen}", verdict.details, verdict.warning)
    return Diagnosis(check, warning=warning)
