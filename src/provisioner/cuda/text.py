"""What was seen of a CUDA toolkit and its headers, as text and as the content of a JSON line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from provisioner.cuda.glibc import SINCE, Version, version_text
from provisioner.cuda.headers import State
from provisioner.cuda.look import Look
from provisioner.report.style import PLAIN, Style, safe_line

_STATES: dict[State, str] = {
    "bare": "as NVIDIA made them, made for any glibc before {first}",
    "guarded": "as NVIDIA made them, made for every glibc that is known",
    "fixed": "fixed by provision, good for every glibc that is known",
    "half": "half fixed: a run was interrupted; fix and revert both complete it",
    "edited": "edited by hand",
}


def looks_text(looks: Sequence[Look], style: Style = PLAIN) -> str:
    """Each folder of headers, an empty line between."""
    return "\n\n".join(look_text(look, style) for look in looks)


def looks_content(looks: Sequence[Look]) -> dict[str, Any]:
    """What was seen of the first one and, of several, of each: ``pending`` where one of them is."""
    content = look_content(looks[0])
    if len(looks) > 1:
        content["folders"] = [look_content(look) for look in looks]
    return {**content, "pending": any(look.is_pending for look in looks)}


def look_text(look: Look, style: Style = PLAIN) -> str:
    """Four lines: toolkit, glibc, headers, and where they disagree; what was edited by hand below them."""
    toolkit = look.toolkit
    limit = f", takes GCC up to {toolkit.gcc_limit}" if toolkit.gcc_limit else ""
    version = f"CUDA {toolkit.version}" if toolkit.version else "CUDA of unknown version"
    whose = "asked for" if look.asked else "of this machine"
    rows = [
        ("Toolkit", f"{version} in {safe_line(toolkit.include)}{limit}"),
        ("glibc", f"{version_text(look.glibc)} ({whose})"),
        ("Headers", _state_text(look)),
        ("Conflicts", _conflicts_text(look, style)),
    ]
    lines = [f"{style.paint(name + ':', 'bold')}{' ' * (10 - len(name))} {text}" for name, text in rows]
    lines += [f"  {safe_line(edit)}" for edit in look.headers.edits]
    return "\n".join(lines)


def look_content(look: Look) -> dict[str, Any]:
    """What was seen of one folder, for machine-readable output."""
    return {
        "include": look.toolkit.include,
        "toolkit": look.toolkit.version,
        "gcc_limit": look.toolkit.gcc_limit,
        "glibc": version_text(look.glibc),
        "state": look.headers.state,
        "conflicts": look.conflicts,
        "edits": look.headers.edits,
        "pending": look.is_pending,
    }


def _state_text(look: Look) -> str:
    first = _first_conflict(look)
    return _STATES[look.headers.state].format(first=version_text(first) if first else "")


def _first_conflict(look: Look) -> Version | None:
    """The oldest glibc whose declarations the headers contradict, None without one."""
    for version in sorted(set(SINCE.values())):
        if look.headers.conflicts(version):
            return version
    return None


def _conflicts_text(look: Look, style: Style) -> str:
    if not look.conflicts:
        return style.paint("none", "green")
    return style.paint(", ".join(look.conflicts), "red")
