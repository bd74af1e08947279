"""What is open in a lab, a line for each container and service, and below it what is on no page."""

from __future__ import annotations

from provisioner.audit.judging import Audited
from provisioner.report.messages import check_text, finding_text
from provisioner.report.style import PLAIN, Style, count_text


def audited_text(found: Audited, style: Style = PLAIN) -> str:
    """All of it; the last line says whether something is open that is on no page, and what nobody could ask."""
    lines = [check_text(check, style) for check in found.checks]
    not_asked = sorted({check.target for check in found.checks if check.not_asked})
    if found.findings:
        lines += ["", *(finding_text(finding, style) for finding in found.findings)]
        lines.append(f"{count_text(len(found.findings), 'finding')}.")
    elif not_asked:
        what = f"Nothing that could be asked is open and on no page. Not asked: {', '.join(not_asked)}."
        lines.append(style.paint(what, "yellow"))
    else:
        lines.append(style.paint("Closed: nothing is open that is on no page.", "green"))
    return "\n".join(lines)
