"""One thing that was looked at: how it is said in a line, and as a finding where it is not as it should be."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.events import Check
from provisioner.state import Finding


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that was looked at, and what is wrong with it, if anything."""

    check: Check
    finding: Finding | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was seen in words, or what is wrong with it, what the other side said, and what to do."""

    seen: str
    problem: str = ""
    hint: str = ""
    details: str = ""


def diagnosed(subject: str, name: str, verdict: Verdict) -> Diagnosis:
    """The verdict on one thing of ``subject`` as it is told."""
    check = Check(subject, name, not verdict.problem, verdict.problem or verdict.seen)
    if not verdict.problem:
        return Diagnosis(check)
    return Diagnosis(check, Finding(subject, f"{name}: {verdict.problem}", verdict.details, verdict.hint))
