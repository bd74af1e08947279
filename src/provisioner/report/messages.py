"""Errors, findings, proofs and the last line of a run, worded once for every verb; and the lines of ``--json``."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from provisioner import __version__
from provisioner.report.style import PLAIN, Style, count_text, duration_text, indent, safe_line, safe_text
from provisioner.values.declared import MASK, Secret
from provisioner.values.errors import ExitCode, ProvisionError
from provisioner.values.events import Check, Diagnostic, Orphan, Summary

if TYPE_CHECKING:
    from provisioner.values.state import Finding

_PAST = {
    "create": "created",
    "build": "built",
    "update": "changed",
    "replace": "replaced",
    "delete": "destroyed",
    "start": "started",
    "stop": "stopped",
    "configure": "configured",
    "import": "imported",
    "prepare": "prepared",
    "snapshot": "snapshotted",
    "rollback": "rolled back",
    "clone": "cloned",
    "adopt": "adopted",
    "rejoin": "rejoined",
    "restore": "restored",
    "close": "closed",
    "open": "opened",
}
_COLOURS = {"error": "red", "note": "cyan"}


def error_diagnostic(error: ProvisionError) -> Diagnostic:
    """The same error as an event of the stream."""
    return Diagnostic("error", error.message, error.details, error.resolution)


def diagnostic_text(diagnostic: Diagnostic, style: Style = PLAIN) -> str:
    """An error or a warning: what, what the other side said, what to do now."""
    colour = _COLOURS.get(diagnostic.severity, "yellow")
    lines = [f"{style.paint(diagnostic.severity.capitalize() + ':', colour, 'bold')} {safe_text(diagnostic.message)}"]
    return "\n".join(lines + _more(diagnostic.details, diagnostic.resolution, style))


def error_text(error: ProvisionError, style: Style = PLAIN) -> str:
    """An error as the user reads it."""
    return diagnostic_text(error_diagnostic(error), style)


def finding_diagnostic(finding: Finding) -> Diagnostic:
    """A finding as an event of the stream."""
    return Diagnostic("error", f"{finding.subject}: {finding.message}", finding.details, finding.resolution)


def finding_text(finding: Finding, style: Style = PLAIN) -> str:
    """One finding: what is not as it should be, what was seen, what would mend it."""
    head = f"{style.paint('FAIL', 'red', 'bold')} {safe_line(finding.subject)}: {safe_text(finding.message)}"
    return "\n".join([head, *_more(finding.details, finding.resolution, style)])


def findings_text(findings: Sequence[Finding], style: Style = PLAIN, not_asked: Collection[str] = ()) -> str:
    """All findings and how many there are; one good line when there are none, which names what was not asked."""
    if findings:
        texts = [finding_text(finding, style) for finding in findings]
        return "\n".join([*texts, f"{count_text(len(findings), 'finding')}."])
    if not_asked:
        names = ", ".join(map(safe_line, sorted(not_asked)))
        return style.paint(f"Verified: what could be asked works as the file says. Not asked: {names}.", "yellow")
    return style.paint("Verified: everything works as the file says.", "green")


def check_text(check: Check, style: Style = PLAIN) -> str:
    """One proof in a line."""
    name = "" if check.target.endswith(f"/{check.name}") else check.name  # a service's own proof bears its name
    parts = filter(None, (check.target, name, check.message))
    return f"{_check_mark(check, style)} " + ": ".join(map(safe_text, parts))


def _check_mark(check: Check, style: Style) -> str:
    if check.asleep:
        return style.paint("idle", "yellow")
    if check.not_asked:
        return style.paint("busy", "yellow")
    if check.ok:
        return style.paint("ok  ", "green")
    return style.paint("FAIL", "red", "bold")


def orphan_text(orphan: Orphan, style: Style = PLAIN) -> str:
    """One container of the lab that the file does not name any more."""
    mark = style.paint("Orphan:", "yellow")
    return f"{mark} {safe_line(orphan.target)} on host {safe_line(orphan.host)} is not in the file; it is kept."


def summary_text(summary: Summary, style: Style = PLAIN) -> str:
    """What a run did and how it ended, in one line; empty for a run that did nothing."""
    done = counts_text(summary.counts)
    if not done:
        return ""
    after = f" after {duration_text(summary.elapsed_s)}: {done}."
    if summary.exit_code != ExitCode.DONE:
        return f"{summary.verb.capitalize()} stopped{after}"
    return style.paint(f"{summary.verb.capitalize()} complete{after}", "green", "bold")


def counts_text(counts: Mapping[str, int]) -> str:
    """What was done, as "2 created, 1 built", zeros left out."""
    return ", ".join(f"{number} {_PAST.get(name, name)}" for name, number in counts.items() if number)


def _more(details: str, resolution: str, style: Style) -> list[str]:
    lines = [indent(safe_text(details))] if details else []
    if resolution:
        lines.append(indent(style.paint("What to do:", "bold") + " " + safe_text(resolution)))
    return lines


# The ``--json`` stream: one object a line, ``type`` first, no secret ever.

FORMAT = "1.0"


def version_line() -> str:
    """The first line: the program's version and the stream's."""
    return json_line("version", {"provision": __version__, "format": FORMAT})


def event_line(event: Any) -> str:
    """One event (a dataclass) as a line; its type is its class's name in snake case."""
    return json_line(event_type(type(event)), plain_value(event))


def json_line(kind: str, content: Mapping[str, Any]) -> str:
    """A line of the stream, its type first; in ASCII, so that no text of others steers the terminal of who reads it."""
    return json.dumps({"type": kind, **plain_value(content)})


def event_type(kind: type) -> str:
    """``PlannedChange`` → ``planned_change``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def plain_value(value: Any) -> Any:
    """``value`` made of JSON's own types only; a ``Secret`` at any depth is a mask, what is unknown is its text."""
    if isinstance(value, Secret):
        return MASK
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return str(value)  # an address is one of our own types, which dumpers refuse
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return _plain_container(value)


def _plain_container(value: Any) -> Any:
    """Mappings of dataclasses and mappings, lists of the other containers; the text of anything else."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_value(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return list(map(plain_value, sorted(value, key=str)))
    if isinstance(value, (list, tuple)):
        return list(map(plain_value, value))
    return str(value)
